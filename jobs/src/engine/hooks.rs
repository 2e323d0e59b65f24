//! The extension points of the engine; [`crate::extension`] documents them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::PgConnection;
use tokio::sync::Notify;

use super::outbox::Notification;
use super::probe::Moment;
use crate::attempt::{AttemptEnd, Claimed, HeldRow};

/// Ends the attempts that it is responsible for, and writes in the same transaction what follows from their ends.
///
/// The engine ends all other attempts. An end hook serialises its changes by row locks, and never waits for a
/// lock. See the [module](crate::extension) for the transaction that the hook runs in.
pub trait EndHook: std::fmt::Debug + Send + Sync {
    /// Returns the id of the hook's row that must be locked before this end is written; `None` if the hook is not
    /// responsible for the end. For an owned job, the id is that of the job's [owner](crate::extension::Owner).
    fn row(&self, end: &AttemptEnd) -> Option<i64>;

    /// Returns whether the hook ends the jobs that extensions own. Only a worker with such a hook claims owned
    /// jobs.
    fn ends_owned_jobs(&self) -> bool {
        false
    }

    /// Creates the span of a log line about one of the hook's rows. `label` is the name of a job inside the row's
    /// owner, if the line is about a job. The span's level should be that of errors, so that no filter which lets the
    /// line pass drops the span.
    fn span(&self, _row: i64, _label: Option<&str>) -> tracing::Span {
        tracing::Span::none()
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

    /// Ends these attempts. The hook may start jobs in the offered slots. If another transaction holds a row that the
    /// hook needs besides the rows of the ends, the hook fails with the SQLSTATE
    /// [`ROW_HELD`](crate::sqlstate::ROW_HELD), and nothing is written.
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
    /// The effects outside the database.
    pub effects: Effects,
}

/// A job that has failed for good, for the log.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedJob {
    /// The class and the message of the last error.
    pub reason: (String, String),
    /// The job type's name.
    pub job_type: String,
    /// The key of the job, or of its owner.
    pub key: Option<String>,
    /// The id of the job's owner.
    pub owner_id: Option<i64>,
    /// The name of the job inside its owner.
    pub owner_label: Option<String>,
    /// Whether the owner continues without the job, as if it had not failed.
    pub is_optional: bool,
}

/// Completes claimed jobs before they start: in the transaction that claims them, or after its commit.
pub trait ClaimHook: std::fmt::Debug + Send + Sync {
    /// Loads the input of the claimed jobs that its extension owns, and sets their owners. The hook gives jobs back
    /// whose input exceeds the byte limit for now (`pipeline.release_claims_v1`), and removes them from the list.
    fn load<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        claimed: &'a mut Vec<Claimed>,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>>;
}

/// A periodic task of a worker, on a connection of its own.
pub trait MaintenanceTask: std::fmt::Debug + Send + Sync {
    /// Returns the name of the task's connection, in log lines and in `pg_stat_activity`.
    fn name(&self) -> &'static str;

    /// Returns the interval between two executions.
    fn every(&self) -> Duration;

    /// Returns the notification channel that triggers an execution before the interval is over.
    fn channel(&self) -> Option<&'static str> {
        None
    }

    /// Runs the task once. An error is logged; the task runs again after the next interval.
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
    pub job_types: Vec<String>,
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

/// The effects of a transaction outside the database, once it is committed.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Effects {
    /// Queues that got work.
    pub queues: Vec<String>,
    /// Jobs that the transaction started in the offered slots of this worker.
    pub started: Vec<Claimed>,
    /// Notifications to other processes.
    pub notifications: Vec<Notification>,
    /// Jobs to ask to stop, if they run in this worker.
    pub stop: Vec<i64>,
    /// Calls to make in this process after the commit.
    pub after_commit: Vec<AfterCommit>,
}

/// A call in this process after a transaction is committed.
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
    /// The application's handler of failed attempts.
    pub(crate) error_reporter: Option<Arc<crate::on_error::ErrorReporter>>,
    #[cfg(feature = "testing")]
    pub(crate) probe: Option<Arc<dyn super::probe::Probe>>,
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

    /// Returns whether this worker claims jobs that extensions own.
    pub(crate) fn claims_owned_jobs(&self) -> bool {
        self.owned_jobs_hook().is_some()
    }

    fn owned_jobs_hook(&self) -> Option<&Arc<dyn EndHook>> {
        self.end.iter().find(|hook| hook.ends_owned_jobs())
    }

    /// Returns the span of a log line about an owned job, with the fields of the extension that owns the job.
    pub(crate) fn owner_span(&self, owner: Option<i64>, label: Option<&str>) -> tracing::Span {
        match (owner, self.owned_jobs_hook()) {
            (Some(owner), Some(hook)) => hook.span(owner, label),
            _ => tracing::Span::none(),
        }
    }

    /// Returns the span of a log line about a row of the hook at this position.
    pub(crate) fn row_span(&self, hook: usize, row: i64) -> tracing::Span {
        let hook = self.end.get(hook);
        hook.map_or_else(tracing::Span::none, |hook| hook.span(row, None))
    }

    /// Returns whether a test observes the engine.
    #[cfg(feature = "testing")]
    pub(crate) fn has_probe(&self) -> bool {
        self.probe.is_some()
    }

    /// Reports a moment to the test that observes the engine, and waits for the test.
    #[cfg(feature = "testing")]
    pub(crate) async fn probe(&self, moment: Moment, count: usize) {
        if let Some(probe) = &self.probe {
            probe.at(moment, count).await;
        }
    }

    /// Shows an attempt to the test that observes the engine, and waits for the test.
    #[cfg(feature = "testing")]
    pub(crate) async fn before_attempt(&self, attempt: &crate::Envelope) {
        if let Some(probe) = &self.probe {
            probe.before_attempt(attempt).await;
        }
    }
}

/// Without the feature `testing`, nothing observes the engine.
#[cfg(not(feature = "testing"))]
impl Hooks {
    pub(crate) fn has_probe(&self) -> bool {
        false
    }

    pub(crate) async fn probe(&self, _: Moment, _: usize) {}

    pub(crate) async fn before_attempt(&self, _: &crate::Envelope) {}
}

/// Triggers maintenance tasks before their interval is over, by notification channel.
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

    /// Triggers the task of this channel. Returns `false` if no task has the channel.
    pub(crate) fn call(&self, channel: &str) -> bool {
        let call = self.0.get(channel);
        call.inspect(|call| call.notify_one()).is_some()
    }

    pub(crate) fn call_all(&self) {
        self.0.values().for_each(Notify::notify_one);
    }

    /// Completes when the task of this channel is triggered; never completes without a channel.
    pub(crate) async fn called(&self, channel: Option<&'static str>) {
        match channel.and_then(|channel| self.0.get(channel)) {
            Some(call) => call.notified().await,
            None => std::future::pending().await,
        }
    }
}
