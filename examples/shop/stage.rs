//! Where examples run: a database of their own, and a worker beside them.

use std::time::Duration;

use pipeline::{Client, Worker};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{Home, Result};

/// Tells a story with a client, and with a worker beside it that serves every queue. The database is
/// its own, on the private server or the one that `DATABASE_URL` names; it is gone afterwards.
///
/// # Errors
///
/// The story's own; else what went wrong before or after it.
pub async fn tell<S>(register: impl FnOnce(Worker) -> Worker, story: S) -> Result<()>
where
    S: AsyncFnOnce(&Client) -> Result<()>,
{
    let home = Home::own("pipeline_example").await?;
    let client = Client::new(home.pool.clone());
    let told = match client.migrate().await {
        Err(error) => Err(error.into()),
        Ok(_) => {
            let worker = Worker::new(home.pool.clone()).grace(Duration::from_secs(1));
            let mut worker = Working::start(register(worker.queue("*", 8)));
            let told = tokio::select! {
                told = story(&client) => told,
                failed = worker.failed() => failed,
            };
            told.and(worker.stop().await)
        }
    };
    told.and(home.leave().await)
}

/// A worker that runs beside us. Dropped, it stops as well.
#[derive(Debug)]
pub struct Working {
    stop: oneshot::Sender<()>,
    task: Option<JoinHandle<pipeline::Result<()>>>,
}

impl Working {
    /// Starts it.
    pub fn start(worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(worker.run_until(async move {
            let _ = stopped.await;
        }));
        let task = Some(task);
        Self { stop, task }
    }

    /// Ends when the worker does, which it should not: with the reason.
    ///
    /// # Errors
    ///
    /// Always.
    pub async fn failed(&mut self) -> Result<()> {
        if let Some(task) = &mut self.task {
            let ended = task.await;
            self.task = None;
            ended??;
        }
        Err("the worker stopped by itself".into())
    }

    /// Stops it and waits until it has, but not for ever: the database may be gone.
    ///
    /// # Errors
    ///
    /// Why the worker ended, if it did before.
    pub async fn stop(self) -> Result<()> {
        let _ = self.stop.send(());
        let Some(task) = self.task else {
            return Ok(());
        };
        match tokio::time::timeout(Duration::from_secs(5), task).await {
            Ok(ended) => Ok(ended??),
            Err(_) => Err("the worker could not bring its work home within 5 s".into()),
        }
    }
}
