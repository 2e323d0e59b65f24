//! The supervisor: starts the engine's tasks, watches them, and shuts the worker down.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use apalis_core::worker::context::WorkerContext;
use tokio::task::{Id, JoinSet};

use super::connection::EngineConnection;
use super::lifecycle::{Lifecycle, Phase};
use super::probe::Moment;
use super::{Engine, committer, isolation, renew, watchdog};
use crate::Error;
use crate::attempt::Ledger;

/// The time that aborted jobs have to be dropped. After that, shutdown hands them back without waiting.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);
/// The time that the engine's tasks have to end after the flush has timed out.
const LAST_TASKS_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval at which the supervisor asks apalis whether the worker is stopping: apalis notifies a backend
/// only after the last job has ended.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the engine from the registration of the worker until its last task has ended.
pub(super) async fn run(engine: Arc<Engine>, context: WorkerContext) {
    let stop_poll = tokio::spawn(follow_apalis(Arc::clone(&engine), context));
    let mut connection = EngineConnection::new("tick", &engine.config.pool);
    let mut leases = EngineConnection::new("leases", &engine.config.pool);
    let ticker = engine.ticker();
    // Connect for renewals before the first claim: the shortest lease leaves little time to connect.
    let (is_registered, ()) = tokio::join!(
        ticker.register(&mut connection),
        renew::connect(&mut leases)
    );
    if is_registered {
        let mut tasks = Tasks::default();
        spawn_all(&engine, &mut tasks, leases);
        tasks.spawn("tick", ticker.run(connection));
        started(&engine, tasks.len());
        run_until_stopped(&engine, &mut tasks).await;
    }
    // `run_until` returns in the last phase: log first.
    tracing::info!(worker = engine.config.name, "worker stopped");
    engine.lifecycle.advance(Phase::Stopped);
    stop_poll.abort();
}

/// Stops the engine when apalis stops the worker.
async fn follow_apalis(engine: Arc<Engine>, context: WorkerContext) {
    while !context.is_shutting_down() && !engine.lifecycle.has_reached(Phase::Draining) {
        tokio::time::sleep(STOP_POLL_INTERVAL).await;
    }
    engine.stop();
}

fn spawn_all(engine: &Arc<Engine>, tasks: &mut Tasks, leases: EngineConnection) {
    let connection = |purpose| EngineConnection::new(purpose, &engine.config.pool);
    let committer = || Arc::clone(&engine.committer);
    tasks.spawn("commit", committer::run(committer(), connection("commit")));
    tasks.spawn(
        "second commit",
        committer::assist(committer(), connection("second commit")),
    );
    tasks.spawn(
        "isolation",
        isolation::run(committer(), connection("isolation")),
    );
    tasks.spawn("leases", engine.leases().run(leases));
    tasks.spawn("notifications", engine.listener().run());
    for task in &engine.hooks.maintenance {
        tasks.spawn(task.name(), engine.maintenance().run(Arc::clone(task)));
    }
    watchdog::start(&engine.ledger, Arc::clone(&engine.hooks));
}

fn started(engine: &Engine, connections: usize) {
    tracing::info!(
        worker = engine.config.name,
        worker.id = engine.config.worker(),
        queues = ?engine.slots.patterns(),
        connections,
        "worker started; it holds at most this many connections beside the pool"
    );
}

/// Runs until the worker is stopped or one of its tasks fails; then drains, flushes and ends the tasks.
async fn run_until_stopped(engine: &Engine, tasks: &mut Tasks) {
    let (lifecycle, ledger) = (&engine.lifecycle, &engine.ledger);
    let drained = async {
        lifecycle.reached(Phase::Draining).await;
        drain(engine).await;
        lifecycle.advance(Phase::Flushing);
        lifecycle.flush_timeout().await;
        tokio::time::sleep(LAST_TASKS_TIMEOUT).await;
    };
    let failure = tokio::select! {
        failure = tasks.all_ended() => failure,
        () = drained => Some("shutdown"),
    };
    let Some(task) = failure else {
        return;
    };
    if task == "shutdown" {
        tracing::error!(
            "shutdown timed out: database did not answer; jobs are taken over when their leases expire"
        );
    } else {
        tracing::error!(task, "engine task failed; stopping the worker");
        lifecycle.fail(Error::EngineTaskFailed {
            worker: engine.config.name.clone(),
            task,
        });
    }
    stop_at_once(ledger, lifecycle, tasks).await;
}

/// Stops the worker without writing any more ends: other workers take over its jobs when the leases expire.
async fn stop_at_once(ledger: &Ledger, lifecycle: &Lifecycle, tasks: &mut Tasks) {
    lifecycle.advance(Phase::Draining);
    ledger.kill_all();
    ledger.abandon_all();
    lifecycle.advance(Phase::Closing);
    tasks.abort().await;
}

/// Gives running jobs their grace period, then aborts them. Claimed jobs that have not started are handed
/// back at once, including jobs whose claim is still in progress.
async fn drain(engine: &Engine) {
    let ledger = &engine.ledger;
    let quiet = async {
        drop(engine.inbox.drain());
        ledger.ask_all_to_stop();
        engine.hooks.probe(Moment::Draining, 0).await;
        while !ledger.is_quiet() {
            ledger.may_be_quiet().await;
            drop(engine.inbox.drain());
        }
    };
    if tokio::time::timeout(engine.config.grace, quiet)
        .await
        .is_ok()
    {
        return;
    }
    ledger.kill_all();
    engine.hooks.probe(Moment::GraceOver, 0).await;
    let dropped = async {
        while !ledger.is_quiet() {
            ledger.may_be_quiet().await;
        }
    };
    let _ = tokio::time::timeout(ABORT_TIMEOUT, dropped).await;
    let jobs = ledger.abandon_all();
    if !jobs.is_empty() {
        tracing::error!(
            ?jobs,
            "jobs block their threads and cannot be stopped; they are handed back while they still run"
        );
    }
}

/// The running tasks of an engine, by name.
#[derive(Debug, Default)]
struct Tasks {
    set: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.set.spawn(task);
        self.names.insert(handle.id(), name);
    }

    fn len(&self) -> usize {
        self.set.len()
    }

    /// Completes when all tasks have ended, or with the name of the first that panicked.
    async fn all_ended(&mut self) -> Option<&'static str> {
        while let Some(ended) = self.set.join_next_with_id().await {
            if let Err(error) = ended {
                return Some(self.names.get(&error.id()).copied().unwrap_or("unknown"));
            }
        }
        None
    }

    async fn abort(&mut self) {
        self.set.shutdown().await;
    }
}
