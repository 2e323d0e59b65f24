//! Information about jobs and their attempts.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};

use crate::redact::Redacted;
use crate::{BatchId, JobId};

crate::text_enum! {
    /// The status of a job.
    JobStatus, "status of a job";
    /// The job waits until it is due.
    Scheduled = "scheduled",
    /// The job is due and waits for a worker.
    Ready = "ready",
    /// A worker performs the job.
    Running = "running",
    /// The job succeeded, and its worker [keeps](crate::Worker::keep_succeeded) such jobs.
    Succeeded = "succeeded",
    /// The job failed, and no attempts are left.
    Failed = "failed",
    /// The job failed and asked for no further attempt ([`JobError::discard`](crate::JobError::discard)).
    Discarded = "discarded",
}

crate::text_enum! {
    /// The outcome of an attempt.
    Outcome, "outcome of an attempt";
    /// The attempt succeeded.
    Succeeded = "succeeded",
    /// The attempt succeeded and ended its owner early.
    EndedOwner = "ended_run",
    /// The attempt failed, and the job was retried.
    Retried = "retried",
    /// The attempt failed, and no attempts were left.
    Failed = "failed",
    /// The attempt failed and asked for no further attempt.
    Discarded = "discarded",
    /// The attempt did not end by itself, and the job was not retried because its owner was being cancelled.
    Cancelled = "cancelled",
}

/// A job as the queue stores it.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct JobInfo {
    /// The job's id.
    pub id: JobId,
    /// The name of the job's type.
    pub job_type: String,
    /// The queue of the job.
    pub queue: String,
    /// The job's status.
    pub status: JobStatus,
    /// The job's priority; jobs with a higher one are performed first.
    pub priority: i16,
    /// How many attempts have begun.
    pub attempt: u16,
    /// How many attempts the job may have.
    pub max_attempts: u16,
    /// The batch that the job belongs to.
    pub batch: Option<BatchId>,
    /// The job's data, as JSON.
    pub args: serde_json::Value,
    /// The class of the job's last error.
    pub error_class: Option<String>,
    /// The message of the job's last error.
    pub error_message: Option<String>,
    /// When the job was enqueued.
    pub created_at: DateTime<Utc>,
    /// The time before which the job must not run.
    pub run_at: DateTime<Utc>,
    /// When the job ended for good.
    pub ended_at: Option<DateTime<Utc>>,
    /// The worker that performs the job, or performed it last.
    pub worker: Option<i64>,
}

impl fmt::Debug for JobInfo {
    /// Omits the job's data, which must not appear in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobInfo")
            .field("id", &self.id)
            .field("job_type", &self.job_type)
            .field("queue", &self.queue)
            .field("status", &self.status)
            .field("priority", &self.priority)
            .field("attempt", &self.attempt)
            .field("max_attempts", &self.max_attempts)
            .field("batch", &self.batch)
            .field("args", &Redacted(self.args.to_string().len()))
            .field("error_class", &self.error_class)
            .field("error_message", &self.error_message)
            .field("created_at", &self.created_at)
            .field("run_at", &self.run_at)
            .field("ended_at", &self.ended_at)
            .field("worker", &self.worker)
            .finish()
    }
}

/// An attempt that has ended.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct AttemptInfo {
    /// The attempt's number; the first is 1.
    pub attempt: u16,
    /// The attempt's token.
    pub token: i64,
    /// The attempt's outcome.
    pub outcome: Outcome,
    /// The class of the attempt's error.
    pub error_class: Option<String>,
    /// The message of the attempt's error.
    pub error_message: Option<String>,
    /// When the attempt ended.
    pub ended_at: DateTime<Utc>,
    /// How long the attempt took; known of the attempt with which a step succeeded. In JSON, `ran_ms`.
    #[serde(rename = "ran_ms", serialize_with = "as_millis")]
    pub ran: Option<Duration>,
}

impl AttemptInfo {
    /// Creates the information about an attempt of an owned job, from the extension's rows.
    #[doc(hidden)]
    pub fn new(
        attempt: i16,
        token: i64,
        outcome: Outcome,
        ended_at: DateTime<Utc>,
        error: (Option<String>, Option<String>),
        ran: Option<Duration>,
    ) -> Self {
        let (error_class, error_message) = error;
        Self {
            attempt: count(attempt),
            token,
            outcome,
            error_class,
            error_message,
            ended_at,
            ran,
        }
    }
}

fn as_millis<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        .serialize(to)
}

/// A row of the queries `job.sql` and `jobs_list.sql`.
pub(super) struct JobRow {
    pub(super) id: i64,
    pub(super) job_type: String,
    pub(super) queue: String,
    pub(super) status: String,
    pub(super) priority: i16,
    pub(super) attempt: i16,
    pub(super) max_attempts: i16,
    pub(super) batch: Option<i64>,
    pub(super) args: serde_json::Value,
    pub(super) error_class: Option<String>,
    pub(super) error_message: Option<String>,
    pub(super) created_at: DateTime<Utc>,
    pub(super) run_at: DateTime<Utc>,
    pub(super) ended_at: Option<DateTime<Utc>>,
    pub(super) worker: Option<i64>,
}

impl TryFrom<JobRow> for JobInfo {
    type Error = sqlx::Error;

    fn try_from(row: JobRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.id.into(),
            job_type: row.job_type,
            queue: row.queue,
            status: row.status.parse()?,
            priority: row.priority,
            attempt: count(row.attempt),
            max_attempts: count(row.max_attempts),
            batch: row.batch.map(BatchId::from),
            args: row.args,
            error_class: row.error_class,
            error_message: row.error_message,
            created_at: row.created_at,
            run_at: row.run_at,
            ended_at: row.ended_at,
            worker: row.worker,
        })
    }
}

/// Converts a number of attempts, of which the database has no negative ones.
pub(super) fn count(number: i16) -> u16 {
    u16::try_from(number).unwrap_or(0)
}
