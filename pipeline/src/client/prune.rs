//! Old runs go.

use std::time::Duration;

use jobs::limits;

use super::Client;
use crate::Result;

/// So many runs go in one transaction.
const PAGE: i32 = 500;

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
            let page = sqlx::query_scalar!("select pipeline.prune_runs_v1($1, $2)", age, PAGE)
                .fetch_one(self.pool())
                .await?
                .unwrap_or(0);
            all += u64::try_from(page).unwrap_or(0);
            if page < i64::from(PAGE) {
                return Ok(all);
            }
        }
    }
}
