//! The server that everything is measured on.

use local_postgres::{Claim, Cluster, Durability};
use sqlx::PgConnection;
use std::sync::Arc;

use super::{ChildArguments, Counted, Measured, Result};

/// A server of the bench's own, with durable defaults; gone when it is dropped.
pub(crate) struct Server {
    claim: Claim,
    admin: PgConnection,
}

impl Server {
    pub(crate) async fn start() -> Result<Self> {
        let cluster = tokio::task::spawn_blocking(|| {
            Cluster::temporary("bench", std::process::id(), Durability::Durable)
        })
        .await??;
        let server = Arc::new(local_postgres::Server::private(cluster)?);
        let mut admin = server.admin().await?;
        // Where the library is not there, statements are `n/a`.
        let preloaded: String =
            sqlx::query_scalar("select current_setting('shared_preload_libraries')")
                .fetch_one(&mut admin)
                .await?;
        if preloaded.contains("pg_stat_statements") {
            sqlx::raw_sql("create extension pg_stat_statements")
                .execute(&mut admin)
                .await?;
        }
        Ok(Self {
            claim: Claim::new(server, "pipeline_bench").await?,
            admin,
        })
    }

    /// Lets a child measure a system, in a database of its own, and counts what that cost here.
    pub(crate) async fn measure(
        &mut self,
        bench: &str,
        system: &str,
    ) -> Result<(Measured, Counted)> {
        let scratch = self.claim.create(system, "template1").await?;
        // So that no run pays for the pages that the one before has touched.
        sqlx::raw_sql("checkpoint").execute(&mut self.admin).await?;
        let before = Counted::read(&mut self.admin, &scratch.name).await?;
        let child = ChildArguments {
            bench: bench.to_owned(),
            system: system.to_owned(),
            url: self.claim.server().url(&scratch.name),
        };
        let measured = child.spawn().await?;
        let counted = Counted::read(&mut self.admin, &scratch.name)
            .await?
            .since(before);
        self.claim.remove(&scratch).await?;
        Ok((measured, counted))
    }

    /// The settings that figures depend on, as the server has them.
    pub(crate) async fn settings(&mut self) -> Result<String> {
        Ok(sqlx::query_scalar(
            "select 'Postgres ' || current_setting('server_version') || string_agg(
                        ', ' || name || ' = ' || setting || coalesce(' ' || unit, ''), '' order by name)
             from pg_settings
             where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers',
                            'max_wal_size', 'max_connections')",
        )
        .fetch_one(&mut self.admin)
        .await?)
    }
}
