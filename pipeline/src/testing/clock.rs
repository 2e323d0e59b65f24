//! The clock of a test database.

use std::time::Duration;

use sqlx::PgPool;

use crate::{Error, Result};

/// The statements that replace `pipeline.now()` and keep its original definition.
const INSTALL: &str = include_str!("clock.sql");

/// The name of the row in `pipeline.workers` that stands for a harness. The clock keeps the row alive: nothing
/// passes time in a test database but the clock.
pub(super) const HARNESS_NAME: &str = "pipeline-testing-harness";

const RESTORE: &str = "
    do $$ begin
        update pipeline.workers set stopped_at = pipeline.now()
        where name = 'pipeline-testing-harness' and stopped_at is null;
        if to_regclass('pipeline_test.clock') is not null then
            execute (select original from pipeline_test.clock);
            drop schema pipeline_test cascade;
        end if;
    end $$";

/// Moves the clock, the leases of running jobs and the harness's sign of life in one statement, so that no session
/// sees a part of the change. Notifies everything that waits for a time.
const ADVANCE: &str = "
    with moved as (
        update pipeline_test.clock set ahead = ahead + make_interval(secs => $1)
    ), running as materialized (
        select id from pipeline.jobs where status = 'running' order by id for update
    ), leases as (
        update pipeline.jobs j set lease_until = lease_until + make_interval(secs => $1)
        from running where j.id = running.id
    ), harness as (
        update pipeline.workers set seen_at = seen_at + make_interval(secs => $1)
        where name = 'pipeline-testing-harness' and stopped_at is null
    )
    select pg_notify('pipeline_jobs', '*'), pg_notify('pipeline_requests', '')";
/// Moves the clock like [`ADVANCE`], but not the leases.
const ADVANCE_WITHOUT_LEASES: &str = "
    with moved as (
        update pipeline_test.clock set ahead = ahead + make_interval(secs => $1)
    ), harness as (
        update pipeline.workers set seen_at = seen_at + make_interval(secs => $1)
        where name = 'pipeline-testing-harness' and stopped_at is null
    )
    select pg_notify('pipeline_jobs', '*'), pg_notify('pipeline_requests', '')";

/// A clock that a test can stop and move: it replaces `pipeline.now()`, from which all times in the database come.
///
/// The replacement holds for every session of the database. Never install the clock in a database that is in use:
/// see [`install`](Self::install).
#[derive(Debug, Clone)]
pub struct Clock {
    pool: PgPool,
}

impl Clock {
    /// The statements that install the clock.
    #[doc(hidden)]
    pub const SQL: &str = INSTALL;

    /// Installs the clock in a migrated database, unless it is installed already.
    ///
    /// # Errors
    ///
    /// [`Error::NotForTests`] if the database's name does not contain the word `test`;
    /// [`Error::DatabaseInUse`] if the database has work that was begun by its own clock.
    pub async fn install(pool: PgPool) -> Result<Self> {
        has_test_name(&pool).await?;
        Self::install_anywhere(pool).await
    }

    /// Installs the clock whatever the database's name.
    pub(super) async fn install_anywhere(pool: PgPool) -> Result<Self> {
        has_no_work(&pool).await?;
        sqlx::raw_sql(INSTALL).execute(&pool).await?;
        Ok(Self { pool })
    }

    /// Returns the clock of a database in which it is installed.
    pub fn of(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Stops the clock: time passes only when the clock is [advanced](Self::advance).
    ///
    /// # Errors
    ///
    /// When the database cannot be reached, or the clock is not installed.
    pub async fn stop(&self) -> Result<()> {
        sqlx::query(
            "update pipeline_test.clock set stopped = coalesce(stopped, statement_timestamp())",
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Moves the clock forward: jobs and deadlines within this time become due. The leases of running jobs are moved
    /// too, because their workers had no chance to renew them.
    ///
    /// # Errors
    ///
    /// When the database cannot be reached, or the clock is not installed.
    pub async fn advance(&self, by: Duration) -> Result<()> {
        self.pass(by, ADVANCE).await
    }

    /// Moves the clock forward without the leases of running jobs, as if their workers had died.
    ///
    /// # Errors
    ///
    /// When the database cannot be reached, or the clock is not installed.
    pub async fn advance_without_leases(&self, by: Duration) -> Result<()> {
        self.pass(by, ADVANCE_WITHOUT_LEASES).await
    }

    async fn pass(&self, by: Duration, statement: &'static str) -> Result<()> {
        sqlx::query(statement)
            .bind(by.as_secs_f64())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Restores the database's own clock. Rows keep the times that were written meanwhile, also those in the
    /// future.
    ///
    /// # Errors
    ///
    /// When the database cannot be reached.
    pub async fn restore(self) -> Result<()> {
        sqlx::raw_sql(RESTORE).execute(&self.pool).await?;
        Ok(())
    }
}

/// Returns an error if the database's name does not contain the word `test`.
pub(super) async fn has_test_name(pool: &PgPool) -> Result<()> {
    let database = sqlx::query_scalar!(r#"select current_database() as "name!""#)
        .fetch_one(pool)
        .await?;
    if looks_like_tests(&database) {
        return Ok(());
    }
    Err(Error::NotForTests { database })
}

/// Returns an error if the database has work that was begun by its own clock.
async fn has_no_work(pool: &PgPool) -> Result<()> {
    let found = sqlx::query!(
        r#"select current_database() as "database!",
                  to_regclass('pipeline_test.clock') is not null as "is_ours!",
                  (select count(*) from pipeline.runs where ended_at is null) as "runs!",
                  (select count(*) from pipeline.jobs where ended_at is null) as "jobs!""#
    )
    .fetch_one(pool)
    .await?;
    if found.is_ours || found.runs + found.jobs == 0 {
        return Ok(());
    }
    Err(Error::DatabaseInUse {
        database: found.database,
        runs: found.runs,
        jobs: found.jobs,
    })
}

/// Returns whether `test` is a word of the name: in `shop_test_7` and `_sqlx_test_12`, but not in `latest`.
fn looks_like_tests(name: &str) -> bool {
    name.split(|c: char| !c.is_alphabetic())
        .any(|word| ["test", "tests", "testing"].contains(&word.to_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::looks_like_tests;

    #[test]
    fn a_database_for_tests_says_so_in_a_word() {
        for name in [
            "test",
            "shop_test",
            "test-7",
            "_sqlx_test_12",
            "Shop_TEST",
            "test2",
            "tests",
        ] {
            assert!(looks_like_tests(name), "{name}");
        }
        for name in [
            "shop",
            "latest",
            "contest",
            "shop_production",
            "attestations",
            "",
        ] {
            assert!(!looks_like_tests(name), "{name}");
        }
    }
}
