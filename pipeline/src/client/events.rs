//! The events of a run.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::Run;
use super::state::count;
use crate::{Error, Result};

/// A stored event: a change of the status of a run or of one of its steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Event {
    /// The number of the event in its run: numbers have no gaps, and follow the order of commits.
    pub no: u32,
    /// The time of the change.
    pub at: DateTime<Utc>,
    /// The key of the step; `None` for an event of the run itself.
    pub step: Option<String>,
    /// The status of the step, or of the run, after the change.
    pub status: EventStatus,
    /// The number of the step's last attempt, if one has begun.
    pub attempt: Option<u16>,
}

jobs::text_enum! {
    /// The status in an [`Event`]: that of a run or a step after the change, or `Reopened` or `CancelCameTooLate` of a
    /// run.
    EventStatus, "status in an event";
    /// The run waits for the runs before it in its chain.
    Pending = "pending",
    /// The run has started.
    Running = "running",
    /// The run was reopened: its next round has begun.
    Reopened = "reopened",
    /// The run is being cancelled.
    Cancelling = "cancelling",
    /// A transaction requested a cancel, and the run had ended when the transaction committed.
    CancelCameTooLate = "cancel_came_too_late",
    /// The step's job is in the queue, or runs.
    Enqueued = "enqueued",
    /// The run or the step succeeded.
    Succeeded = "succeeded",
    /// The run or the step failed.
    Failed = "failed",
    /// A step failed and halted the run.
    Halted = "halted",
    /// The step succeeded and ended its run early.
    EndedRun = "ended_run",
    /// The run or the step was cancelled.
    Cancelled = "cancelled",
    /// The run or the step was skipped.
    Skipped = "skipped",
    /// The step was skipped, because a branch chose another arm or the failure it waits for did not happen.
    SkippedByBranch = "skipped_by_branch",
}

impl<O> Run<O> {
    /// Returns the stored events of the run, in order. [`EventLevel`](crate::EventLevel) sets which events are stored.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`] if the run does not exist.
    pub async fn events(&self) -> Result<Vec<Event>> {
        self.events_after(0).await
    }

    /// Returns the stored events after the event with this number, so that a caller can ask for new ones only.
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`] if the run does not exist.
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
