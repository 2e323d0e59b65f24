//! The extension points of the engine: what others do inside its transactions, and beside them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::PgConnection;
use tokio::sync::Notify;

use super::outbox::Notification;
use super::probe::{Moment, Probe};
use crate::attempt::{AttemptEnd, Claimed, HeldRow};

/// Ends the attempts of the jobs that it owns, and writes what follows from their ends.
///
/// The attempts of all other jobs are ended by the engine. An end hook serialises its changes by row locks, and
/// never waits for a lock.
pub trait EndHook: std::fmt::Debug + Send + Sync {
    /// Returns the row that must be locked before this end is written; `None` if the hook does not own the
    /// job.
    fn row(&self, end: &AttemptEnd) -> Option<i64>;

    /// Returns whether the hook advances runs. Only then does the worker claim jobs that are steps.
    fn takes_steps(&self) -> bool {
        false
    }

    /// Returns whether [`end`](Self::end) is a single statement, which needs no transaction around it.
    fn is_one_statement(&self) -> bool {
        false
    }

    /// Plans the hook's statements on a new connection, so that the first ends do not wait for that.
    fn prepare<'a>(
        &'a self,
        _connection: &'a mut PgConnection,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>> {
        Box::pin(async { Ok(()) })
    }

    /// Ends these attempts. The hook may start work in the offered slots. If a row that it needs besides the
    /// rows of the ends is locked, it raises [`ROW_HELD`](crate::sqlstate::ROW_HELD) and nothing is written.
    fn end<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        ends: &'a [&'a AttemptEnd],
        offer: &'a SlotOffer,
        settings: EndSettings,
    ) -> BoxFuture<'a, Result<Ended, sqlx::Error>>;
}

/// The worker's settings for the ends of attempts.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct EndSettings {
    /// Whether the rows of succeeded jobs are kept.
    pub keep_succeeded: bool,
    /// The time in milliseconds after which a job fails whose type no worker knows.
    pub unknown_ms: i64,
    /// Whether the transaction may commit without waiting until its WAL is on disk: it does nothing else, and
    /// all of its ends belong to jobs that allow it.
    pub asynchronous_commit: bool,
}

/// The result of ending attempts. Positions are those in the list of ends.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Ended {
    /// Ends that changed no row: the job's row was deleted or has another token.
    pub stale: Vec<usize>,
    /// Ends that were not written because another transaction holds the job's queue row.
    pub held: Vec<usize>,
    /// Rows of the hook that another transaction holds: their ends were not written.
    pub held_rows: Vec<i64>,
    /// Jobs that have failed for good.
    pub failed: Vec<(usize, FailedJob)>,
    /// What follows outside the database.
    pub effects: Effects,
}

/// A job that has failed for good.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedJob {
    /// The class and the message of the last error.
    pub reason: (String, String),
    /// The job type's name.
    pub kind: String,
    /// The key of the job, or of the run that it is a step of.
    pub key: Option<String>,
    /// The run that the job is a step of.
    pub run: Option<i64>,
    /// The key of that step.
    pub step: Option<String>,
    /// Whether the step is optional: its failure was expected to be possible.
    pub is_optional: bool,
}

/// Completes claimed jobs before they start: in the transaction that claims them, or after its commit.
pub trait ClaimHook: std::fmt::Debug + Send + Sync {
    /// Loads the input of the claimed jobs that it knows about. Jobs for whose input there is no room now
    /// are given back (`pipeline.release_claims_v1`) and removed from the list.
    fn load<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        claimed: &'a mut Vec<Claimed>,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>>;
}

/// Work that a worker does from time to time, on a connection of the engine's own.
pub trait MaintenanceTask: std::fmt::Debug + Send + Sync {
    /// Returns the name of its connection, in log lines and in `pg_stat_activity`.
    fn name(&self) -> &'static str;

    /// Returns the interval between two executions.
    fn every(&self) -> Duration;

    /// Returns the notification channel that calls for an execution ahead of time.
    fn channel(&self) -> Option<&'static str> {
        None
    }

    /// Does the work once. An error is logged, and the work is done again at its next time.
    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        worker: i64,
    ) -> BoxFuture<'a, Result<Effects, sqlx::Error>>;
}

/// The slots in which this worker can start released jobs at once, without a claim.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct SlotOffer {
    /// The worker's id.
    pub worker: i64,
    /// Every queue pattern of the worker, also those without a free slot.
    pub queues: Vec<OfferedSlots>,
    /// The job types that the worker performs.
    pub kinds: Vec<String>,
}

/// Free slots of one queue pattern.
#[derive(Debug)]
#[non_exhaustive]
pub struct OfferedSlots {
    /// The name of a queue, or a prefix followed by `*`.
    pub pattern: String,
    /// How many slots are free.
    pub free: i32,
    /// The lowest priority that need not queue behind the jobs that wait.
    pub min_priority: i16,
}

/// What follows from a transaction outside the database, once it is committed.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Effects {
    /// Queues that got work.
    pub queues: Vec<String>,
    /// Jobs that were given to this worker, within its offer.
    pub started: Vec<Claimed>,
    /// Notifications to other processes.
    pub notifications: Vec<Notification>,
    /// Jobs that are to be asked to stop, where they run here.
    pub stop: Vec<i64>,
    /// Calls to make in this process.
    pub after_commit: Vec<AfterCommit>,
}

/// A call in this process, once a transaction is committed.
pub struct AfterCommit(Box<AfterCommitFn>);

type AfterCommitFn =
    dyn for<'c> FnOnce(&'c mut PgConnection, &'c str) -> BoxFuture<'c, ()> + Send + Sync;

impl AfterCommit {
    /// Creates a call. Its arguments are a connection, on which it may read, and the identity of the database
    /// (`pipeline.database_id_v1`). The transaction is committed, so that the call has no error to report.
    pub fn new(
        call: impl for<'c> FnOnce(&'c mut PgConnection, &'c str) -> BoxFuture<'c, ()>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Box::new(call))
    }

    pub(super) async fn call(self, connection: &mut PgConnection, database: &str) {
        (self.0)(connection, database).await;
    }
}

impl std::fmt::Debug for AfterCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AfterCommit")
    }
}

impl Effects {
    /// Creates the effects of a transaction that put work into these queues.
    pub fn of_queues(queues: Vec<String>) -> Self {
        Self {
            queues,
            ..Self::default()
        }
    }
}

/// All hooks of one worker.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    pub(crate) end: Vec<Arc<dyn EndHook>>,
    pub(crate) claim: Vec<Arc<dyn ClaimHook>>,
    pub(crate) maintenance: Vec<Arc<dyn MaintenanceTask>>,
    pub(crate) probe: Option<Arc<dyn Probe>>,
}

impl Hooks {
    /// Returns the rows without which this end cannot be written: those of the hooks, and its queue row.
    pub(crate) fn rows_of(&self, end: &AttemptEnd) -> Vec<HeldRow> {
        let hooks = self.end.iter().enumerate();
        hooks
            .filter_map(|(at, hook)| Some(HeldRow::Hook(at, hook.row(end)?)))
            .chain([HeldRow::Job(end.id)])
            .collect()
    }

    /// Returns whether this worker claims jobs that are steps of runs.
    pub(crate) fn takes_steps(&self) -> bool {
        self.end.iter().any(|hook| hook.takes_steps())
    }

    pub(crate) async fn probe(&self, moment: Moment, count: usize) {
        if let Some(probe) = &self.probe {
            probe.at(moment, count).await;
        }
    }
}

/// Calls maintenance tasks ahead of their time, by notification channel.
#[derive(Debug, Default)]
pub(crate) struct MaintenanceCalls(HashMap<&'static str, Notify>);

impl MaintenanceCalls {
    pub(crate) fn of(tasks: &[Arc<dyn MaintenanceTask>]) -> Self {
        let channels = tasks.iter().filter_map(|task| task.channel());
        Self(channels.map(|channel| (channel, Notify::new())).collect())
    }

    pub(crate) fn channels(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// Calls the task of this channel. Returns whether there is one.
    pub(crate) fn call(&self, channel: &str) -> bool {
        let call = self.0.get(channel);
        call.inspect(|call| call.notify_one()).is_some()
    }

    pub(crate) fn call_all(&self) {
        self.0.values().for_each(Notify::notify_one);
    }

    /// Completes when the channel is called; never without one.
    pub(crate) async fn called(&self, channel: Option<&'static str>) {
        match channel.and_then(|channel| self.0.get(channel)) {
            Some(call) => call.notified().await,
            None => std::future::pending().await,
        }
    }
}
