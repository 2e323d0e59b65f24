//! The reconciler's counters, for monitoring.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::Client;
use crate::Result;

/// Counts the passes of the reconciler, and the problems that it found, since the database was created.
///
/// The reconciler is part of every worker. It looks for damage that no worker causes: a queue row of a step that was
/// deleted or changed by hand. Normally it finds none. If `found` grows, someone changes rows of runs; if `acted_at`
/// is old, no worker runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReconcilerStats {
    /// The number of passes.
    pub passes: u64,
    /// The number of live runs that the passes checked, in all.
    pub checked: u64,
    /// The number of problems that were found.
    pub found: u64,
    /// The time of the last pass.
    pub acted_at: Option<DateTime<Utc>>,
    /// The time at which a problem was last found.
    pub found_at: Option<DateTime<Utc>>,
}

impl Client {
    /// Returns the reconciler's counters for this database: each is a gauge for a monitor.
    ///
    /// # Errors
    ///
    /// [`Error::NotMigrated`](crate::Error::NotMigrated) if the schema is missing.
    pub async fn reconciler_stats(&self) -> Result<ReconcilerStats> {
        let row = sqlx::query!(
            "select passes, checked, found, acted_at, found_at from pipeline.reconciler"
        )
        .fetch_one(self.pool())
        .await?;
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        Ok(ReconcilerStats {
            passes: count(row.passes),
            checked: count(row.checked),
            found: count(row.found),
            acted_at: row.acted_at,
            found_at: row.found_at,
        })
    }
}
