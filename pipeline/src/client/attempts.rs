//! The attempts of a step.

use std::time::Duration;

use jobs::AttemptInfo;

use super::Run;
use crate::{Error, Result};

impl<O> Run<O> {
    /// Returns the ended attempts of a step, the first one first: those that did not succeed, and the one that did.
    /// Attempts are numbered from 1 in each round of the run.
    ///
    /// ```no_run
    /// # async fn example(run: pipeline::Run) -> pipeline::Result<()> {
    /// for attempt in run.attempts("transcode").await? {
    ///     println!("{}: {} {:?}", attempt.attempt, attempt.outcome, attempt.error_message);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`] if the run does not exist; [`Error::NoStep`] if the run has no such step.
    pub async fn attempts(&self, step: &str) -> Result<Vec<AttemptInfo>> {
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
            let (Some(attempt), Some(token), Some(outcome), Some(ended_at)) =
                (row.attempt, row.token, row.outcome, row.ended_at)
            else {
                continue;
            };
            let ran = row.ran_ms.and_then(|ms| u64::try_from(ms).ok());
            attempts.push(AttemptInfo::new(
                attempt,
                token,
                outcome.parse().map_err(sqlx::Error::from)?,
                ended_at,
                (row.error_class, row.error_message),
                ran.map(Duration::from_millis),
            ));
        }
        Ok(attempts)
    }
}
