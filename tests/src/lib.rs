//! The harness of the tests: one server for the whole run, a fresh database for each test.
//!
//! ```no_run
//! # async fn example() {
//! tests::with_database(async |db| {
//!     let now = sqlx::query("select pipeline.now()").execute(db.pool()).await;
//!     assert!(now.is_ok());
//! })
//! .await;
//! # }
//! ```
//!
//! The database is a copy of a migrated template, in which `pipeline.now()` can be moved. When the
//! test has ended, [`with_database`] checks `invariants.sql` and the server's count of deadlocks, and drops
//! the database. `PIPELINE_KEEP_TEST_DATABASE=1` keeps the database of a failed test, and prints its address.
//!
//! `DATABASE_URL` names the server only: the databases are called `pipeline_test_*`.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod chain;
mod database;
mod errand;
pub mod model;
mod shared;
pub mod steps;
mod waiting;

pub use chain::chain_of;
pub use database::{Database, Failure, Keep, try_with_database, with_database};
pub use errand::{Began, Errand};
pub use shared::{server, template};
pub use waiting::{EVENT_TIMEOUT, TEST_TIMEOUT, block_until, eventually, until};
