//! Waits for the end of a run.

use std::convert::Infallible;
use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::extension::RunningJob;

use super::output::Returned;
use super::{Client, Run};
use crate::{Error, Result, RunId, RunStatus};

/// The maximum time to read the run's status after a timeout.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a job may wait for a run before the slots of the job's queue are checked, and how often they are.
const SLOT_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Waits for the end of a run when awaited.
#[derive(Debug, Clone)]
#[must_use = "a wait begins when this is awaited"]
pub struct Wait {
    client: Client,
    run: RunId,
    limit: Option<Duration>,
}

impl<O> Run<O> {
    /// Waits until the run has ended, and returns its status; returns at once if the run has ended already.
    ///
    /// All waits of a client and its clones share one connection, which is not part of the application's pool. If the
    /// database cannot be reached, the wait goes on. Drop the future to stop waiting.
    ///
    /// A job must not wait for a run whose jobs need the slot that the job holds: if all slots of a queue wait like
    /// this, nothing runs any more. Return from the job instead, and chain the work that follows: [`Run::then`]. A
    /// wait of several seconds inside a job that holds the last free slot is logged as a warning.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use pipeline::{Run, RunStatus};
    /// # async fn example(run: Run) -> pipeline::Result<()> {
    /// if run.wait().timeout(Duration::from_secs(60)).await? != RunStatus::Succeeded {
    ///     eprintln!("{:?}", run.state().await?.steps);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoRun`] if the run does not exist, also while the transaction that starts it is open;
    /// [`Error::Timeout`] after a [`timeout`](Wait::timeout).
    pub fn wait(&self) -> Wait {
        Wait {
            client: self.client().clone(),
            run: self.id(),
            limit: None,
        }
    }
}

/// The end of a run that exists.
pub(super) struct Ended {
    status: RunStatus,
    pub(super) returned: Option<Returned>,
}

impl Wait {
    /// Sets the maximum time to wait. After it the wait returns [`Error::Timeout`], with the run's status if the
    /// database answers in time.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    pub(super) async fn ended(&self) -> Result<Ended> {
        tokio::select! {
            biased;
            ended = self.run_end() => ended,
            never = warn_of_full_queue(self.run) => match never {},
        }
    }

    async fn run_end(&self) -> Result<Ended> {
        let shared = &self.client.shared;
        loop {
            let database = shared.id_cache.database();
            let mut waiter = shared
                .waiters
                .register(self.client.pool(), database, self.run.get());
            match waiter.end().await {
                Ok(end) => {
                    let status = end.status.ok_or(Error::NoRun(self.run))?;
                    let returned = end.returned;
                    return Ok(Ended { status, returned });
                }
                // The listener has ended. If the database refuses connections, this query returns its error.
                Err(_) => {
                    let status = self.client.status(self.run).await?;
                    if status.is_ended() {
                        let returned = None;
                        return Ok(Ended { status, returned });
                    }
                }
            }
        }
    }

    async fn ended_in_time(&self, limit: Duration) -> Result<RunStatus> {
        match tokio::time::timeout(limit, self.ended()).await {
            Ok(ended) => Ok(ended?.status),
            Err(_) => {
                match tokio::time::timeout(STATUS_TIMEOUT, self.client.status(self.run)).await {
                    Ok(Ok(status)) if status.is_ended() => Ok(status),
                    Ok(Err(error @ Error::NoRun(_))) => Err(error),
                    status => Err(Error::Timeout {
                        run: self.run,
                        limit,
                        status: status.ok().and_then(Result::ok),
                    }),
                }
            }
        }
    }
}

impl IntoFuture for Wait {
    type Output = Result<RunStatus>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.limit {
                Some(limit) => self.ended_in_time(limit).await,
                None => Ok(self.ended().await?.status),
            }
        })
    }
}

/// Warns once if the current task performs a job of a worker of this process, and no slot of the job's queue is free:
/// if the run needs a slot of the same queue, the job waits for ever.
async fn warn_of_full_queue(run: RunId) -> Infallible {
    if let Some(task) = tokio::task::try_id() {
        loop {
            tokio::time::sleep(SLOT_CHECK_INTERVAL).await;
            let Some(job) = RunningJob::of_task(task) else {
                break;
            };
            if job.free_slots == 0 {
                tracing::warn!(
                    run.id = run.get(),
                    job.id = job.id,
                    job.type = job.job_type,
                    queue = job.queue,
                    slots = job.slots,
                    "job waits for a run while it holds the last slot of its queue: if the run needs this queue, \
                     neither ends; return from the job and chain the work that follows with `Run::then`, or give the \
                     steps of the run another queue"
                );
                break;
            }
        }
    }
    std::future::pending().await
}
