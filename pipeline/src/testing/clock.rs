//! The clock of a test database.

use std::time::Duration;

use sqlx::PgPool;

use crate::{Error, Result};

/// Replaces `pipeline.now()`; keeps what it was.
const INSTALL: &str = include_str!("clock.sql");

const RESTORE: &str = "
    do $$ begin
        if to_regclass('pipeline_test.clock') is not null then
            execute (select original from pipeline_test.clock);
            drop schema pipeline_test cascade;
        end if;
    end $$";

/// One statement each, so that nobody sees half of it. Who waits for a time is woken.
const ADVANCE: &str = "
    with moved as (
        update pipeline_test.clock set ahead = ahead + make_interval(secs => $1)
    ), running as materialized (
        select id from pipeline.jobs where status = 'running' order by id for update
    ), leases as (
        update pipeline.jobs j set lease_until = lease_until + make_interval(secs => $1)
        from running where j.id = running.id
    )
    select pg_notify('pipeline_jobs', '*'), pg_notify('pipeline_requests', '')";
const ADVANCE_ALONE: &str = "
    with moved as (
        update pipeline_test.clock set ahead = ahead + make_interval(secs => $1)
    )
    select pg_notify('pipeline_jobs', '*'), pg_notify('pipeline_requests', '')";

/// The clock of a test database: `pipeline.now()`, by which everything happens, and which a test can stop
/// and move.
///
/// It takes the place of the database's own, for everybody who is connected to it. Never do that to a
/// database that is in use: see [`install`](Self::install).
#[derive(Debug, Clone)]
pub struct Clock {
    pool: PgPool,
}

impl Clock {
    /// The statements that install it.
    #[doc(hidden)]
    pub const SQL: &str = INSTALL;

    /// Installs it, unless it is there, in a migrated database.
    ///
    /// # Errors
    ///
    /// [`Error::NotForTests`] where the database's name has no word `test`, or where there is work in it
    /// that was begun by another clock.
    pub async fn install(pool: PgPool) -> Result<Self> {
        has_test_name(&pool).await?;
        Self::install_anywhere(pool).await
    }

    /// The same whatever the database's name.
    pub(super) async fn install_anywhere(pool: PgPool) -> Result<Self> {
        has_no_work(&pool).await?;
        sqlx::raw_sql(INSTALL).execute(&pool).await?;
        Ok(Self { pool })
    }

    /// The clock of a database where it is installed.
    pub fn of(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Stops it: time passes only when it is [advanced](Self::advance).
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

    /// Lets time pass: it is this much later from here on, and what was due meanwhile is due. Leases are
    /// moved with it: their workers had no chance to renew them.
    ///
    /// # Errors
    ///
    /// When the database cannot be reached, or the clock is not installed.
    pub async fn advance(&self, by: Duration) -> Result<()> {
        self.pass(by, ADVANCE).await
    }

    /// The same for workers that have died: nobody has renewed their leases meanwhile.
    ///
    /// # Errors
    ///
    /// When the database cannot be reached, or the clock is not installed.
    pub async fn advance_without_leases(&self, by: Duration) -> Result<()> {
        self.pass(by, ADVANCE_ALONE).await
    }

    async fn pass(&self, by: Duration, statement: &'static str) -> Result<()> {
        sqlx::query(statement)
            .bind(by.as_secs_f64())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Gives the database its own clock back. What was written meanwhile keeps its times, also those that
    /// have not come yet.
    ///
    /// # Errors
    ///
    /// When the database cannot be reached.
    pub async fn restore(self) -> Result<()> {
        sqlx::raw_sql(RESTORE).execute(&self.pool).await?;
        Ok(())
    }
}

/// Refuses a database whose name does not say that it is for tests.
pub(super) async fn has_test_name(pool: &PgPool) -> Result<()> {
    let database = sqlx::query_scalar!(r#"select current_database() as "name!""#)
        .fetch_one(pool)
        .await?;
    if looks_like_tests(&database) {
        return Ok(());
    }
    Err(Error::NotForTests {
        database,
        why: "its name has no word `test`".to_owned(),
    })
}

/// Refuses a database that is at work by another clock.
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
    Err(Error::NotForTests {
        database: found.database,
        why: format!(
            "{} runs and {} jobs in it have not ended, and were begun by its own clock",
            found.runs, found.jobs
        ),
    })
}

/// A word of its own: `shop_test_7` and `_sqlx_test_12` are for tests, `latest` and `contest` are not.
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
