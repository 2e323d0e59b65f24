//! What was tried.

use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::Outcome;
use serde::Serialize;

use super::Run;
use super::state::{as_millis, count, failure};
use crate::{Error, Failure, Result};

/// An attempt of a step that has ended.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Attempt {
    /// Which one; the first is 1, again in each round.
    pub attempt: u16,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it did not succeed.
    pub error: Option<Failure>,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
    /// How long it took; known of the one that succeeded. In JSON, `ran_ms`.
    #[serde(rename = "ran_ms", serialize_with = "as_millis")]
    pub ran: Option<Duration>,
}

impl<O> Run<O> {
    /// The attempts of a step that have ended, the first one first: those that did not succeed, and
    /// the one that did.
    ///
    /// ```no_run
    /// # async fn example(run: pipeline::Run) -> pipeline::Result<()> {
    /// for tried in run.attempts("transcode").await? {
    ///     println!("{}: {} {:?}", tried.attempt, tried.outcome, tried.error);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`], [`Error::NoStep`]; when the database cannot be asked.
    pub async fn attempts(&self, step: &str) -> Result<Vec<Attempt>> {
        let rows = sqlx::query_file!("src/sql/step_attempts.sql", self.id().get(), step)
            .fetch_all(self.client().pool())
            .await?;
        match rows.first() {
            None => return Err(Error::NoRun(self.id())),
            Some(row) if row.step.is_none() => {
                return Err(self.no_step(self.client().pool(), step).await);
            }
            Some(_) => {}
        }
        let mut attempts = Vec::with_capacity(rows.len());
        for row in rows {
            let (Some(attempt), Some(outcome), Some(ended_at)) =
                (row.attempt, row.outcome, row.ended_at)
            else {
                continue;
            };
            let ran = row.ran_ms.and_then(|ms| u64::try_from(ms).ok());
            attempts.push(Attempt {
                attempt: count(attempt),
                outcome: outcome.parse().map_err(sqlx::Error::from)?,
                error: failure(step, row.error_class, row.error_message),
                ended_at,
                ran: ran.map(Duration::from_millis),
            });
        }
        Ok(attempts)
    }
}
