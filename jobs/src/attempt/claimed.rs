//! A claimed job.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::end::JobLabel;
use super::owner::{Owner, is_owned};
use crate::input::Input;
use crate::redact::Redacted;

/// A claimed job, as its queue row describes it.
#[derive(Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Claimed {
    /// The job's id.
    pub id: i64,
    /// The index of the job's slot among the reserved slots of the transaction that claims it; `None` if the
    /// job has no slot.
    #[serde(skip)]
    pub(crate) reserved: Option<usize>,
    /// The token of the attempt.
    pub token: i64,
    /// The queue of the job.
    pub queue: String,
    /// The job type's name.
    pub job_type: String,
    /// The number of this attempt, counted from 1.
    pub attempt: i16,
    /// The maximum number of attempts.
    pub max_attempts: i16,
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
    /// The job's input besides its data, such as the outputs of other jobs.
    pub input: Input,
    /// The options that were set when the job was enqueued, as JSON.
    pub options: Option<String>,
    /// The owner of the job, which the extension's claim hook sets.
    #[serde(default)]
    pub owner: Option<Owner>,
}

impl Claimed {
    /// Creates the first attempt of a job that is handed over to this worker without waiting in the queue.
    pub fn handed_over(id: i64, token: i64, job_type: String, queue: String) -> Self {
        Self {
            id,
            reserved: None,
            token,
            queue,
            job_type,
            attempt: 1,
            max_attempts: 1,
            priority: 0,
            run_at: DateTime::UNIX_EPOCH,
            waited_ms: 0,
            lease_ms: 0,
            batch: None,
            args: String::new(),
            input: Input::None,
            options: None,
            owner: None,
        }
    }

    /// Returns whether an extension owns the job.
    pub fn is_owned(&self) -> bool {
        is_owned(self.id)
    }

    /// Returns the names of the job for log lines.
    pub(super) fn label(&self) -> JobLabel {
        JobLabel {
            job_type: self.job_type.clone(),
            owner_id: self.owner.as_ref().map(|owner| owner.id),
            owner_label: self.owner.as_ref().map(|owner| owner.label.clone()),
        }
    }
}

impl fmt::Debug for Claimed {
    /// Omits the job's data, which must not appear in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claimed")
            .field("id", &self.id)
            .field("job_type", &self.job_type)
            .field("queue", &self.queue)
            .field("attempt", &self.attempt)
            .field("max_attempts", &self.max_attempts)
            .field("token", &self.token)
            .field("batch", &self.batch)
            .field("args", &Redacted(self.args.len()))
            .field("input", &self.input)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
