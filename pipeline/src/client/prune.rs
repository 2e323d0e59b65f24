//! Pruning: deleting old runs.

use std::time::Duration;

use jobs::extension::limits;

use super::Client;
use crate::Result;

/// The maximum number of runs that are deleted in one transaction.
const MAX_RUNS_PER_TRANSACTION: i32 = 500;
/// The maximum number of steps that are deleted in one transaction, unless one run has more.
const MAX_STEPS_PER_TRANSACTION: i64 = 10_000;

impl Client {
    /// Deletes the runs that ended longer ago than this, with their steps, outputs, attempts and events. Returns the
    /// number of deleted runs.
    ///
    /// Nothing is pruned automatically: call this at intervals, from a job or a timer of the application. Runs that
    /// have not ended are kept, and so are runs that another run still waits for. The key of a deleted run is free
    /// again. Jobs outside runs, which includes failed callbacks, are deleted by
    /// [`prune_jobs`](jobs::Client::prune_jobs).
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database) if the database refuses a deletion. Runs that were deleted before
    /// stay deleted.
    pub async fn prune_runs(&self, older_than: Duration) -> Result<u64> {
        let age = limits::millis(older_than);
        let mut deleted = 0;
        loop {
            let page = sqlx::query_scalar!(
                "select pipeline.prune_runs_v1($1, $2, $3)",
                age,
                MAX_RUNS_PER_TRANSACTION,
                MAX_STEPS_PER_TRANSACTION
            )
            .fetch_one(self.pool())
            .await?
            .unwrap_or(0);
            if page == 0 {
                return Ok(deleted);
            }
            deleted += u64::try_from(page).unwrap_or(0);
        }
    }
}
