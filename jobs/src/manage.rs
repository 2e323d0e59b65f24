//! Looking after jobs: listed, retried, discarded; queues paused; workers shown.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;

use crate::attempt::is_owned;
use crate::{Client, Error, Result, limits};

crate::words! {
    /// Where a job stands.
    JobStatus, "status of a job";
    /// It waits for its time.
    Scheduled = "scheduled",
    /// It waits for a worker.
    Ready = "ready",
    /// A worker has it.
    Running = "running",
    /// It is done, and kept because its worker was told to.
    Succeeded = "succeeded",
    /// It has failed for good.
    Failed = "failed",
    /// It said itself that no attempt would help.
    Discarded = "discarded",
}

crate::words! {
    /// What came of an attempt.
    Outcome, "outcome of an attempt";
    /// It did the work.
    Succeeded = "succeeded",
    /// It did the work, and ended its run early.
    EndedRun = "ended_run",
    /// It failed, and another was to come.
    Retried = "retried",
    /// It failed, and none was left.
    Failed = "failed",
    /// It failed, and none would have helped.
    Discarded = "discarded",
    /// It did not end by itself, and none followed because its run was being cancelled.
    Cancelled = "cancelled",
}

/// A job as it stands in the queue.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct JobInfo {
    /// Its id.
    pub id: i64,
    /// The job type's name.
    pub job_type: String,
    /// Its queue.
    pub queue: String,
    /// Where it stands.
    pub status: JobStatus,
    /// Higher runs first.
    pub priority: i16,
    /// How many attempts have begun.
    pub attempt: i16,
    /// How many may.
    pub max_attempts: i16,
    /// The batch it belongs to.
    pub batch: Option<i64>,
    /// Its data.
    pub args: serde_json::Value,
    /// The class of its last error.
    pub error_class: Option<String>,
    /// What the last error said.
    pub error_message: Option<String>,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// Not before.
    pub run_at: DateTime<Utc>,
    /// When it ended for good.
    pub ended_at: Option<DateTime<Utc>>,
    /// The worker that has it, or had it last.
    pub worker: Option<i64>,
}

impl fmt::Debug for JobInfo {
    /// Without the job's data: a log line is no place for it.
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
            .field(
                "args",
                &crate::redact::Redacted(self.args.to_string().len()),
            )
            .field("error_class", &self.error_class)
            .field("error_message", &self.error_message)
            .field("created_at", &self.created_at)
            .field("run_at", &self.run_at)
            .field("ended_at", &self.ended_at)
            .field("worker", &self.worker)
            .finish()
    }
}

/// An attempt that did not succeed.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct AttemptInfo {
    /// Which one; the first is 1.
    pub attempt: i16,
    /// Its token.
    pub token: i64,
    /// What came of it.
    pub outcome: Outcome,
    /// The error's class.
    pub error_class: Option<String>,
    /// What it said.
    pub error_message: Option<String>,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
}

/// A worker, as it wrote itself down.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// Its id: new for each start.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// The machine it runs on.
    pub host: String,
    /// The process.
    pub pid: i32,
    /// The queues it serves, with their slots.
    pub queues: serde_json::Value,
    /// The job types it knows.
    pub job_types: Vec<String>,
    /// Since when it runs.
    pub started_at: DateTime<Utc>,
    /// Its last sign of life.
    pub seen_at: DateTime<Utc>,
    /// When it stopped in good order.
    pub stopped_at: Option<DateTime<Utc>>,
    /// How many jobs it has.
    pub running: i64,
}

/// Which jobs to list.
#[derive(Debug, Clone, Default)]
#[must_use = "a filter lists nothing by itself"]
pub struct JobFilter {
    status: Option<JobStatus>,
    queue: Option<String>,
    job_type: Option<String>,
    before: Option<i64>,
    limit: Option<u16>,
}

impl JobFilter {
    /// All jobs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Those that stand there.
    pub fn status(mut self, status: JobStatus) -> Self {
        self.status = Some(status);
        self
    }

    /// Those of a queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Those of a type.
    pub fn job_type(mut self, job_type: impl Into<String>) -> Self {
        self.job_type = Some(job_type.into());
        self
    }

    /// Those with smaller ids than this one: give the last of a page to get the next.
    pub fn before(mut self, job: i64) -> Self {
        self.before = Some(job);
        self
    }

    /// At most so many (100 by default; from 1 to 1,000).
    pub fn limit(mut self, limit: u16) -> Self {
        self.limit = Some(limit.clamp(1, 1_000));
        self
    }
}

impl Client {
    /// Jobs, the largest id first: of those that were enqueued, the newest. Steps of runs have ids after
    /// those of their runs, and stand among the others by these.
    ///
    /// # Errors
    ///
    /// When the database cannot be asked.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobInfo>> {
        let rows = sqlx::query_file_as!(
            JobRow,
            "src/sql/jobs_list.sql",
            filter.status.map(JobStatus::as_str),
            filter.queue,
            filter.job_type,
            filter.before,
            i64::from(filter.limit.unwrap_or(100)),
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(JobInfo::try_from)
            .collect::<Result<_, _>>()?)
    }

    /// One job; `None` where it is not there, or not any more.
    ///
    /// # Errors
    ///
    /// When the database cannot be asked.
    pub async fn job(&self, id: i64) -> Result<Option<JobInfo>> {
        let row = sqlx::query_file_as!(JobRow, "src/sql/job.sql", id)
            .fetch_optional(self.pool())
            .await?;
        Ok(row.map(JobInfo::try_from).transpose()?)
    }

    /// A job's attempts that did not succeed, the first one first.
    ///
    /// # Errors
    ///
    /// When the database cannot be asked.
    pub async fn attempts(&self, job: i64) -> Result<Vec<AttemptInfo>> {
        let rows = sqlx::query!(
            "select attempt, token, outcome, error_class, error_message, ended_at
             from pipeline.attempts where job = $1 order by ended_at, token",
            job
        )
        .fetch_all(self.pool())
        .await?;
        let attempts = rows.into_iter().map(|row| {
            Ok(AttemptInfo {
                attempt: row.attempt,
                token: row.token,
                outcome: row.outcome.parse()?,
                error_class: row.error_class,
                error_message: row.error_message,
                ended_at: row.ended_at,
            })
        });
        Ok(attempts.collect::<Result<_, sqlx::Error>>()?)
    }

    /// Gives a job that has failed for good, or was discarded, its attempts again.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`]; [`Error::WrongStatus`] where it has not failed; [`Error::KeyTaken`] where a
    /// live job has its unique key by now; [`Error::Busy`] if another transaction held the job's row for
    /// thirty seconds.
    pub async fn retry(&self, job: i64) -> Result<()> {
        no_step(job)?;
        let outcome = loop {
            let change = self.change(format!("job {job}"), "retried");
            let retry = async |connection: &mut PgConnection| {
                sqlx::query!(
                    "select result, key, holder from pipeline.retry_job_v1($1)",
                    job
                )
                .fetch_one(connection)
                .await
            };
            match change.make(self.pool(), retry).await {
                // Its key was taken at this very moment: now it can be seen by whom.
                Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {}
                outcome => break outcome.map_err(|error| change.error(error))?,
            }
        };
        if let (Some(key), Some(by)) = (outcome.key, outcome.holder) {
            return Err(Error::KeyTaken { id: job, key, by });
        }
        let said = outcome.result.as_deref();
        changed(job, said, "failed or discarded", "retried")
    }

    /// Deletes a job that is over, or that nobody has taken yet.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`]; [`Error::WrongStatus`] where it is running; [`Error::Busy`] if another
    /// transaction held the job's row for thirty seconds.
    pub async fn discard(&self, job: i64) -> Result<()> {
        no_step(job)?;
        let change = self.change(format!("job {job}"), "discarded");
        let discard = async |connection: &mut PgConnection| {
            sqlx::query_scalar!("select pipeline.delete_job_v1($1)", job)
                .fetch_one(connection)
                .await
        };
        let outcome = change.make(self.pool(), discard).await;
        let outcome = outcome.map_err(|error| change.error(error))?;
        changed(job, outcome.as_deref(), "waiting or ended", "discarded")
    }

    /// Keeps workers from claiming jobs of this queue. What runs, runs on.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::Busy`] if another transaction held the queue's row for thirty seconds;
    /// when the database refuses.
    pub async fn pause(&self, queue: &str) -> Result<()> {
        limits::name("queue", queue)?;
        let change = self.change(format!("queue `{queue}`"), "paused");
        let pause = async |connection: &mut PgConnection| {
            sqlx::query!(
                "insert into pipeline.queues (name, paused_at) values ($1, pipeline.now())
                 on conflict (name) do update
                 set paused_at = coalesce(pipeline.queues.paused_at, excluded.paused_at)",
                queue
            )
            .execute(connection)
            .await
        };
        let outcome = change.make(self.pool(), pause).await;
        outcome.map_err(|error| change.error(error))?;
        Ok(())
    }

    /// Lets workers claim jobs of this queue again.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::Busy`] if another transaction held the queue's row for thirty seconds;
    /// when the database refuses.
    pub async fn resume(&self, queue: &str) -> Result<()> {
        limits::name("queue", queue)?;
        let change = self.change(format!("queue `{queue}`"), "resumed");
        let resume = async |connection: &mut PgConnection| {
            sqlx::query!(
                "with resumed as (update pipeline.queues set paused_at = null where name = $1)
                 select pipeline.notify_queues_v1(array[$1::text], pipeline.now())",
                queue
            )
            .execute(connection)
            .await
        };
        let outcome = change.make(self.pool(), resume).await;
        outcome.map_err(|error| change.error(error))?;
        Ok(())
    }

    /// The workers there are and were in the last day, the newest first.
    ///
    /// # Errors
    ///
    /// When the database cannot be asked.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>> {
        Ok(sqlx::query_file_as!(WorkerInfo, "src/sql/workers.sql")
            .fetch_all(self.pool())
            .await?)
    }
}

/// What a function that changes one job said: `done`, nothing, or the status that forbids it.
/// A step of a run is the run's to end: its row in the queue is only its delivery.
fn no_step(job: i64) -> Result<()> {
    if is_owned(job) {
        return Err(Error::JobOfRun { id: job });
    }
    Ok(())
}

fn changed(id: i64, said: Option<&str>, needed: &'static str, asked: &'static str) -> Result<()> {
    match said {
        Some("done") => Ok(()),
        None => Err(Error::NotFound { what: "job", id }),
        Some(status) => Err(Error::WrongStatus {
            id,
            status: status.to_owned(),
            needed,
            asked,
        }),
    }
}

struct JobRow {
    id: i64,
    job_type: String,
    queue: String,
    status: String,
    priority: i16,
    attempt: i16,
    max_attempts: i16,
    batch: Option<i64>,
    args: serde_json::Value,
    error_class: Option<String>,
    error_message: Option<String>,
    created_at: DateTime<Utc>,
    run_at: DateTime<Utc>,
    ended_at: Option<DateTime<Utc>>,
    worker: Option<i64>,
}

impl TryFrom<JobRow> for JobInfo {
    type Error = sqlx::Error;

    fn try_from(row: JobRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.id,
            job_type: row.job_type,
            queue: row.queue,
            status: row.status.parse()?,
            priority: row.priority,
            attempt: row.attempt,
            max_attempts: row.max_attempts,
            batch: row.batch,
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
