//! How a worker was set up.

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
    /// Only job types like one of these are claimed: patterns of SQL's LIKE.
    pub(crate) only: Option<Vec<String>>,
    pub(crate) keep_succeeded: bool,
    pub(crate) grace: Duration,
    pub(crate) poll: Duration,
    pub(crate) unknown_after: Duration,
    /// How long a row may be held by another session before the worker warns.
    pub(crate) held_warning: Duration,
    /// The most bytes of large arguments that one claim takes for a pattern; one job is always taken.
    pub(crate) claim_bytes: i64,
    pub(crate) registry: Arc<Registry>,
    /// The names of the job types that the worker performs.
    pub(crate) kinds: Vec<String>,
    /// The worker's id, known once it is registered.
    pub(crate) id: OnceLock<i64>,
}

impl Config {
    /// Returns the worker's id; 0 until it is registered.
    pub(crate) fn worker(&self) -> i64 {
        self.id.get().copied().unwrap_or(0)
    }
}
