//! A worker inside the test's own process, and jobs that do what they are told.

use std::sync::Arc;
use std::time::Duration;

use jobs::{Client, Context, Job, JobError, JobInfo, Perform, Worker};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tests::Database;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What the jobs of one test have done, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn write(&self, line: impl Into<String>) {
        self.0.lock().push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

/// Does what it is told, and writes down that it did.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(attempts = 3, backoff = "fixed(1ms)", lease = "5s")]
pub(crate) struct Do {
    pub(crate) name: String,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum What {
    Succeed,
    Fail,
    /// Fails so many times, then succeeds.
    FailTimes(u16),
    Discard,
    RetryAfter(Duration),
    /// Snoozes so many times, then succeeds.
    SnoozeTimes(u32),
    Panic,
    Sleep(Duration),
    /// Runs until it is asked to stop, and says so.
    UntilAsked,
}

impl Do {
    pub(crate) fn new(name: &str, what: What) -> Self {
        Self {
            name: name.to_owned(),
            what,
        }
    }
}

impl Perform for Do {
    type Input = ();
    type Output = String;

    async fn perform(self, (): (), cx: &Context) -> Result<String, JobError> {
        let log = cx.data::<Log>()?;
        log.write(format!("{} {}", self.name, cx.attempt()));
        match self.what {
            What::Succeed => {}
            What::Fail => return Err("told to fail".into()),
            What::FailTimes(times) if cx.attempt() <= times => return Err("told to fail".into()),
            What::FailTimes(_) => {}
            What::Discard => return Err(JobError::new("Hopeless", "told to give up").discard()),
            What::RetryAfter(wait) => return Err(JobError::from("not now").retry_after(wait)),
            What::SnoozeTimes(times) => {
                let mine = |line: &&String| line.starts_with(&self.name);
                if log.lines().iter().filter(mine).count() <= times as usize {
                    return Err(JobError::snooze(Duration::from_millis(1)));
                }
            }
            What::Panic => panic!("told to panic"),
            What::Sleep(time) => tokio::time::sleep(time).await,
            What::UntilAsked => {
                cx.cancelled().await;
                return Err(JobError::stopped());
            }
        }
        Ok(self.name)
    }
}

/// A worker that runs until the test stops it.
pub(crate) struct Running {
    pub(crate) log: Log,
    stop: CancellationToken,
    task: JoinHandle<Result<(), jobs::Error>>,
}

impl Running {
    /// On queue `default`, with what else the test says.
    pub(crate) fn start(db: &Database, set_up: impl FnOnce(Worker) -> Worker) -> Self {
        let log = Log::default();
        let worker = Worker::new(db.pool().clone())
            .register::<Do>()
            .data(log.clone())
            .keep_succeeded(true);
        let worker = set_up(worker);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        Self {
            log,
            stop,
            task: tokio::spawn(worker.run_until(stopped)),
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

pub(crate) fn client(db: &Database) -> Client {
    Client::new(db.pool().clone())
}

/// Waits until a job is over, and returns it.
pub(crate) async fn ended(db: &Database, id: i64) -> JobInfo {
    loop {
        let job = client(db).job(id).await.unwrap().unwrap();
        if job.ended_at.is_some() {
            return job;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until it is so.
pub(crate) async fn until(mut it_is_so: impl AsyncFnMut() -> bool) {
    while !it_is_so().await {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// How many jobs of a type there are in the queue, whatever their status.
pub(crate) async fn count(db: &Database, kind: &str) -> i64 {
    sqlx::query_scalar("select count(*) from pipeline.jobs where kind = $1")
        .bind(kind)
        .fetch_one(db.pool())
        .await
        .unwrap()
}
