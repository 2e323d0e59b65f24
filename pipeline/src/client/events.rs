//! What happened in a run, in order.

use chrono::{DateTime, Utc};

use super::Run;
use super::state::count;
use crate::{Error, Result};

/// Something that happened to a run or to one of its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Its number: they follow each other without a gap, whatever committed when.
    pub no: u32,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// The step's key; `None`: the run itself.
    pub step: Option<String>,
    /// Where the step, or the run, stood then.
    pub status: String,
    /// The step's attempt, where one had begun.
    pub attempt: Option<u16>,
}

impl<O> Run<O> {
    /// What happened in the run, as far as its [`History`](crate::History) keeps it.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`]; when the database cannot be asked.
    pub async fn events(&self) -> Result<Vec<Event>> {
        self.events_after(0).await
    }

    /// What happened after the event of this number: to ask again for what is new.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`]; when the database cannot be asked.
    pub async fn events_after(&self, no: u32) -> Result<Vec<Event>> {
        let no = i32::try_from(no).unwrap_or(i32::MAX);
        let rows = sqlx::query_file!("src/sql/run_events.sql", self.id(), no)
            .fetch_all(self.client().pool())
            .await?;
        if rows.is_empty() {
            return Err(Error::NoRun(self.id()));
        }
        let events = rows.into_iter().filter_map(|row| {
            Some(Event {
                no: u32::try_from(row.no?).unwrap_or(0),
                at: row.at?,
                step: row.step,
                status: row.status?,
                attempt: row.attempt.map(count),
            })
        });
        Ok(events.collect())
    }
}
