//! The server that this process uses.

use std::path::PathBuf;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgPool};
use url::Url;

use crate::{Cluster, Error, Result};

/// A Postgres server: the one `DATABASE_URL` names, or a private cluster.
#[derive(Debug)]
pub struct Server {
    url: Url,
    options: PgConnectOptions,
    cluster: Option<Cluster>,
}

impl Server {
    /// The server that `DATABASE_URL` names; where it is not set, the shared private cluster.
    ///
    /// Blocks while a cluster starts (a moment; a few seconds the first time).
    pub fn find() -> Result<Self> {
        match std::env::var("DATABASE_URL") {
            Ok(url) if !url.is_empty() => Self::at(&url, None),
            Err(std::env::VarError::NotUnicode(_)) => Err(bad_url("it is not UTF-8")),
            _ => Self::private(Cluster::shared()?),
        }
    }

    /// The server of a private cluster.
    pub fn private(cluster: Cluster) -> Result<Self> {
        let sockets = cluster.sockets().display();
        let url = format!("postgres://postgres@localhost/postgres?host={sockets}");
        Self::at(&url, Some(cluster))
    }

    fn at(url: &str, cluster: Option<Cluster>) -> Result<Self> {
        let url = Url::parse(url).map_err(bad_url)?;
        if !["postgres", "postgresql"].contains(&url.scheme()) {
            return Err(bad_url("it does not begin with postgres://"));
        }
        Ok(Self {
            options: PgConnectOptions::from_url(&url).map_err(bad_url)?,
            url,
            cluster,
        })
    }

    /// The private cluster, where this is one.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// The private cluster, where this is one, to do something to it.
    pub fn cluster_mut(&mut self) -> Option<&mut Cluster> {
        self.cluster.as_mut()
    }

    /// The database that `DATABASE_URL` names, created if it is missing; `None` on a private
    /// cluster.
    pub async fn named_database(&self) -> Result<Option<PgConnectOptions>> {
        if self.cluster.is_some() {
            return Ok(None);
        }
        let name = self
            .options
            .get_database()
            .unwrap_or_else(|| self.options.get_username());
        match self.options.clone().connect().await {
            Ok(connection) => connection.close().await?,
            Err(error) if code(&error).as_deref() == Some("3D000") => {
                let mut admin = self.admin().await?;
                let created =
                    sqlx::query(AssertSqlSafe(format!("create database {}", quoted(name))))
                        .execute(&mut admin)
                        .await;
                // 42P04, 23505: another process was faster.
                match created {
                    Err(error) if !matches!(code(&error).as_deref(), Some("42P04" | "23505")) => {
                        return Err(error.into());
                    }
                    _ => admin.close().await?,
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Some(self.options.clone()))
    }

    /// How to connect to one of the server's databases.
    pub fn options(&self, database: &str) -> PgConnectOptions {
        self.options.clone().database(database)
    }

    /// The same as a URL, for another process.
    pub fn url(&self, database: &str) -> String {
        let mut url = self.url.clone();
        url.set_path(database);
        url.into()
    }

    /// A connection to the database that administers the others. It is the same one for everybody
    /// on this server: advisory locks are a database's own.
    pub async fn admin(&self) -> Result<PgConnection> {
        match self.options("postgres").connect().await {
            Err(error) if code(&error).as_deref() == Some("3D000") => {
                Ok(self.options("template1").connect().await?)
            }
            other => Ok(other?),
        }
    }

    /// A pool on one of the server's databases.
    pub async fn pool(&self, database: &str, connections: u32) -> Result<PgPool> {
        Ok(PgPoolOptions::new()
            .max_connections(connections)
            .connect_with(self.options(database))
            .await?)
    }

    /// Where the server's data is, as it tells itself; `None` where the role may not ask.
    pub async fn data_folder(&self) -> Result<Option<PathBuf>> {
        let mut admin = self.admin().await?;
        let told: Result<String, _> =
            sqlx::query_scalar("select current_setting('data_directory')")
                .fetch_one(&mut admin)
                .await;
        match told {
            Ok(folder) => Ok(Some(folder.into())),
            Err(error) if code(&error).as_deref() == Some("42501") => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn bad_url(reason: impl std::fmt::Display) -> Error {
    Error::BadUrl {
        reason: reason.to_string(),
    }
}

pub(crate) fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

pub(crate) fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}
