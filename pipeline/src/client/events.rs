//! What happened in a run, in order.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::Run;
use super::state::count;
use crate::{Error, Result};

/// Something that happened to a run or to one of its steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Event {
    /// Its number: they follow each other without a gap, whatever committed when.
    pub no: u32,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// The step's key; `None`: the run itself.
    pub step: Option<String>,
    /// Where the step, or the run, stood then.
    pub status: EventStatus,
    /// The step's attempt, where one had begun.
    pub attempt: Option<u16>,
}

jobs::text_enum! {
    /// Where a run or a step stood when something happened to it; and two words of a run besides.
    EventStatus, "status in an event";
    /// The run waits for those before it in its chain.
    Pending = "pending",
    /// The run has started.
    Running = "running",
    /// The run was opened again: its next round.
    Reopened = "reopened",
    /// The run is being cancelled.
    Cancelling = "cancelling",
    /// The run was to be cancelled by a transaction, and had ended when that was committed.
    CancelCameTooLate = "cancel_came_too_late",
    /// The step's job is in the queue, or runs.
    Enqueued = "enqueued",
    /// It is done.
    Succeeded = "succeeded",
    /// It failed.
    Failed = "failed",
    /// A step failed and halted the run.
    Halted = "halted",
    /// The step is done, and has ended its run early.
    EndedRun = "ended_run",
    /// It was cancelled.
    Cancelled = "cancelled",
    /// It did not run.
    Skipped = "skipped",
    /// A branch chose otherwise, or the failure the step comes after did not happen.
    SkippedByBranch = "skipped_by_branch",
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
        let rows = sqlx::query_file!("src/sql/run_events.sql", self.id().get(), no)
            .fetch_all(self.client().pool())
            .await?;
        if rows.is_empty() {
            return Err(Error::NoRun(self.id()));
        }
        let mut events = Vec::with_capacity(rows.len());
        for row in rows {
            let (Some(no), Some(at), Some(status)) = (row.no, row.at, row.status) else {
                continue;
            };
            events.push(Event {
                no: u32::try_from(no).unwrap_or(0),
                at,
                step: row.step,
                status: status.parse().map_err(sqlx::Error::from)?,
                attempt: row.attempt.map(count),
            });
        }
        Ok(events)
    }
}
