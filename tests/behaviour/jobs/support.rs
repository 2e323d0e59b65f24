//! A worker in the test's own process, and jobs whose data says what they do.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::testing::{Moment, Probe};
use jobs::{Client, Context, Job, JobError, JobInfo, Perform, Worker};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tests::{Database, Errand};
pub(crate) use tests::{eventually, until};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A log of what the jobs of one test have done, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn write(&self, line: impl Into<String>) {
        self.0.lock().push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// Waits until the log has this line.
    pub(crate) async fn says(&self, line: &str) {
        eventually(line, async || {
            self.lines().iter().any(|l| l == line).then_some(())
        })
        .await;
    }
}

/// A gate at which jobs wait until the test lets some of them through, in the order in which they came.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn let_through(&self, count: usize) {
        self.0.add_permits(count);
    }
}

/// A job that does what its data says, and logs it.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(max_attempts = 3, backoff = "fixed(1ms)", lease = "5s")]
pub(crate) struct Do {
    pub(crate) name: String,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum What {
    Succeed,
    Fail,
    /// Fails this many times, then succeeds.
    FailTimes(u16),
    Discard,
    RetryAfter(Duration),
    /// Snoozes this many times, then succeeds.
    SnoozeTimes(u32),
    Panic,
    Sleep(Duration),
    /// Runs until it is asked to stop, and returns that it stopped.
    UntilAsked,
    /// Waits at the gate, then logs that it is through; or logs that it was dropped there.
    AtGate,
    /// Enqueues the next job of a chain with this many left.
    Chain(u32),
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
            What::AtGate => {
                let mut noted = NotedWhenDropped(Some((log.clone(), self.name.clone())));
                cx.data::<Gate>()?.0.acquire().await?.forget();
                noted.0 = None;
                log.write(format!("{} through", self.name));
            }
            What::Chain(left) => {
                if left > 0 {
                    cx.data::<Client>()?
                        .enqueue(Do::new(&self.name, What::Chain(left - 1)))
                        .await?;
                }
            }
        }
        Ok(self.name)
    }
}

struct NotedWhenDropped(Option<(Log, String)>);

impl Drop for NotedWhenDropped {
    fn drop(&mut self) {
        if let Some((log, name)) = self.0.take() {
            log.write(format!("{name} dropped"));
        }
    }
}

/// A probe that records the engine's moments, and holds one of them until the test lets go.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    seen: Mutex<Vec<(Moment, usize)>>,
    armed: Mutex<Option<Moment>>,
    reached: Notify,
    go: Notify,
}

impl Watch {
    /// Holds the engine at the next moment of this kind.
    pub(crate) fn hold(&self, moment: Moment) {
        *self.armed.lock() = Some(moment);
    }

    /// Waits until the engine is held.
    pub(crate) async fn held(&self) {
        self.reached.notified().await;
    }

    pub(crate) fn let_go(&self) {
        self.go.notify_one();
    }

    /// Returns the number of ends or claims at each moment of this kind.
    pub(crate) fn counts(&self, moment: Moment) -> Vec<usize> {
        let seen = self.seen.lock();
        let mine = seen.iter().filter(|(seen, _)| *seen == moment);
        mine.map(|(_, count)| *count).collect()
    }

    /// Waits until this many ends have been committed.
    pub(crate) async fn committed(&self, ends: usize) {
        eventually("the ends are committed", async || {
            let committed: usize = self.counts(Moment::AfterCommit).iter().sum();
            (committed >= ends).then_some(())
        })
        .await;
    }
}

impl Probe for Watch {
    fn at(&self, moment: Moment, count: usize) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.seen.lock().push((moment, count));
            let held = self.armed.lock().take_if(|armed| *armed == moment);
            if held.is_some() {
                self.reached.notify_one();
                self.go.notified().await;
            }
        })
    }
}

/// A worker that runs until the test stops it.
pub(crate) struct Running {
    pub(crate) log: Log,
    pub(crate) gate: Gate,
    stop: CancellationToken,
    task: JoinHandle<Result<(), jobs::Error>>,
}

impl Running {
    /// Starts a worker; `set_up` gives it its queues.
    pub(crate) fn start(db: &Database, set_up: impl FnOnce(Worker) -> Worker) -> Self {
        Self::start_with(db, db.pool().clone(), set_up)
    }

    /// Starts a worker on another pool than the client's.
    pub(crate) fn start_with(
        db: &Database,
        pool: PgPool,
        set_up: impl FnOnce(Worker) -> Worker,
    ) -> Self {
        Self::start_as(db, pool, set_up, |worker, stopped| {
            worker.run_until(stopped)
        })
    }

    /// Starts a worker that `run` runs.
    pub(crate) fn start_as<F>(
        db: &Database,
        pool: PgPool,
        set_up: impl FnOnce(Worker) -> Worker,
        run: impl FnOnce(Worker, BoxFuture<'static, ()>) -> F,
    ) -> Self
    where
        F: Future<Output = Result<(), jobs::Error>> + Send + 'static,
    {
        let log = Log::default();
        let gate = Gate(Arc::new(Semaphore::new(0)));
        let worker = Worker::new(pool)
            .register::<Do>()
            .data(log.clone())
            .data(gate.clone())
            .data(client(db))
            .keep_succeeded(true);
        let worker = set_up(worker);
        let stop = CancellationToken::new();
        let stopped = Box::pin(stop.clone().cancelled_owned());
        Self {
            log,
            gate,
            stop,
            task: tokio::spawn(run(worker, stopped)),
        }
    }

    /// Asks the worker to stop, without waiting until it has.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.cancel();
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// Drops the worker's future, as a program does that aborts its task.
    pub(crate) async fn abandon(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// Returns a pool with a lock timeout and a statement timeout, for tests in which a mistake would wait for ever.
pub(crate) fn impatient(db: &Database, connections: u32) -> PgPool {
    let options = (*db.pool().connect_options()).clone();
    PgPoolOptions::new()
        .max_connections(connections)
        .connect_lazy_with(options.options([("lock_timeout", "10s"), ("statement_timeout", "30s")]))
}

pub(crate) fn client(db: &Database) -> Client {
    Client::new(db.pool().clone())
}

/// Returns a job.
pub(crate) async fn job(db: &Database, id: jobs::JobId) -> JobInfo {
    client(db).job(id).info().await.unwrap().unwrap()
}

/// Waits until a job has ended, and returns it.
pub(crate) async fn ended(db: &Database, id: jobs::JobId) -> JobInfo {
    when(db, id, |job| job.ended_at.is_some()).await
}

/// Waits until a job meets a condition, and returns it.
pub(crate) async fn when(
    db: &Database,
    id: jobs::JobId,
    is_so: impl Fn(&JobInfo) -> bool,
) -> JobInfo {
    eventually("the job is as wanted", async || {
        let job = job(db, id).await;
        is_so(&job).then_some(job)
    })
    .await
}

/// Returns the single value of a query.
pub(crate) async fn ask<T>(db: &Database, question: &'static str) -> T
where
    T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    sqlx::query_scalar(question)
        .fetch_one(db.pool())
        .await
        .unwrap()
}

/// Runs SQL statements that no client or worker knows of.
pub(crate) async fn sql(db: &Database, statement: &'static str) {
    sqlx::raw_sql(statement).execute(db.pool()).await.unwrap();
}

/// Gives a worker of this process the job type that the workers of other processes have.
pub(crate) fn errands(db: &Database, worker: Worker) -> Worker {
    worker
        .register::<Errand>()
        .data(db.pool().clone())
        .queue("default", 4)
}

/// Waits until this attempt of an errand has begun, and returns its process.
pub(crate) async fn began(db: &Database, name: &str, attempt: i32) -> i32 {
    eventually("the errand begins", async || {
        let began = Errand::began(db.pool(), name).await;
        began.iter().find(|b| b.attempt == attempt).map(|b| b.pid)
    })
    .await
}

pub(crate) async fn count_ended(db: &Database) -> usize {
    let count: i64 = ask(
        db,
        "select count(*) from pipeline.jobs where ended_at is not null",
    )
    .await;
    usize::try_from(count).unwrap()
}

pub(crate) async fn all_ended(db: &Database, count: usize) {
    eventually("all jobs end", async || {
        (count_ended(db).await == count).then_some(())
    })
    .await;
}

/// Returns the number of jobs of a type, with any status.
pub(crate) async fn count(db: &Database, kind: &str) -> i64 {
    sqlx::query_scalar("select count(*) from pipeline.jobs where job_type = $1")
        .bind(kind)
        .fetch_one(db.pool())
        .await
        .unwrap()
}
