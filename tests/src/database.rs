//! The database of one test: created, checked and dropped.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use local_postgres::Scratch;
use pipeline::testing::Clock;
use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{Connection as _, PgPool};

use crate::shared::{CONNECTIONS, Shared, shared};
use crate::waiting::{TEST_TIMEOUT, eventually};

const INVARIANTS: &str = include_str!("invariants.sql");

/// A test's own database.
#[derive(Debug)]
pub struct Database {
    scratch: Scratch,
    url: String,
    pool: PgPool,
}

impl Database {
    /// Returns the test's pool, which has a few connections.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Returns the name of the database.
    pub fn name(&self) -> &str {
        &self.scratch.name
    }

    /// Returns the address of the database, for another process.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Lets time pass: `pipeline.now()` is this much later from here on. Leases are moved by as much, because
    /// their workers had no chance to renew them. Workers and waiters that wait for a time are woken.
    pub async fn move_clock(&self, by: Duration) {
        self.clock().advance(by).await.expect("the clock moves");
    }

    /// Lets time pass for workers that have died: the leases stay where they are, so that they expire.
    pub async fn move_clock_without_leases(&self, by: Duration) {
        let moved = self.clock().advance_without_leases(by).await;
        moved.expect("the clock moves");
    }

    fn clock(&self) -> Clock {
        Clock::of(self.pool.clone())
    }
}

/// Whether the database of a failed test stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The database is dropped.
    No,
    /// The database of a failed test is kept under another name.
    IfFailed,
}

/// Why a test failed.
#[derive(Debug)]
pub enum Failure {
    /// The test panicked.
    Panicked(Box<dyn Any + Send>),
    /// The test passed, but left a deadlock or a row that `invariants.sql` finds.
    Left(String),
}

/// Runs a test with a database of its own.
///
/// # Panics
///
/// When the test does, when it takes longer than [`TEST_TIMEOUT`], or when it leaves behind what must not
/// be: a deadlock, or a row that `invariants.sql` finds.
pub async fn with_database(test: impl AsyncFnOnce(&Database)) {
    let keep = match std::env::var_os("PIPELINE_KEEP_TEST_DATABASE") {
        Some(value) if !value.is_empty() && value != "0" => Keep::IfFailed,
        _ => Keep::No,
    };
    match try_with_database(keep, test).await {
        Ok(()) => {}
        Err((Failure::Panicked(panic), _)) => std::panic::resume_unwind(panic),
        Err((Failure::Left(what), _)) => panic!("{what}"),
    }
}

/// Runs a test with a database of its own, and returns why it failed, with the name of its database if the
/// database was kept.
///
/// # Panics
///
/// When the test takes longer than [`TEST_TIMEOUT`]. Its database stays until another run sweeps it up: the
/// test's tasks may still use it.
pub async fn try_with_database(
    keep: Keep,
    test: impl AsyncFnOnce(&Database),
) -> Result<(), (Failure, Option<String>)> {
    let shared = shared().await;
    let _room = shared
        .room
        .acquire()
        .await
        .expect("the semaphore stays open");
    let database = create(shared).await;
    let outcome = AssertUnwindSafe(async {
        test(&database).await;
        database.pool.close().await;
    });
    let outcome = tokio::time::timeout(TEST_TIMEOUT, outcome.catch_unwind()).await;
    let outcome = outcome.unwrap_or_else(|_| {
        panic!("the test has not ended within {TEST_TIMEOUT:?}; it may wait for an event that does not come")
    });
    if outcome.is_err() {
        database.pool.close().await;
    }
    let failure = match outcome {
        Err(panic) => Some(Failure::Panicked(panic)),
        Ok(()) => check(shared, &database).await.err().map(Failure::Left),
    };
    let Some(failure) = failure else {
        remove(shared, &database).await;
        return Ok(());
    };
    if keep == Keep::No {
        remove(shared, &database).await;
        return Err((failure, None));
    }
    let kept = shared
        .claim
        .keep(&database.scratch)
        .await
        .expect("the database is kept");
    eprintln!("kept: {}", shared.claim.server().url(&kept));
    Err((failure, Some(kept)))
}

async fn create(shared: &Shared) -> Database {
    let thread = std::thread::current();
    let label = thread.name().unwrap_or("test").replace("::", "_");
    let scratch = shared
        .claim
        .create(&label, &shared.template)
        .await
        .expect("a database is created");
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .connect_with(scratch.options.clone())
        .await
        .expect("the new database can be connected to");
    Database {
        url: shared.claim.server().url(&scratch.name),
        scratch,
        pool,
    }
}

async fn remove(shared: &Shared, database: &Database) {
    shared
        .claim
        .remove(&database.scratch)
        .await
        .expect("the database is dropped");
}

/// Checks what must hold after every test: no row that `invariants.sql` finds, and no deadlock.
async fn check(shared: &Shared, database: &Database) -> Result<(), String> {
    let problems = problems(database).await.map_err(|e| e.to_string())?;
    if !problems.is_empty() {
        return Err(format!("{}: {}", database.name(), problems.join("; ")));
    }
    let mut admin = shared
        .claim
        .server()
        .admin()
        .await
        .map_err(|e| e.to_string())?;
    let deadlocks = deadlocks(&mut admin, database.name())
        .await
        .map_err(|e| e.to_string())?;
    if deadlocks > 0 {
        return Err(format!(
            "{deadlocks} deadlock(s) in {}: the deadlock detector is never the plan",
            database.name()
        ));
    }
    Ok(())
}

/// Returns the rows that `invariants.sql` finds. A test may have dropped the tables: then there are none.
async fn problems(database: &Database) -> Result<Vec<String>, sqlx::Error> {
    let mut connection = PgConnection::connect_with(&database.scratch.options).await?;
    let has_tables: bool = sqlx::query_scalar("select to_regclass('pipeline.jobs') is not null")
        .fetch_one(&mut connection)
        .await?;
    let problems: Vec<(String, String)> = if has_tables {
        let found = format!("select problem, subject::text from ({INVARIANTS}) as found");
        let found = sqlx::query_as(sqlx::AssertSqlSafe(found));
        found.fetch_all(&mut connection).await?
    } else {
        Vec::new()
    };
    connection.close().await?;
    let said = |(problem, subject)| format!("{problem}: {subject}");
    Ok(problems.into_iter().map(said).collect())
}

/// Returns how many deadlocks the server has counted in a database. The server counts a deadlock at the
/// latest when the session that had it ends: the question waits for the end of all sessions.
async fn deadlocks(admin: &mut PgConnection, database: &str) -> Result<i64, sqlx::Error> {
    eventually("all sessions of the test's database end", async || {
        let sessions = sqlx::query_scalar::<_, i64>(
            "select count(*) from pg_stat_activity
             where datname = $1 and backend_type = 'client backend'",
        );
        match sessions.bind(database).fetch_one(&mut *admin).await {
            Ok(0) => Some(Ok(())),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    })
    .await?;
    sqlx::query_scalar("select deadlocks from pg_stat_database where datname = $1")
        .bind(database)
        .fetch_one(admin)
        .await
}
