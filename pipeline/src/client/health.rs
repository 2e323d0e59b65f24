//! How the runs of a database are looked after.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::Client;
use crate::Result;

/// What the reconciler has done since the database was made.
///
/// Workers look from time to time for what only outside hands can cause: a queue row of a step that
/// somebody deleted or changed. In normal life they find nothing. `found` that grows means that somebody
/// changes rows of runs; `acted_at` that stands still means that no worker runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// How often a worker has looked.
    pub passes: u64,
    /// How many live runs it looked at, each time.
    pub checked: u64,
    /// How many things were wrong.
    pub found: u64,
    /// When it last looked.
    pub acted_at: Option<DateTime<Utc>>,
    /// When it last found something.
    pub found_at: Option<DateTime<Utc>>,
}

impl Client {
    /// How the runs of this database are looked after, for a monitor: a gauge each.
    ///
    /// # Errors
    ///
    /// When the database cannot be reached, or was not migrated.
    pub async fn health(&self) -> Result<Health> {
        let row = sqlx::query!(
            "select passes, checked, found, acted_at, found_at from pipeline.reconciler"
        )
        .fetch_one(self.pool())
        .await?;
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        Ok(Health {
            passes: count(row.passes),
            checked: count(row.checked),
            found: count(row.found),
            acted_at: row.acted_at,
            found_at: row.found_at,
        })
    }
}
