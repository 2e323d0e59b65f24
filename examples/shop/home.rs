//! The database of the demo and the examples: on a private Postgres, or on the server of `DATABASE_URL`.

use std::sync::Arc;

use local_postgres::{Claim, Scratch, Server};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::Result;

/// A server and a database on it.
#[derive(Debug)]
pub struct Home {
    server: Arc<Server>,
    /// The pool of connections to the database.
    pub pool: PgPool,
    /// The database, if it belongs to this program and is dropped at its end.
    own: Option<(Claim, Scratch)>,
}

impl Home {
    /// Returns the database of `DATABASE_URL`. Without this variable, creates a database on the private server.
    ///
    /// # Errors
    ///
    /// Returns an error if no server is found, or if the server refuses.
    pub async fn find(prefix: &'static str) -> Result<Self> {
        let server = server().await?;
        match server.named_database().await? {
            Some(options) => Self::at(server, options, None).await,
            None => Self::claim(server, prefix).await,
        }
    }

    /// Creates a database, on the server of `DATABASE_URL` or on the private server.
    ///
    /// # Errors
    ///
    /// Returns an error if no server is found, or if the server refuses.
    pub async fn own(prefix: &'static str) -> Result<Self> {
        Self::claim(server().await?, prefix).await
    }

    async fn claim(server: Arc<Server>, prefix: &'static str) -> Result<Self> {
        let claim = Claim::new(Arc::clone(&server), prefix).await?;
        let scratch = claim.create("", "template1").await?;
        Self::at(server, scratch.options.clone(), Some((claim, scratch))).await
    }

    async fn at(
        server: Arc<Server>,
        options: PgConnectOptions,
        own: Option<(Claim, Scratch)>,
    ) -> Result<Self> {
        let pool = PgPoolOptions::new().connect_with(options).await?;
        Ok(Self { server, pool, own })
    }

    /// Returns whether other programs may use the database at the same time.
    pub fn is_shared(&self) -> bool {
        self.own.is_none()
    }

    /// Describes the server and the database in a few lines.
    ///
    /// # Errors
    ///
    /// Returns an error if a query fails.
    pub async fn describe(&self) -> Result<String> {
        let (version, database, applied): (String, String, i64) = sqlx::query_as(
            "select split_part(current_setting('server_version'), ' ', 1), current_database()::text, count(*)
             from pipeline.migrations",
        )
        .fetch_one(&self.pool)
        .await?;
        let whose = match self.server.cluster() {
            Some(_) => "private: started for this demo, fsync off",
            None => "the one in DATABASE_URL",
        };
        let folder = match self.server.data_folder().await? {
            Some(folder) => folder.display().to_string(),
            None => "not known: only the owner of the server may ask".to_owned(),
        };
        let elsewhere = self.server.cluster().and_then(|it| it.elsewhere());
        let elsewhere = elsewhere.map_or_else(String::new, |why| {
            format!("            (not in the checkout: {why})\n")
        });
        Ok(format!(
            "  server    Postgres {version}, {whose}\n  data      {folder}\n{elsewhere}  \
             database  {database}, schema pipeline, {applied} migrations"
        ))
    }

    /// Drops the database, if it belongs to this program.
    ///
    /// # Errors
    ///
    /// Returns an error if the database cannot be dropped.
    pub async fn leave(self) -> Result<()> {
        self.pool.close().await;
        if let Some((claim, scratch)) = self.own {
            claim.remove(&scratch).await?;
        }
        Ok(())
    }
}

async fn server() -> Result<Arc<Server>> {
    Ok(Arc::new(tokio::task::spawn_blocking(Server::find).await??))
}
