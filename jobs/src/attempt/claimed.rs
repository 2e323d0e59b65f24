//! A job as it comes out of the queue.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::end::JobLabel;
use crate::hidden::Hidden;
use crate::input::Input;

/// What the queue's row says of a job that has been claimed.
#[derive(Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Claimed {
    /// Which of the worker's queues it was claimed for; the first is 1.
    pub line: i32,
    /// The job.
    pub id: i64,
    /// The attempt.
    pub token: i64,
    /// The queue it came from.
    pub queue: String,
    /// The job type's name.
    pub kind: String,
    /// Which attempt this is; the first is 1.
    pub attempt: i16,
    /// How many there may be.
    pub attempts: i16,
    /// Higher came first.
    pub priority: i16,
    /// Not before.
    pub run_at: DateTime<Utc>,
    /// For how long it has waited since, in milliseconds.
    pub waited_ms: i64,
    /// How long the claim holds.
    pub lease_ms: i32,
    /// The batch it belongs to.
    pub batch: Option<i64>,
    /// Its data, as JSON.
    pub args: String,
    /// What it is given besides.
    pub input: Input,
    /// What its enqueueing changed, as JSON.
    pub options: Option<String>,
    /// What it is in a run, where it is a step.
    #[serde(default)]
    pub of_run: Option<OfRun>,
}

/// What a job is in a run.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfRun {
    /// The run.
    pub run: i64,
    /// Which opening of it; the first is 1.
    pub round: u32,
    /// The key of the step.
    pub step: String,
}

impl Claimed {
    /// A job that a worker starts without having waited for it, in its first attempt.
    pub fn handed_over(id: i64, token: i64, kind: String, queue: String) -> Self {
        Self {
            line: 0,
            id,
            token,
            queue,
            kind,
            attempt: 1,
            attempts: 1,
            priority: 0,
            run_at: DateTime::UNIX_EPOCH,
            waited_ms: 0,
            lease_ms: 0,
            batch: None,
            args: String::new(),
            input: Input::None,
            options: None,
            of_run: None,
        }
    }

    /// Returns whether the job is a step of a run: those have even ids.
    pub fn is_step(&self) -> bool {
        is_step(self.id)
    }

    /// Returns the names by which log lines call the job.
    pub(super) fn label(&self) -> JobLabel {
        JobLabel {
            kind: self.kind.clone(),
            run: self.of_run.as_ref().map(|of| of.run),
            step: self.of_run.as_ref().map(|of| of.step.clone()),
        }
    }
}

impl fmt::Debug for Claimed {
    /// Without the job's data: a log line is no place for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claimed")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("queue", &self.queue)
            .field("attempt", &self.attempt)
            .field("attempts", &self.attempts)
            .field("token", &self.token)
            .field("batch", &self.batch)
            .field("args", &Hidden(self.args.len()))
            .field("input", &self.input)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Whether a job of this id is a step of a run.
pub(crate) fn is_step(id: i64) -> bool {
    id % 2 == 0
}
