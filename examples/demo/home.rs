//! Where the demo runs: a Postgres of its own, or the one that `DATABASE_URL` names.

use std::sync::Arc;

use local_postgres::{Claim, Scratch, Server};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::Result;
use crate::screen::Screen;

/// A server and a database on it.
pub(crate) struct Home {
    server: Arc<Server>,
    pub(crate) pool: PgPool,
    /// On the private server, a database that goes with the demo.
    own: Option<(Claim, Scratch)>,
}

impl Home {
    pub(crate) async fn find() -> Result<Self> {
        let server = Arc::new(tokio::task::spawn_blocking(Server::find).await??);
        let (options, own) = match server.named_database().await? {
            Some(options) => (options, None),
            None => {
                let claim = Claim::new(Arc::clone(&server), "pipeline_demo").await?;
                let scratch = claim.create("", "template1").await?;
                (scratch.options.clone(), Some((claim, scratch)))
            }
        };
        let pool = PgPoolOptions::new().connect_with(options).await?;
        Ok(Self { server, pool, own })
    }

    /// Whether somebody else may use the database at the same time.
    pub(crate) fn is_shared(&self) -> bool {
        self.own.is_none()
    }

    pub(crate) async fn describe(&self, screen: &mut Screen) -> Result<()> {
        let (version, database, applied): (String, String, i64) = sqlx::query_as(
            "select current_setting('server_version'), current_database()::text, count(*)
             from pipeline.migrations",
        )
        .fetch_one(&self.pool)
        .await?;
        let whose = match self.server.cluster() {
            Some(_) => "private: started for this demo, fsync off",
            None => "the one in DATABASE_URL",
        };
        screen.line(&format!("  server    Postgres {version}, {whose}"))?;
        let folder = match self.server.data_folder().await? {
            Some(folder) => folder.display().to_string(),
            None => "only the server's owner may ask where".to_owned(),
        };
        screen.line(&format!("  data      {folder}"))?;
        if let Some(why) = self.server.cluster().and_then(|it| it.elsewhere()) {
            screen.line(&format!("            (not in the checkout: {why})"))?;
        }
        screen.line(&format!(
            "  database  {database}, schema pipeline, {applied} migrations"
        ))
    }

    /// Drops the database, if it was ours alone.
    pub(crate) async fn leave(self) -> Result<()> {
        self.pool.close().await;
        if let Some((claim, scratch)) = self.own {
            claim.remove(&scratch).await?;
        }
        Ok(())
    }
}
