//! Deleting old jobs.

use std::time::Duration;

use crate::{Client, Result, limits};

/// The maximum number of jobs that one transaction deletes.
const JOBS_PER_TRANSACTION: i32 = 5_000;

impl Client {
    /// Deletes the jobs that ended longer ago than this, and returns how many there were: jobs that failed, were
    /// discarded, or were kept by [`Worker::keep_succeeded`](crate::Worker::keep_succeeded). Their attempts are deleted
    /// with them, and so are batches that finished as long ago.
    ///
    /// No worker does this by itself: call it from a job of the application, or from a timer. Steps of runs are deleted
    /// with their runs.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database) if the database cannot be reached; the jobs that were deleted until
    /// then stay deleted.
    pub async fn prune_jobs(&self, older_than: Duration) -> Result<u64> {
        let age = limits::millis(older_than);
        let mut all = 0;
        loop {
            let page = sqlx::query_scalar!(
                "select pipeline.prune_jobs_v1($1, $2)",
                age,
                JOBS_PER_TRANSACTION
            )
            .fetch_one(self.pool())
            .await?
            .unwrap_or(0);
            all += u64::try_from(page).unwrap_or(0);
            if page < i64::from(JOBS_PER_TRANSACTION) {
                break;
            }
        }
        sqlx::query!("select pipeline.prune_batches_v1($1) as done", age)
            .fetch_one(self.pool())
            .await?;
        Ok(all)
    }
}
