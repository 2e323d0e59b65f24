//! Runs an example with its own database and a worker.

use std::time::Duration;

use pipeline::{Client, Worker};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{Home, Result};

/// Runs an example with a client, and with a worker that serves every queue. The example has a database of its own, on
/// the private server or on the server of `DATABASE_URL`, which is dropped at the end.
///
/// # Errors
///
/// Returns the error of the example, or else an error of the setup or the cleanup.
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

/// A worker that runs in a task. It stops when this value is dropped.
#[derive(Debug)]
pub struct Working {
    stop: oneshot::Sender<()>,
    task: Option<JoinHandle<pipeline::Result<()>>>,
}

impl Working {
    /// Starts a worker.
    pub fn start(worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(worker.run_until(async move {
            let _ = stopped.await;
        }));
        let task = Some(task);
        Self { stop, task }
    }

    /// Waits until the worker ends, which is always unexpected, and returns the reason.
    ///
    /// # Errors
    ///
    /// Always returns an error.
    pub async fn failed(&mut self) -> Result<()> {
        if let Some(task) = &mut self.task {
            let ended = task.await;
            self.task = None;
            ended??;
        }
        Err("the worker stopped by itself".into())
    }

    /// Stops the worker and waits for its end, for at most 5 s.
    ///
    /// # Errors
    ///
    /// Returns the error of the worker, or an error if the worker does not stop in time.
    pub async fn stop(self) -> Result<()> {
        let _ = self.stop.send(());
        let Some(task) = self.task else {
            return Ok(());
        };
        match tokio::time::timeout(Duration::from_secs(5), task).await {
            Ok(ended) => Ok(ended??),
            Err(_) => Err("the worker did not stop within 5 s".into()),
        }
    }
}
