//! Waiting for the end of a run.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::output::Returned;
use super::{Client, Run};
use crate::{Error, Result, RunId, RunStatus};

/// How long somebody who waits no longer asks how the run stands.
const GLANCE: Duration = Duration::from_secs(2);

/// Waits for the end of a run when awaited.
#[derive(Debug, Clone)]
#[must_use = "it waits when this is awaited"]
pub struct Wait {
    client: Client,
    run: RunId,
    limit: Option<Duration>,
}

impl<O> Run<O> {
    /// Waits until the run has ended, and returns how; at once where it has.
    ///
    /// All who wait in a process, on one client and its clones, share one connection, which is not one
    /// of your pool. A database that cannot be reached is waited for. To give up, drop it.
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
    /// [`Error::NoRun`], also where the transaction that starts it is not committed yet;
    /// [`Error::Timeout`]; when the database refuses.
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
    /// Waits no longer than this: then it is [`Error::Timeout`], which says where the run stands if the
    /// database says so at once.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    pub(super) async fn ended(&self) -> Result<Ended> {
        let shared = &self.client.shared;
        loop {
            let database = shared.remembered.database();
            let mut place = shared
                .waiters
                .join(self.client.pool(), database, self.run.get());
            match place.told().await {
                Ok(told) => {
                    let status = told.status.ok_or(Error::NoRun(self.run))?;
                    let returned = told.returned;
                    return Ok(Ended { status, returned });
                }
                // Nobody listens any more. If that is because the database refuses, it says so here.
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
            Err(_) => match tokio::time::timeout(GLANCE, self.client.status(self.run)).await {
                Ok(Ok(status)) if status.is_ended() => Ok(status),
                Ok(Err(error @ Error::NoRun(_))) => Err(error),
                status => Err(Error::Timeout {
                    run: self.run,
                    limit,
                    status: status.ok().and_then(Result::ok),
                }),
            },
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
