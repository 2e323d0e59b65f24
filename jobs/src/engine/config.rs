//! The configuration of a worker.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use sqlx::PgPool;

use crate::registry::Registry;

/// The settings of one worker; they do not change while it runs.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) pool: PgPool,
    pub(crate) name: String,
    pub(crate) host: String,
    /// The patterns of SQL's LIKE that the types of claimed jobs must match; `None` for all types.
    pub(crate) only: Option<Vec<String>>,
    pub(crate) keep_succeeded: bool,
    pub(crate) grace: Duration,
    pub(crate) poll: Duration,
    pub(crate) unknown_job_timeout: Duration,
    /// The time for which another session may hold a row until the worker warns.
    pub(crate) held_warning: Duration,
    /// The maximum bytes of large arguments in one claim for a queue pattern. A single job may be larger.
    pub(crate) claim_bytes: i64,
    pub(crate) registry: Arc<Registry>,
    /// The names of the job types that the worker performs.
    pub(crate) job_types: Vec<String>,
    /// The worker's id, known once it is registered.
    pub(crate) id: OnceLock<i64>,
}

impl Config {
    /// Returns the worker's id; 0 until it is registered.
    pub(crate) fn worker(&self) -> i64 {
        self.id.get().copied().unwrap_or(0)
    }
}
