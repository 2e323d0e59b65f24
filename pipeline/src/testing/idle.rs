//! Running jobs until nothing is left to do.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Harness;
use crate::{Error, Result};

/// How often the harness asks the database whether something is left to do.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The jobs that were left when nothing more could be done.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Idle {
    /// The jobs that wait for a time, in a paused queue, or at a held step: by the time at which they are due, and
    /// at most a thousand.
    pub waiting: Vec<Waiting>,
}

impl Idle {
    /// Returns whether no job is left.
    pub fn is_done(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the time until the next job is due; `None` if no job waits for a time.
    pub fn next_due(&self) -> Option<Duration> {
        self.waiting.iter().find_map(|job| job.due_in)
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_done() {
            return f.write_str("nothing is left to do");
        }
        for (at, job) in self.waiting.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{job}")?;
        }
        Ok(())
    }
}

/// A job that has not ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Waiting {
    /// The job's id.
    pub job: jobs::JobId,
    /// The name of the job's type.
    pub job_type: String,
    /// The job's queue.
    pub queue: String,
    /// The run of which the job is a step.
    pub run: Option<crate::RunId>,
    /// The key of that step.
    pub step: Option<String>,
    /// How many attempts have begun.
    pub attempt: u16,
    /// How many attempts may begin.
    pub max_attempts: u16,
    /// The time until the job is due: its delay, or the backoff of a retry. `None` for a job in a paused queue, a
    /// job of a held step, and a job that runs.
    pub due_in: Option<Duration>,
    /// Whether the test [holds](Harness::hold_step) the step.
    pub is_held: bool,
    /// The class and the message of the job's last error, if the job waits for a retry.
    pub error: Option<(String, String)>,
    /// The status of the job's row.
    status: String,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.step, self.run) {
            (Some(step), Some(run)) => {
                write!(f, "step `{step}` of run {run} (`{}`)", self.job_type)?;
            }
            _ => write!(f, "job {} (`{}`)", self.job, self.job_type)?,
        }
        match self.due_in {
            Some(due) => write!(f, " is due in {due:?}")?,
            None if self.is_held => f.write_str(" is held by the test")?,
            None => write!(f, " is {} in queue `{}`", self.status, self.queue)?,
        }
        let (attempt, max) = (self.attempt, self.max_attempts);
        write!(f, ", {attempt} of {max} attempts begun")?;
        if let Some((class, message)) = &self.error {
            write!(f, ", last {class}: {message}")?;
        }
        Ok(())
    }
}

/// One call of the harness that runs jobs.
#[derive(Debug, Clone, Copy)]
struct Call {
    /// Whether to move the clock to the next job or deadline when nothing else can be done.
    skips_waits: bool,
    at: &'static Location<'static>,
}

impl Harness {
    /// Runs jobs and steps of all queues, and everything that follows from them, until no job is ready and none
    /// runs. Jobs that wait for a time stay: they are listed in the returned value.
    /// [`advance`](Self::advance) the clock and run again, or call [`skip_waits`](Self::skip_waits).
    ///
    /// # Errors
    ///
    /// [`Error::NotRegistered`] for a job whose type the harness does not know; [`Error::FakeWithoutStep`] and
    /// [`Error::HoldWithoutStep`] for a key that no step has; [`Error::NotIdle`] if the jobs take longer than the
    /// [limit](super::Setup::limit).
    #[track_caller]
    pub fn run_until_idle(&self) -> impl Future<Output = Result<Idle>> + Send + '_ {
        self.run(Call {
            skips_waits: false,
            at: Location::caller(),
        })
    }

    /// Runs jobs until none is left, and moves the clock whenever all of them wait for a time: to the next time at
    /// which a job is due or the deadline of a run passes, whichever comes first. Only jobs in paused queues and of
    /// held steps stay.
    ///
    /// # Errors
    ///
    /// The errors of [`run_until_idle`](Self::run_until_idle).
    #[track_caller]
    pub fn skip_waits(&self) -> impl Future<Output = Result<Idle>> + Send + '_ {
        self.run(Call {
            skips_waits: true,
            at: Location::caller(),
        })
    }

    async fn run(&self, call: Call) -> Result<Idle> {
        self.check_keys().await?;
        let worker = self.worker().into_jobs();
        let known = worker.registered_types();
        // Dropped with this future, which stops the worker, too.
        let (stop, stopped) = oneshot::channel::<()>();
        let mut worker = tokio::spawn(worker.run_until(async {
            let _ = stopped.await;
        }));
        let outcome = tokio::select! {
            outcome = self.watch(call, &known) => outcome,
            ended = &mut worker => return Err(match ended {
                Ok(Err(error)) => error.into(),
                _ => Error::Jobs(jobs::Error::EngineTaskFailed {
                    worker: super::WORKER_NAME.to_owned(),
                    task: "worker",
                }),
            }),
        };
        let _ = stop.send(());
        let _ = worker.await;
        let idle = outcome?;
        // Pipelines that were started meanwhile have been seen by now.
        self.check_keys().await?;
        Ok(idle)
    }

    async fn watch(&self, call: Call, known: &[String]) -> Result<Idle> {
        let since = Instant::now();
        loop {
            let held = self.holds.waiting();
            let found = sqlx::query_file!("src/sql/testing_busy.sql", known, &held)
                .fetch_one(self.client.pool())
                .await?;
            if let Some(job_types) = found.unknown {
                let at = call.at;
                return Err(Error::NotRegistered { job_types, at });
            }
            // Held jobs may have all the slots: then nothing else can run.
            let can_claim = held.len() < usize::try_from(self.slots).unwrap_or(usize::MAX);
            let is_busy = found.running > 0 || found.ready > 0 && can_claim;
            // A job that was released meanwhile runs, and was not counted.
            let is_released = held.iter().any(|job| !self.holds.waiting().contains(job));
            if !is_busy && !is_released {
                let idle = self.left(&held).await?;
                match idle.next_due() {
                    Some(due) if call.skips_waits => {
                        let deadline = found.deadline_ms.map(millis);
                        self.advance(deadline.map_or(due, |it| it.min(due))).await?;
                    }
                    _ => return Ok(idle),
                }
            }
            if since.elapsed() > self.limit {
                return Err(Error::NotIdle {
                    limit: self.limit,
                    left: self.left(&held).await?,
                    at: call.at,
                });
            }
            tokio::time::sleep(IDLE_CHECK_INTERVAL).await;
        }
    }

    /// Returns the jobs that have not ended.
    async fn left(&self, held: &[i64]) -> Result<Idle> {
        let rows = sqlx::query_file!("src/sql/testing_waiting.sql")
            .fetch_all(self.client.pool())
            .await?;
        let count = |count: i16| u16::try_from(count).unwrap_or(0);
        let waiting = rows.into_iter().map(|row| Waiting {
            job: row.id.into(),
            job_type: row.job_type,
            queue: row.queue,
            run: row.run.map(crate::RunId::from),
            step: row.step,
            attempt: count(row.attempt),
            max_attempts: count(row.max_attempts),
            due_in: (row.status == "scheduled").then(|| millis(row.wait_ms)),
            is_held: held.contains(&row.id),
            error: row.error_class.zip(row.error_message),
            status: row.status,
        });
        Ok(Idle {
            waiting: waiting.collect(),
        })
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
