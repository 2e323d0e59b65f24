//! Old runs go.

use std::time::Duration;

use jobs::extension::limits;

use super::Client;
use crate::Result;

/// The most runs that are deleted in one transaction.
const RUNS: i32 = 500;
/// The most steps that are deleted in one transaction, unless one run has more.
const STEPS: i64 = 10_000;

impl Client {
    /// Deletes the runs that ended longer ago than this, with their steps, outputs, attempts and events.
    /// Returns how many. Nothing goes by itself: call this from time to time, from a job of yours or a
    /// timer.
    ///
    /// Runs that have not ended stay, and so do those that another run still waits for. A key that a
    /// deleted run had is free again. Jobs that are no steps, callbacks that failed among them, are
    /// [`prune_jobs`](jobs::Client::prune_jobs)'s.
    ///
    /// # Errors
    ///
    /// When the database refuses; what was deleted until then stays deleted.
    pub async fn prune(&self, older_than: Duration) -> Result<u64> {
        let age = limits::millis(older_than);
        let mut all = 0;
        loop {
            let page = sqlx::query_scalar!(
                "select pipeline.prune_runs_v1($1, $2, $3)",
                age,
                RUNS,
                STEPS
            )
            .fetch_one(self.pool())
            .await?
            .unwrap_or(0);
            if page == 0 {
                return Ok(all);
            }
            all += u64::try_from(page).unwrap_or(0);
        }
    }
}
