//! Running what there is to do, until nothing is left.

use std::fmt;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Harness;
use crate::{Error, Result};

/// How often the database is asked whether something is left to do.
const LOOK: Duration = Duration::from_millis(5);

/// What was left when nothing more could be done.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Idle {
    /// Jobs that wait for a time, or in a queue that is paused; the first to come is the first here, and
    /// a thousand at the most.
    pub waiting: Vec<Waiting>,
}

impl Idle {
    /// Whether nothing waits for a time either.
    pub fn is_done(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Until the next job is due; `None` where none waits for a time.
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
    /// Its id.
    pub job: jobs::JobId,
    /// The name of its type.
    pub kind: String,
    /// Its queue.
    pub queue: String,
    /// The run that it is a step of.
    pub run: Option<crate::RunId>,
    /// The key of that step.
    pub step: Option<String>,
    /// How many attempts have begun.
    pub attempt: u16,
    /// How many may.
    pub attempts: u16,
    /// Until it is due: its delay, or the backoff of a retry. `None` for one that waits in a paused queue,
    /// or runs.
    pub due_in: Option<Duration>,
    /// Class and message of its last error: it waits to be tried again.
    pub error: Option<(String, String)>,
    /// As the queue has it.
    status: String,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.step, self.run) {
            (Some(step), Some(run)) => write!(f, "step `{step}` of run {run} (`{}`)", self.kind)?,
            _ => write!(f, "job {} (`{}`)", self.job, self.kind)?,
        }
        match self.due_in {
            Some(due) => write!(f, " is due in {due:?}")?,
            None => write!(f, " is {} in queue `{}`", self.status, self.queue)?,
        }
        write!(f, ", {} of {} attempts begun", self.attempt, self.attempts)?;
        if let Some((class, message)) = &self.error {
            write!(f, ", last {class}: {message}")?;
        }
        Ok(())
    }
}

impl Harness {
    /// Runs jobs and steps of all queues, and all that follows from them, until nothing is ready and
    /// nothing runs. What waits for a time is not waited for: it is in what this returns;
    /// [`advance`](Self::advance) the clock and run again, or [`skip_waits`](Self::skip_waits).
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchJob`] for a job of a type that the harness was not told of; [`Error::NotIdle`] when it
    /// takes longer than the [limit](super::Setup::limit).
    pub async fn run_until_idle(&self) -> Result<Idle> {
        self.run(false).await
    }

    /// The same, and whenever nothing can be done jumps to the time when the next job is due: nothing is
    /// left then but what is in paused queues.
    ///
    /// # Errors
    ///
    /// Those of [`run_until_idle`](Self::run_until_idle).
    pub async fn skip_waits(&self) -> Result<Idle> {
        self.run(true).await
    }

    async fn run(&self, skip: bool) -> Result<Idle> {
        let worker = self.worker().into_jobs();
        let kinds = worker.registered_types();
        // Dropped with this future, which stops the worker, too.
        let (stop, stopped) = oneshot::channel::<()>();
        let mut worker = tokio::spawn(worker.run_until(async {
            let _ = stopped.await;
        }));
        let outcome = tokio::select! {
            outcome = self.watch(skip, &kinds) => outcome,
            ended = &mut worker => return Err(match ended {
                Ok(Err(error)) => error.into(),
                _ => jobs::Error::Worker(
                    "the worker of the harness ended by itself: look for a panic in what it logged",
                )
                .into(),
            }),
        };
        let _ = stop.send(());
        let _ = worker.await;
        outcome
    }

    async fn watch(&self, skip: bool, kinds: &[String]) -> Result<Idle> {
        let since = Instant::now();
        loop {
            let found = sqlx::query_file!("src/sql/testing_busy.sql", kinds)
                .fetch_one(self.client.pool())
                .await?;
            if let Some(kinds) = found.unknown {
                return Err(Error::NoSuchJob {
                    kinds: kinds.join("`, `"),
                });
            }
            if found.busy == 0 {
                let idle = self.left().await?;
                match idle.next_due() {
                    Some(due) if skip => self.advance(due).await?,
                    _ => return Ok(idle),
                }
            }
            if since.elapsed() > self.limit {
                return Err(Error::NotIdle {
                    limit: self.limit,
                    left: self.left().await?.to_string(),
                });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What has not ended.
    async fn left(&self) -> Result<Idle> {
        let rows = sqlx::query_file!("src/sql/testing_waiting.sql")
            .fetch_all(self.client.pool())
            .await?;
        let count = |count: i16| u16::try_from(count).unwrap_or(0);
        let waiting = rows.into_iter().map(|row| Waiting {
            job: row.id.into(),
            kind: row.job_type,
            queue: row.queue,
            run: row.run.map(crate::RunId::from),
            step: row.step,
            attempt: count(row.attempt),
            attempts: count(row.max_attempts),
            due_in: (row.status == "scheduled")
                .then(|| Duration::from_millis(u64::try_from(row.wait_ms).unwrap_or(0))),
            error: row.error_class.zip(row.error_message),
            status: row.status,
        });
        Ok(Idle {
            waiting: waiting.collect(),
        })
    }
}
