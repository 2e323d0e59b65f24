//! Assertions about jobs and batches.

#![allow(clippy::panic, reason = "a failed assertion fails the test")]

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use jobs::extension::redact::Redacted;
use jobs::{Batch, BatchState, Job, JobStatus};
use serde::de::DeserializeOwned;

use super::Harness;
use crate::Result;

impl Harness {
    /// Reads the state of a job, to check it. A check that fails panics at the test's own line, and shows the job.
    ///
    /// # Errors
    ///
    /// [`jobs::Error::NoJob`] if the job does not exist; an error of the database.
    pub async fn assert_job(&self, id: jobs::JobId) -> Result<JobAssert> {
        let mut found = self.find_jobs(Some(id.get()), None).await?;
        match found.pop() {
            Some(job) => Ok(JobAssert { job }),
            None => Err(jobs::Error::NoJob { id }.into()),
        }
    }

    /// Reads all jobs of a type that are not steps of runs, to check them: jobs that wait, run or have ended, of
    /// batches, and callbacks. A check that fails panics at the test's own line, and shows the jobs.
    ///
    /// ```no_run
    /// # use pipeline::jobs::{self, Context, Job, JobError, Perform};
    /// # use pipeline::testing::Harness;
    /// # use serde::{Deserialize, Serialize};
    /// # use std::time::Duration;
    /// # #[derive(Debug, PartialEq, Serialize, Deserialize, Job)]
    /// # struct Welcome { user: u64 }
    /// # impl Perform for Welcome {
    /// #     type Input = ();
    /// #     type Output = ();
    /// #     async fn perform(self, (): (), _: &Context) -> Result<(), JobError> { Ok(()) }
    /// # }
    /// # async fn example(harness: Harness) -> Result<(), Box<dyn std::error::Error>> {
    /// harness
    ///     .assert_jobs::<Welcome>()
    ///     .await?
    ///     .with(|job| job.user == 7)
    ///     .only()
    ///     .queue("mail")
    ///     .due_in(Duration::from_secs(60));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// An error of the database.
    pub async fn assert_jobs<J: Job>(&self) -> Result<JobsAssert<J>> {
        let jobs = self.find_jobs(None, Some(J::NAME)).await?;
        Ok(JobsAssert {
            jobs,
            job_type: PhantomData,
        })
    }

    /// Reads the state of a batch, to check it. A check that fails panics at the test's own line, and shows the batch.
    ///
    /// # Errors
    ///
    /// [`jobs::Error::NoBatch`] if the batch does not exist; an error of the database.
    pub async fn assert_batch(&self, batch: &Batch) -> Result<BatchAssert> {
        let state = batch.state().await?;
        Ok(BatchAssert {
            label: format!("batch {}", batch.id()),
            state,
        })
    }

    async fn find_jobs(&self, id: Option<i64>, job_type: Option<&str>) -> Result<Vec<JobRow>> {
        let rows = sqlx::query_file!("src/sql/testing_jobs.sql", id, job_type)
            .fetch_all(self.client.pool())
            .await?;
        let count = |count: i16| u16::try_from(count).unwrap_or(0);
        let jobs = rows.into_iter().map(|row| {
            Ok(JobRow {
                id: row.id,
                job_type: row.job_type,
                queue: row.queue,
                status: row.status.parse().map_err(sqlx::Error::from)?,
                priority: row.priority,
                attempt: count(row.attempt),
                max_attempts: count(row.max_attempts),
                batch: row.batch,
                key: row.key,
                args: row.args,
                error: row.error_class.zip(row.error_message),
                wait: Duration::from_millis(u64::try_from(row.wait_ms).unwrap_or(0)),
            })
        });
        jobs.collect()
    }
}

/// The row of a job.
struct JobRow {
    id: i64,
    job_type: String,
    queue: String,
    status: JobStatus,
    priority: i16,
    attempt: u16,
    max_attempts: u16,
    batch: Option<i64>,
    key: Option<String>,
    /// The job's data as JSON.
    args: String,
    /// The class and the message of the last error.
    error: Option<(String, String)>,
    /// The time until the job is due.
    wait: Duration,
}

impl JobRow {
    #[track_caller]
    fn args<J: DeserializeOwned>(&self) -> J {
        match serde_json::from_str(&self.args) {
            Ok(job) => job,
            Err(error) => panic!(
                "the data of job {} is not a `{}`: {error}\n\n{self}",
                self.id,
                std::any::type_name::<J>()
            ),
        }
    }
}

impl fmt::Debug for JobRow {
    /// Leaves out the job's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}, data of {:?}", Redacted(self.args.len()))
    }
}

impl fmt::Display for JobRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "job {} of `{}`: {} in queue `{}`, priority {}, attempt {} of {}",
            self.id,
            self.job_type,
            self.status,
            self.queue,
            self.priority,
            self.attempt,
            self.max_attempts
        )?;
        if self.status == JobStatus::Scheduled {
            write!(f, ", due in {:?}", self.wait)?;
        }
        if let Some(key) = &self.key {
            write!(f, ", key `{key}`")?;
        }
        if let Some(batch) = self.batch {
            write!(f, ", batch {batch}")?;
        }
        if let Some((class, message)) = &self.error {
            write!(f, ", {class}: {message}")?;
        }
        Ok(())
    }
}

/// Checks the state of a job. Created by [`Harness::assert_job`] and [`JobsAssert::only`].
#[derive(Debug)]
pub struct JobAssert {
    job: JobRow,
}

impl JobAssert {
    #[track_caller]
    fn fail(&self, what: fmt::Arguments<'_>) -> ! {
        panic!("job {} {what}\n\n{}", self.job.id, self.job)
    }

    /// Checks that the job has this status.
    #[track_caller]
    pub fn status(self, wanted: JobStatus) -> Self {
        let status = self.job.status;
        if status != wanted {
            self.fail(format_args!("is {status}, and should be {wanted}"));
        }
        self
    }

    /// Checks that the job waits for a worker.
    #[track_caller]
    pub fn ready(self) -> Self {
        self.status(JobStatus::Ready)
    }

    /// Checks that the job waits for its time: its delay, or the backoff of a retry.
    #[track_caller]
    pub fn scheduled(self) -> Self {
        self.status(JobStatus::Scheduled)
    }

    /// Checks that the job has succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        self.status(JobStatus::Succeeded)
    }

    /// Checks that the job has failed after its last attempt.
    #[track_caller]
    pub fn failed(self) -> Self {
        self.status(JobStatus::Failed)
    }

    /// Checks that the job has discarded itself.
    #[track_caller]
    pub fn discarded(self) -> Self {
        self.status(JobStatus::Discarded)
    }

    /// Checks that the job has failed or discarded itself, with an error of this class.
    #[track_caller]
    pub fn failed_with(self, class: &str) -> Self {
        if !matches!(self.job.status, JobStatus::Failed | JobStatus::Discarded) {
            let status = self.job.status;
            self.fail(format_args!(
                "is {status}, and should have failed with {class}"
            ));
        }
        match &self.job.error {
            Some((found, _)) if found == class => {}
            Some((found, _)) => self.fail(format_args!(
                "failed with {found}, and should have failed with {class}"
            )),
            None => self.fail(format_args!(
                "failed without an error, and should have failed with {class}"
            )),
        }
        self
    }

    /// Checks that the message of the job's last error contains a text.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        match &self.job.error {
            Some((_, message)) if message.contains(text) => {}
            Some((_, message)) => self.fail(format_args!(
                "has the error `{message}`, which should contain `{text}`"
            )),
            None => self.fail(format_args!(
                "has no error, and should have one that contains `{text}`"
            )),
        }
        self
    }

    /// Checks how many attempts have begun.
    #[track_caller]
    pub fn attempts(self, wanted: u16) -> Self {
        let attempt = self.job.attempt;
        if attempt != wanted {
            self.fail(format_args!(
                "has begun {attempt} attempts, and should have begun {wanted}"
            ));
        }
        self
    }

    /// Checks the job's queue.
    #[track_caller]
    pub fn queue(self, wanted: &str) -> Self {
        if self.job.queue != wanted {
            self.fail(format_args!(
                "is in queue `{}`, and should be in `{wanted}`",
                self.job.queue
            ));
        }
        self
    }

    /// Checks the job's priority.
    #[track_caller]
    pub fn priority(self, wanted: i16) -> Self {
        let priority = self.job.priority;
        if priority != wanted {
            self.fail(format_args!(
                "has priority {priority}, and should have {wanted}"
            ));
        }
        self
    }

    /// Checks the job's key.
    #[track_caller]
    pub fn key(self, wanted: &str) -> Self {
        match &self.job.key {
            Some(key) if key == wanted => {}
            Some(key) => self.fail(format_args!(
                "has the key `{key}`, and should have `{wanted}`"
            )),
            None => self.fail(format_args!("has no key, and should have `{wanted}`")),
        }
        self
    }

    /// Checks that the job is scheduled, and due after this time by the database's clock.
    #[track_caller]
    pub fn due_in(self, wanted: Duration) -> Self {
        let job = self.scheduled();
        let wait = job.job.wait;
        if wait != wanted {
            job.fail(format_args!(
                "is due in {wait:?}, and should be due in {wanted:?}"
            ));
        }
        job
    }

    /// Checks that the job belongs to a batch.
    #[track_caller]
    pub fn in_batch(self, wanted: &Batch) -> Self {
        if self.job.batch != Some(wanted.id().get()) {
            self.fail(format_args!(
                "is not in batch {}, and should be",
                wanted.id()
            ));
        }
        self
    }

    /// Checks the job's data.
    #[track_caller]
    pub fn with_args<J: Job + DeserializeOwned + PartialEq + fmt::Debug>(self, wanted: &J) -> Self {
        let args = self.args::<J>();
        if args != *wanted {
            self.fail(format_args!("is {args:?}, and should be {wanted:?}"));
        }
        self
    }

    /// Returns the job's data.
    #[track_caller]
    pub fn args<J: Job + DeserializeOwned>(&self) -> J {
        self.job.args()
    }
}

/// Checks the jobs of one type. Created by [`Harness::assert_jobs`].
#[derive(Debug)]
pub struct JobsAssert<J> {
    jobs: Vec<JobRow>,
    job_type: PhantomData<fn() -> J>,
}

impl<J: Job> JobsAssert<J> {
    /// Keeps only the jobs that have not ended: scheduled, ready and running ones.
    pub fn enqueued(mut self) -> Self {
        self.jobs.retain(|job| {
            matches!(
                job.status,
                JobStatus::Scheduled | JobStatus::Ready | JobStatus::Running
            )
        });
        self
    }

    /// Keeps only the jobs whose data meets a condition.
    #[track_caller]
    pub fn with(mut self, condition: impl Fn(&J) -> bool) -> Self
    where
        J: DeserializeOwned,
    {
        // No closure here: a panic in a closure does not point at the caller.
        let mut kept = Vec::new();
        for job in self.jobs {
            if condition(&job.args()) {
                kept.push(job);
            }
        }
        self.jobs = kept;
        self
    }

    /// Checks the number of jobs.
    #[track_caller]
    pub fn count(self, wanted: usize) -> Self {
        if self.jobs.len() != wanted {
            self.fail(format_args!("there should be {wanted}"));
        }
        self
    }

    /// Checks that there is no job.
    #[track_caller]
    pub fn none(self) {
        self.count(0);
    }

    /// Checks that there is exactly one job, and returns it, to check it.
    #[track_caller]
    pub fn only(mut self) -> JobAssert {
        match (self.jobs.pop(), self.jobs.is_empty()) {
            (Some(job), true) => JobAssert { job },
            (last, _) => {
                self.jobs.extend(last);
                self.fail(format_args!("there should be exactly one"))
            }
        }
    }

    /// Returns the data of the jobs.
    #[track_caller]
    pub fn args(&self) -> Vec<J>
    where
        J: DeserializeOwned,
    {
        let mut args = Vec::new();
        for job in &self.jobs {
            args.push(job.args());
        }
        args
    }

    #[track_caller]
    fn fail(&self, what: fmt::Arguments<'_>) -> ! {
        let listed: String = self.jobs.iter().map(|job| format!("\n  {job}")).collect();
        panic!(
            "{} jobs of `{}`, and {what}\n{listed}",
            self.jobs.len(),
            J::NAME
        )
    }
}

/// Checks the state of a batch. Created by [`Harness::assert_batch`].
#[derive(Debug)]
pub struct BatchAssert {
    label: String,
    state: BatchState,
}

impl BatchAssert {
    #[track_caller]
    fn fail(&self, what: fmt::Arguments<'_>) -> ! {
        panic!("{} {what}\n\n{self}", self.label)
    }

    #[track_caller]
    fn number(self, what: &str, found: i64, wanted: u32) -> Self {
        if found != i64::from(wanted) {
            self.fail(format_args!("has {found} {what}, and should have {wanted}"));
        }
        self
    }

    /// Checks that jobs can still be added to the batch.
    #[track_caller]
    pub fn open(self) -> Self {
        if self.state.sealed || self.state.finished {
            self.fail(format_args!("is closed, and should be open"));
        }
        self
    }

    /// Checks that all jobs of the batch have ended, and its callback was enqueued.
    #[track_caller]
    pub fn finished(self) -> Self {
        if !self.state.finished {
            self.fail(format_args!("has not finished"));
        }
        self
    }

    /// Checks that jobs of the batch have not ended, or can still be added.
    #[track_caller]
    pub fn unfinished(self) -> Self {
        if self.state.finished {
            self.fail(format_args!("has finished, and should not have"));
        }
        self
    }

    /// Checks the number of jobs in the batch.
    #[track_caller]
    pub fn total(self, wanted: u32) -> Self {
        let found = i64::from(self.state.total);
        self.number("jobs", found, wanted)
    }

    /// Checks the number of jobs that have succeeded.
    #[track_caller]
    pub fn succeeded(self, wanted: u32) -> Self {
        let found = i64::from(self.state.ended) - i64::from(self.state.failed);
        self.number("succeeded jobs", found, wanted)
    }

    /// Checks the number of jobs that have failed without further retries.
    #[track_caller]
    pub fn failed(self, wanted: u32) -> Self {
        let found = i64::from(self.state.failed);
        self.number("failed jobs", found, wanted)
    }
}

impl fmt::Display for BatchAssert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BatchState {
            total,
            ended,
            failed,
            ..
        } = self.state;
        let state = match (self.state.finished, self.state.sealed) {
            (true, _) => "finished",
            (_, true) => "sealed",
            _ => "open",
        };
        let label = &self.label;
        write!(
            f,
            "{label}: {state}, {total} jobs, {ended} ended, {failed} failed"
        )
    }
}
