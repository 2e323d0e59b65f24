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
    /// Finds the server that `DATABASE_URL` names; if the variable is not set, the shared private cluster.
    ///
    /// Blocks while a cluster starts, which takes a few seconds the first time.
    pub fn find() -> Result<Self> {
        match std::env::var("DATABASE_URL") {
            Ok(url) if !url.is_empty() => Self::at(&url, None),
            Err(std::env::VarError::NotUnicode(_)) => Err(bad_url("it is not UTF-8")),
            _ => Self::private(Cluster::shared()?),
        }
    }

    /// Returns the server of a private cluster.
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

    /// Returns the private cluster, if the server is one.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// Returns the private cluster, if the server is one, to change it.
    pub fn cluster_mut(&mut self) -> Option<&mut Cluster> {
        self.cluster.as_mut()
    }

    /// Returns the database that `DATABASE_URL` names, and creates it if it is missing; `None` on a private
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
                // 42P04, 23505: another process has created the database first.
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

    /// Returns the options to connect to one of the server's databases.
    pub fn options(&self, database: &str) -> PgConnectOptions {
        self.options.clone().database(database)
    }

    /// Returns the URL of one of the server's databases, for another process.
    pub fn url(&self, database: &str) -> String {
        let mut url = self.url.clone();
        url.set_path(database);
        url.into()
    }

    /// Opens a connection to the database from which the others are administered. All processes use the same
    /// database for this, because advisory locks belong to one database.
    pub async fn admin(&self) -> Result<PgConnection> {
        match self.options("postgres").connect().await {
            Err(error) if code(&error).as_deref() == Some("3D000") => {
                Ok(self.options("template1").connect().await?)
            }
            other => Ok(other?),
        }
    }

    /// Opens a pool on one of the server's databases.
    pub async fn pool(&self, database: &str, connections: u32) -> Result<PgPool> {
        Ok(PgPoolOptions::new()
            .max_connections(connections)
            .connect_with(self.options(database))
            .await?)
    }

    /// Returns the server's data folder; `None` if the role has no right to read the setting.
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
