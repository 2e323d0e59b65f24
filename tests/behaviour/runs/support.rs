//! A worker in the test's own process, and steps that do what the test says.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::jobs::extension::AttemptEnd;
use ::jobs::testing::{ManualEngine, Slots, Turn};
use parking_lot::Mutex;
use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Client, Run, RunEnded, StepContext as _, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tests::Database;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use tests::eventually;

/// A log of what steps have done, and instructions for steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    log: Mutex<Vec<String>>,
    told: Mutex<HashMap<String, What>>,
    gates: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// What a step is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Succeed,
    Fail,
    EndRun,
    /// Waits until the test lets it through, or until it is asked to stop.
    Wait,
    /// Waits until the test lets it through, also when it is asked to stop.
    WaitStubbornly,
}

impl Script {
    pub(crate) fn tell(&self, step: &str, what: What) {
        self.0.told.lock().insert(step.to_owned(), what);
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.0.log.lock().clone()
    }

    pub(crate) fn write(&self, line: String) {
        self.0.log.lock().push(line);
    }

    fn gate(&self, step: &str) -> Arc<Semaphore> {
        let mut gates = self.0.gates.lock();
        let gate = gates.entry(step.to_owned());
        Arc::clone(gate.or_insert_with(|| Arc::new(Semaphore::new(0))))
    }

    pub(crate) fn let_through(&self, step: &str) {
        self.gate(step).add_permits(1);
    }

    /// Returns how often a line was logged.
    pub(crate) fn count(&self, line: &str) -> usize {
        self.log().iter().filter(|it| *it == line).count()
    }

    pub(crate) async fn says(&self, line: &str) {
        eventually(line, async || (self.count(line) > 0).then_some(())).await;
    }
}

/// A step that does what the script says; its name is its output.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(max_attempts = 1, backoff = "fixed(1ms)", lease = "5s")]
pub(crate) struct Act(pub(crate) String);

impl Perform for Act {
    type Input = ();
    type Output = String;

    async fn perform(self, (): (), cx: &Context) -> Result<String, JobError> {
        let script = cx.data::<Script>()?;
        script.write(self.0.clone());
        let what = script.0.told.lock().get(&self.0).copied();
        match what.unwrap_or(What::Succeed) {
            What::Succeed => {}
            What::Fail => return Err(JobError::new("Told", "told to fail")),
            What::EndRun => cx.end_run(),
            What::Wait => {
                let gate = script.gate(&self.0);
                tokio::select! {
                    permit = gate.acquire() => permit?.forget(),
                    () = cx.cancelled() => {
                        script.write(format!("{} stopped", self.0));
                        return Err(JobError::stopped());
                    }
                }
            }
            What::WaitStubbornly => script.gate(&self.0).acquire().await?.forget(),
        }
        assert!(cx.run().is_some() && cx.step().is_some() && cx.round() >= Some(1));
        assert_eq!(cx.batch().map(i64::from), Some(cx.id().get()));
        Ok(self.0)
    }
}

pub(crate) fn act(name: &str) -> Act {
    Act(name.to_owned())
}

/// A callback that writes down what it was told.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(max_attempts = 3, backoff = "fixed(1ms)")]
pub(crate) struct Told(pub(crate) String);

impl Perform for Told {
    type Input = RunEnded;
    type Output = ();

    async fn perform(self, ended: RunEnded, cx: &Context) -> Result<(), JobError> {
        let failed: Vec<&str> = ended.failed.iter().map(|it| it.step.as_str()).collect();
        cx.data::<Script>()?.write(format!(
            "{} {} {} {} [{}]",
            self.0,
            ended.pipeline,
            ended.status,
            ended.round,
            failed.join(",")
        ));
        Ok(())
    }
}

/// A worker that is stopped at the end of the test.
pub(crate) struct Running {
    pub(crate) client: Client,
    pub(crate) script: Script,
    pool: PgPool,
    stop: CancellationToken,
    task: JoinHandle<pipeline::Result<()>>,
}

impl Running {
    pub(crate) fn start(db: &Database) -> Self {
        Self::start_with(db, |worker| worker)
    }

    /// Starts a worker that `set_up` changes first.
    pub(crate) fn start_with(db: &Database, set_up: impl FnOnce(Worker) -> Worker) -> Self {
        Self::start_on(db, db.pool().clone(), set_up)
    }

    /// Starts a worker on another pool than the client's.
    pub(crate) fn start_on(
        db: &Database,
        pool: PgPool,
        set_up: impl FnOnce(Worker) -> Worker,
    ) -> Self {
        let script = Script::default();
        let stop = CancellationToken::new();
        let worker = Worker::new(pool)
            .register::<(Act, Told)>()
            .data(script.clone())
            .grace(Duration::from_secs(1))
            .queue("*", 16);
        let worker = set_up(worker);
        Self {
            client: Client::new(db.pool().clone()),
            script,
            pool: db.pool().clone(),
            task: tokio::spawn(worker.run_until(stop.clone().cancelled_owned())),
            stop,
        }
    }

    pub(crate) fn ask_to_stop(&self) {
        self.stop.cancel();
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    pub(crate) async fn status<O>(&self, run: &Run<O>) -> String {
        sqlx::query_scalar("select status::text from pipeline.runs where id = $1")
            .bind(run.id())
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }

    /// Waits until the run has this status.
    pub(crate) async fn becomes<O>(&self, run: &Run<O>, status: &str) {
        let event = format!("run {} is {status}", run.id());
        eventually(&event, async || {
            (self.status(run).await == status).then_some(())
        })
        .await;
    }

    /// Returns the steps as `key status`.
    pub(crate) async fn steps<O>(&self, run: &Run<O>) -> Vec<String> {
        sqlx::query_scalar(
            "select step || ' ' || status from pipeline.run_steps where run = $1 order by no",
        )
        .bind(run.id())
        .fetch_all(&self.pool)
        .await
        .unwrap()
    }
}

/// Sends ends until all of them are written or stale. Ends whose run another transaction holds are sent again, as
/// a worker does.
pub(crate) async fn turn_until_written(
    engine: &mut ManualEngine,
    ends: Vec<AttemptEnd>,
    slots: Slots,
) -> Turn {
    let mut all = Turn::default();
    let mut left = ends;
    loop {
        match engine.turn(left.clone(), slots, false).await {
            Ok(turn) => {
                all.ended.extend(turn.ended);
                all.stale.extend(turn.stale);
                all.claimed.extend(turn.claimed);
                left = turn.held;
            }
            Err(error) => assert!(is_held(&error), "{error}"),
        }
        if left.is_empty() {
            return all;
        }
        tokio::task::yield_now().await;
    }
}

/// Whether the error says that another transaction holds a run that is chained to one that ends.
pub(crate) fn is_held(error: &::jobs::Error) -> bool {
    let ::jobs::Error::Database(error) = error else {
        return false;
    };
    let code = error.as_database_error().and_then(|error| error.code());
    code.as_deref() == Some("PB001")
}

/// Takes up every request once, as a worker does.
pub(crate) async fn take_up_all(pool: &PgPool) {
    let requests: Vec<i64> = sqlx::query_scalar("select id from pipeline.requests order by id")
        .fetch_all(pool)
        .await
        .unwrap();
    for request in requests {
        take_up(pool, request).await;
    }
}

/// Takes up a request as a worker does; what came of it.
pub(crate) async fn take_up(pool: &PgPool, request: i64) -> String {
    sqlx::query_scalar("select state from pipeline.process_request_v1($1, false)")
        .bind(request)
        .fetch_one(pool)
        .await
        .unwrap()
}
