//! A claimed job.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::end::JobLabel;
use crate::hidden::Hidden;
use crate::input::Input;

/// A claimed job, as its queue row describes it.
#[derive(Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Claimed {
    /// The position of the queue pattern that the job was claimed for, counted from 1.
    pub line: i32,
    /// The job's id.
    pub id: i64,
    /// The token of the attempt.
    pub token: i64,
    /// The queue of the job.
    pub queue: String,
    /// The job type's name.
    pub kind: String,
    /// The number of this attempt, counted from 1.
    pub attempt: i16,
    /// The maximum number of attempts.
    pub attempts: i16,
    /// The priority: jobs with a higher number are claimed first.
    pub priority: i16,
    /// The time before which the job must not run.
    pub run_at: DateTime<Utc>,
    /// The time from `run_at` to the claim, in milliseconds.
    pub waited_ms: i64,
    /// The duration of the lease, in milliseconds.
    pub lease_ms: i32,
    /// The batch that the job belongs to.
    pub batch: Option<i64>,
    /// The job's data, as JSON.
    pub args: String,
    /// The job's input besides its data, such as the outputs of upstream steps.
    pub input: Input,
    /// The options that were set when the job was enqueued, as JSON.
    pub options: Option<String>,
    /// The run and the step, if the job is a step of a run.
    #[serde(default)]
    pub of_run: Option<OfRun>,
}

/// The run and the step that a job belongs to.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfRun {
    /// The run's id.
    pub run: i64,
    /// The round of the run, counted from 1: reopening the run begins the next one.
    pub round: u32,
    /// The key of the step.
    pub step: String,
}

impl Claimed {
    /// Creates the first attempt of a job that is handed over to this worker without waiting in the queue.
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

    /// Returns whether the job is a step of a run: steps have even ids.
    pub fn is_step(&self) -> bool {
        is_step(self.id)
    }

    /// Returns the names of the job for log lines.
    pub(super) fn label(&self) -> JobLabel {
        JobLabel {
            kind: self.kind.clone(),
            run: self.of_run.as_ref().map(|of| of.run),
            step: self.of_run.as_ref().map(|of| of.step.clone()),
        }
    }
}

impl fmt::Debug for Claimed {
    /// Omits the job's data, which must not appear in logs.
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

/// Returns whether the job with this id is a step of a run.
pub(crate) fn is_step(id: i64) -> bool {
    id % 2 == 0
}
