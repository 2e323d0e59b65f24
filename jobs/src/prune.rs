//! Old jobs go.

use std::time::Duration;

use crate::{Client, Result, limits};

/// So many go in one transaction.
const PAGE: i32 = 5_000;

impl Client {
    /// Deletes the jobs that ended longer ago than this and are still kept: failed, discarded, or kept by
    /// [`Worker::keep_succeeded`](crate::Worker::keep_succeeded). With them go their attempts, and batches
    /// that finished as long ago. Returns how many jobs. Nothing goes by itself: call this from time to
    /// time, from a job of yours or a timer.
    ///
    /// Steps of runs are none of these: they go with their runs.
    ///
    /// # Errors
    ///
    /// When the database refuses; what was deleted until then stays deleted.
    pub async fn prune_jobs(&self, older_than: Duration) -> Result<u64> {
        let age = limits::millis(older_than);
        let mut all = 0;
        loop {
            let page = sqlx::query_scalar!("select pipeline.prune_jobs_v1($1, $2)", age, PAGE)
                .fetch_one(self.pool())
                .await?
                .unwrap_or(0);
            all += u64::try_from(page).unwrap_or(0);
            if page < i64::from(PAGE) {
                break;
            }
        }
        sqlx::query!("select pipeline.prune_batches_v1($1) as done", age)
            .fetch_one(self.pool())
            .await?;
        Ok(all)
    }
}
