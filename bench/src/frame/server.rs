//! The server that everything is measured on.

use local_postgres::{Claim, Cluster, Durability, Scratch};
use sqlx::PgConnection;
use std::path::Path;
use std::sync::Arc;

use super::{ChildArguments, Counted, Measured, Result, statements};

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
        let scratch = self.scratch(system).await?;
        let child = ChildArguments::new(bench, system, self.url(&scratch));
        let outcome = self.count(&scratch, &child).await?;
        self.remove(&scratch).await?;
        Ok(outcome)
    }

    /// Lets one child after the other measure a system, in one database: a phase each, all about
    /// as many items.
    pub(crate) async fn phases<const N: usize>(
        &mut self,
        bench: &str,
        system: &str,
        items: u64,
        phases: [&str; N],
    ) -> Result<[(Measured, Counted); N]> {
        self.phases_of(None, bench, system, items, phases).await
    }

    /// Lets the children of another program measure a system, as [`Server::phases`] does.
    pub(crate) async fn phases_of<const N: usize>(
        &mut self,
        program: Option<&Path>,
        bench: &str,
        system: &str,
        items: u64,
        phases: [&str; N],
    ) -> Result<[(Measured, Counted); N]> {
        let scratch = self.scratch(system).await?;
        let mut outcomes = std::array::from_fn(|_| Default::default());
        for (phase, outcome) in phases.iter().zip(&mut outcomes) {
            let child = ChildArguments {
                items,
                phase: (*phase).to_owned(),
                program: program.map(Path::to_owned),
                ..ChildArguments::new(bench, system, self.url(&scratch))
            };
            *outcome = self.count(&scratch, &child).await?;
        }
        self.remove(&scratch).await?;
        Ok(outcomes)
    }

    /// A database for one system.
    pub(crate) async fn scratch(&mut self, label: &str) -> Result<Scratch> {
        let scratch = self.claim.create(label, "template1").await?;
        // So that no run pays for the pages that the one before has touched.
        sqlx::raw_sql("checkpoint").execute(&mut self.admin).await?;
        Ok(scratch)
    }

    pub(crate) fn url(&self, scratch: &Scratch) -> String {
        self.claim.server().url(&scratch.name)
    }

    /// Runs a child to its end, and counts what that cost in its database.
    pub(crate) async fn count(
        &mut self,
        scratch: &Scratch,
        child: &ChildArguments,
    ) -> Result<(Measured, Counted)> {
        let before = self.counted(scratch).await?;
        let measured = child.spawn().await?;
        let after = self.counted(scratch).await?;
        Ok((measured, after.since(before)))
    }

    /// The counters of a database that nobody uses; while somebody does, this waits.
    pub(crate) async fn counted(&mut self, scratch: &Scratch) -> Result<Counted> {
        Counted::read(&mut self.admin, &scratch.name).await
    }

    /// How many transactions of a database were rolled back, and how many deadlocks there were.
    pub(crate) async fn rollbacks_and_deadlocks(
        &mut self,
        scratch: &Scratch,
    ) -> Result<(i64, i64)> {
        Ok(sqlx::query_as(
            "select xact_rollback, deadlocks from pg_stat_database where datname = $1",
        )
        .bind(&scratch.name)
        .fetch_one(&mut self.admin)
        .await?)
    }

    /// How many statements have been run in a database, while it is in use.
    pub(crate) async fn statements(&mut self, scratch: &Scratch) -> Result<Option<i64>> {
        statements(&mut self.admin, &scratch.name).await
    }

    pub(crate) async fn remove(&self, scratch: &Scratch) -> Result<()> {
        Ok(self.claim.remove(scratch).await?)
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
