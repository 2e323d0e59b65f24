//! The committer: ends attempts in groups and claims new ones, one transaction after the other.
//!
//! While one transaction is being committed, ends gather in the ledger; the next transaction takes all of
//! them. There is no timer, and so no added latency: a single end is written at once, and groups grow with
//! the load. A claim is part of the transaction that ends attempts if there is one; otherwise the claim has
//! its own transaction.
//!
//! The committer waits only for its own transaction:
//!
//! - an end whose row another transaction holds is deferred by the ledger and tried again later;
//! - a group that fails because of its data, or takes too long, goes to the task for
//!   [isolated](super::isolation) groups, which finds the failing end on its own connection;
//! - while the database cannot be reached, ends stay in the ledger.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::PgConnection;
use tokio::sync::{Notify, RwLock};

use super::config::Config;
use super::connection::{EngineConnection, limited, timed_out};
use super::end_rows::end_jobs;
use super::hooks::{EndSettings, Hooks};
use super::inbox::Inbox;
use super::lifecycle::{Lifecycle, Phase};
use super::local::{self, Local};
use super::outbox::Outbox;
use super::probe::Moment;
use super::recover::{confirmed, give_back_unknown, lease_is_half_over};
use super::schedule::Schedule;
use super::slots::{Reserved, Slots};
use super::transaction::{self, Committed, Failure, Parts, Request};
use super::{announce, announce_since, report};
use crate::attempt::{AttemptEnd, Claimed, EndKind, Envelope, HeldRow, Ledger};
use crate::sqlstate::ErrorClass;

/// The maximum number of jobs in one claim.
const MAX_CLAIM: u32 = 2_000;
/// The number of uncommitted ends above which the worker claims no further jobs.
const MAX_UNCOMMITTED: usize = 10_000;
/// The number of ends waiting for held rows above which the worker claims no further jobs. One run has at most
/// 100,000 steps.
const MAX_HELD_ENDS: usize = 150_000;
/// The size of the ends waiting for held rows above which the worker claims no further jobs, in bytes.
const MAX_HELD_BYTES: usize = 256 << 20;
/// The time limit of one transaction.
pub(super) const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit of the calls after a commit. A call that takes longer is dropped: waiting clients also
/// get a notification from the database.
const AFTER_COMMIT_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of consecutive failures, while the database answers, after which a group is isolated.
const MAX_GROUP_FAILURES: u8 = 3;

/// The state that the committers of one worker share.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) config: Arc<Config>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) work: Arc<Notify>,
    /// The lock that transactions which may claim share, and that the release of unanswered claims takes exclusively.
    pub(crate) claiming: RwLock<()>,
    pub(crate) local: Local,
}

/// The state that one committing task keeps between transactions.
#[derive(Debug)]
struct Task {
    connection: EngineConnection,
    /// Whether unanswered claims of an earlier connection may have to be released.
    must_release_claims: bool,
    /// A session that timed out, and whose transaction may still commit.
    orphan: Option<String>,
    /// Whether the next transaction must not claim: the claim may have caused the last failure.
    skip_claim: bool,
    /// The maximum number of jobs in the next claim.
    claim_limit: u32,
}

impl Task {
    fn new(connection: EngineConnection) -> Self {
        Self {
            connection,
            must_release_claims: false,
            orphan: None,
            skip_claim: false,
            claim_limit: MAX_CLAIM,
        }
    }
}

/// Ends attempts and claims jobs until the worker is flushed.
pub(crate) async fn run(committer: Arc<Committer>, connection: EngineConnection) {
    local::register(&committer);
    let mut task = Task::new(connection);
    loop {
        if committer.lifecycle.gives_up() {
            committer.give_up();
        }
        if committer.commit_next(&mut task, false).await {
            continue;
        }
        if committer.lifecycle.has_reached(Phase::Flushing) && committer.ledger.is_drained() {
            break;
        }
        committer.wait().await;
    }
    committer.lifecycle.advance(Phase::Closing);
    task.connection.close().await;
}

/// Runs the second committer: it writes the waiting ends when many have gathered during a transaction of the
/// first committer.
pub(crate) async fn assist(committer: Arc<Committer>, connection: EngineConnection) {
    let mut task = Task::new(connection);
    loop {
        tokio::select! {
            () = committer.ledger.crowded() => {}
            () = committer.lifecycle.reached(Phase::Closing) => break,
        }
        // The first committer writes the ends that wait while this one connects; it also reports an error.
        if committer.connect(&mut task).await.is_err() {
            task.connection.discard();
        }
        while committer.commit_next(&mut task, true).await {}
    }
    task.connection.close().await;
}

impl Committer {
    fn parts(&self) -> Parts<'_> {
        Parts {
            config: &self.config,
            hooks: &self.hooks,
            slots: &self.slots,
        }
    }

    /// Waits until there may be something to do.
    async fn wait(&self) {
        let is_flushing = self.lifecycle.has_reached(Phase::Flushing);
        let retry = self.ledger.next_retry();
        let retry = async {
            match retry {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.work.notified() => {}
            () = retry => {}
            () = self.ledger.may_be_quiet(), if is_flushing => {}
            () = self.lifecycle.flush_timeout(), if is_flushing => {}
            () = self.lifecycle.reached(Phase::Flushing), if !is_flushing => {}
        }
    }

    /// Runs one transaction if there are ends to write or slots to fill. Returns whether there were ends or slots.
    async fn commit_next(&self, task: &mut Task, only_if_crowded: bool) -> bool {
        let rows_of = |end: &AttemptEnd| self.hooks.rows_of(end);
        let ends = self
            .ledger
            .take_group(Instant::now(), only_if_crowded, rows_of);
        if ends.is_empty() && only_if_crowded {
            return false;
        }
        let mut reserved = if std::mem::take(&mut task.skip_claim) {
            Vec::new()
        } else {
            self.reserve(task.claim_limit, &ends)
        };
        if ends.is_empty() && reserved.is_empty() {
            return false;
        }
        let _under_way = self.ledger.transaction();
        // Shutdown first closes the worker to work, then checks for open transactions: either shutdown sees
        // this transaction, or this check releases the slots.
        if self.lifecycle.is_closed_to_work() {
            self.slots.release(&mut reserved);
        }
        if !ends.is_empty() || !reserved.is_empty() {
            self.commit(task, ends, reserved).await;
        }
        true
    }

    /// Reserves the slots that a transaction may fill: by a claim from queues that may have work, and by
    /// steps that the transaction's ends release.
    fn reserve(&self, claim_limit: u32, ends: &[AttemptEnd]) -> Vec<Reserved> {
        if self.is_full() {
            return Vec::new();
        }
        let hand_over = self.hooks.claims_owned_jobs() && ends.iter().any(AttemptEnd::is_owned);
        self.slots.reserve(claim_limit, hand_over)
    }

    /// Returns whether the worker takes no further jobs now.
    pub(super) fn is_full(&self) -> bool {
        let (held_ends, held_bytes) = self.ledger.held();
        self.lifecycle.is_closed_to_work()
            || self.ledger.uncommitted() > MAX_UNCOMMITTED
            || held_ends > MAX_HELD_ENDS
            || held_bytes > MAX_HELD_BYTES
    }

    /// Runs one transaction and moves its ends in the ledger according to the result.
    async fn commit(&self, task: &mut Task, ends: Vec<AttemptEnd>, mut reserved: Vec<Reserved>) {
        if let Err(error) = self.connect(task).await {
            self.slots.release(&mut reserved);
            self.server_failed(task, ends, &error).await;
            return;
        }
        let _claiming = self.claiming.read().await;
        let sent = Instant::now();
        let request = Request {
            ends: &ends,
            reserved: &reserved,
            statement_limit: None,
            isolate_inputs: task.claim_limit < MAX_CLAIM,
        };
        let attempt = transaction::run(self.parts(), &mut task.connection, request);
        let Ok(outcome) = tokio::time::timeout(TRANSACTION_TIMEOUT, attempt).await else {
            task.orphan = task.connection.session();
            self.slots.release(&mut reserved);
            // The transaction may still be committed.
            let ends = ends.into_iter().map(sent_before).collect();
            self.server_failed(task, ends, &timed_out(TRANSACTION_TIMEOUT))
                .await;
            return;
        };
        match outcome {
            Ok(mut done) => {
                task.connection.succeeded();
                let load_error = done.load_error.take();
                if let Some(error) = &load_error {
                    self.halve_claims(task, error);
                } else if !reserved.is_empty() {
                    task.claim_limit = (task.claim_limit * 2).min(MAX_CLAIM);
                }
                self.finish(ends, done, reserved, sent, &mut task.connection)
                    .await;
                if let Some(error) = load_error {
                    if ErrorClass::of(&error) == ErrorClass::Server {
                        task.connection.discard();
                    }
                    self.give_back_soon();
                }
            }
            Err(Failure::Unknown(claimed)) => {
                let lost = task.connection.session();
                task.connection.discard();
                task.must_release_claims = true;
                // The first committer may write the ends, and the second one not run again for long.
                self.give_back_soon();
                let connection = &mut task.connection;
                let claimed = confirmed(
                    &self.config,
                    &self.lifecycle,
                    connection,
                    lost.as_deref(),
                    claimed,
                )
                .await;
                if claimed.is_empty() || lease_is_half_over(&claimed, sent.elapsed()) {
                    // Claims that are not started are given back by the next connection, at no cost.
                    self.slots.release(&mut reserved);
                } else {
                    self.start(claimed, reserved, sent);
                }
                // Send all ends again: the fence rejects those that the lost commit has written.
                self.ledger
                    .put_back(ends.into_iter().map(sent_before).collect());
            }
            Err(Failure::Held { hook, rows }) => {
                self.slots.release(&mut reserved);
                self.defer_rows(ends, hook, &rows).await;
            }
            Err(Failure::Error(error)) => {
                self.failed(task, ends, reserved, error).await;
            }
        }
    }

    /// Opens a connection if necessary, and releases unanswered claims of the previous connection.
    async fn connect(&self, task: &mut Task) -> Result<(), sqlx::Error> {
        task.must_release_claims |= self.local.take_unknown();
        let is_new = task.connection.is_new();
        if !is_new && !task.must_release_claims {
            return Ok(());
        }
        task.must_release_claims = true;
        let connection = task.connection.get().await?;
        if is_new {
            limited(self.prepare(connection)).await?;
        }
        // Wait for other claims: they may have claimed jobs that are not yet in the ledger.
        let _no_claims = self.claiming.write().await;
        limited(self.local.connected(task.connection.get().await?)).await?;
        if let Some(orphan) = task.orphan.take() {
            let connection = &mut task.connection;
            let none = Vec::new();
            confirmed(
                &self.config,
                &self.lifecycle,
                connection,
                Some(&orphan),
                none,
            )
            .await;
        }
        let tokens = self.ledger.tokens();
        let given_back = give_back_unknown(&self.config, &mut task.connection, &tokens).await?;
        if let Some((queues, since)) = given_back {
            announce_since(&self.slots, &self.outbox, queues.into_iter(), since);
        }
        task.connection.succeeded();
        task.must_release_claims = false;
        Ok(())
    }

    /// Plans the statements of ends on a new connection.
    async fn prepare(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        end_jobs(&mut *connection, &[], EndSettings::default()).await?;
        for hook in &self.hooks.end {
            hook.prepare(&mut *connection).await?;
        }
        Ok(())
    }

    /// Handles a transaction that failed while the database answered.
    async fn failed(
        &self,
        task: &mut Task,
        mut ends: Vec<AttemptEnd>,
        mut reserved: Vec<Reserved>,
        error: sqlx::Error,
    ) {
        let class = ErrorClass::of(&error);
        let claimed = !reserved.is_empty();
        // The claim may be committed, and only its inputs could not be loaded, or its answer not be read.
        task.must_release_claims |= claimed;
        if class == ErrorClass::Server {
            self.slots.release(&mut reserved);
            ends.iter_mut()
                .for_each(|end| end.failures = end.failures.saturating_add(1));
            self.server_failed(task, ends, &error).await;
            return;
        }
        match class {
            // A transaction with only a claim failed: the input of a queued job is the cause. Smaller claims
            // isolate that job.
            ErrorClass::Data | ErrorClass::TooLong if ends.is_empty() => {
                if self.halve_claims(task, &error) {
                    reserved.clear();
                }
                self.slots.release(&mut reserved);
            }
            // The claim may be the cause: write the ends without a claim first.
            ErrorClass::Data | ErrorClass::TooLong if claimed => {
                task.skip_claim = true;
                self.slots.release(&mut reserved);
                self.ledger.put_back(ends);
            }
            ErrorClass::Data | ErrorClass::TooLong => {
                self.isolate(ends, &error).await;
            }
            _ => {
                tracing::debug!(%error, "transaction conflicted; retrying");
                self.slots.release(&mut reserved);
                ends.iter_mut()
                    .for_each(|end| end.failures = end.failures.saturating_add(1));
                if ends.iter().any(|end| end.failures >= MAX_GROUP_FAILURES) {
                    self.isolate(ends, &error).await;
                } else {
                    self.ledger.put_back(ends);
                }
            }
        }
    }

    /// Lets the next transaction of any committer give back claims that the ledger does not know. Without it, the claims
    /// would cost an attempt when their leases expire.
    fn give_back_soon(&self) {
        self.local.note_unknown();
        self.slots.wake_all();
    }

    /// Makes the next claim smaller, because a claim has failed. Returns whether it was a claim of one job.
    fn halve_claims(&self, task: &mut Task, error: &sqlx::Error) -> bool {
        let is_single = task.claim_limit == 1;
        if is_single {
            tracing::error!(%error, "claim failed; retrying at the next poll");
        } else {
            tracing::warn!(%error, limit = task.claim_limit, "claim failed; retrying with a smaller claim");
        }
        task.claim_limit = (task.claim_limit / 2).max(1);
        is_single
    }

    /// Keeps the ends of a transaction that failed because of the server, and backs off.
    async fn server_failed(&self, task: &mut Task, ends: Vec<AttemptEnd>, error: &sqlx::Error) {
        task.connection.failed(error);
        task.must_release_claims = true;
        if self.lifecycle.gives_up() {
            self.ledger.forget(&ends);
            report::given_up(&ends, report::NO_ANSWER);
        } else if ends.iter().any(|end| end.failures >= MAX_GROUP_FAILURES) {
            self.isolate(ends, error).await;
        } else {
            self.ledger.put_back(ends);
        }
        task.connection
            .back_off(&self.lifecycle, Phase::Flushing)
            .await;
    }

    async fn isolate(&self, ends: Vec<AttemptEnd>, error: &sqlx::Error) {
        let count = ends.len();
        tracing::warn!(%error, count, "writing a group of ends failed; writing them in smaller groups");
        self.ledger.isolate(ends, TRANSACTION_TIMEOUT);
        self.hooks.probe(Moment::Isolated, count).await;
    }

    /// Defers the ends whose hook rows depend on locked rows, and puts the other ends back as the next group.
    pub(super) async fn defer_rows(&self, ends: Vec<AttemptEnd>, hook: usize, rows: &[i64]) {
        let row_of = |end: &AttemptEnd| self.hooks.end.get(hook).and_then(|hook| hook.row(end));
        let names_none = !ends
            .iter()
            .any(|end| row_of(end).is_some_and(|row| rows.contains(&row)));
        let (mut held, mut free) = (Vec::new(), Vec::new());
        for end in ends {
            match row_of(&end) {
                Some(row) if names_none || rows.contains(&row) => {
                    held.push((end, HeldRow::Hook(hook, row)));
                }
                _ => free.push(end),
            }
        }
        self.ledger.put_back(free);
        self.defer(held).await;
    }

    pub(super) async fn defer(&self, held: Vec<(AttemptEnd, HeldRow)>) {
        if held.is_empty() {
            return;
        }
        let count = held.len();
        self.ledger.defer(Instant::now(), held);
        self.hooks.probe(Moment::Deferred, count).await;
    }

    /// Completes a committed transaction: sends notifications, starts the claimed jobs, and removes the
    /// written ends from the ledger.
    pub(super) async fn finish(
        &self,
        ends: Vec<AttemptEnd>,
        mut done: Committed,
        reserved: Vec<Reserved>,
        sent: Instant,
        connection: &mut EngineConnection,
    ) {
        report::ends(&ends, &done, &self.hooks);
        let is_ready_again = |end: &AttemptEnd| match end.kind {
            EndKind::HandBack | EndKind::Lost => true,
            EndKind::Retry | EndKind::Snooze => end.wait.is_zero(),
            _ => false,
        };
        let scheduled = |end: &AttemptEnd| {
            matches!(
                end.kind,
                EndKind::Retry | EndKind::Snooze | EndKind::Unknown
            )
        };
        let (mut written, mut held) = (Vec::with_capacity(ends.len()), Vec::new());
        for (at, end) in ends.into_iter().enumerate() {
            match done.held.remove(&at) {
                Some(row) => held.push((end, row)),
                None => written.push(end),
            }
        }
        self.schedule.due_in(
            written
                .iter()
                .filter(|end| scheduled(end))
                .map(|end| end.wait)
                .min(),
        );
        for asked in &done.asked {
            let queue = reserved[asked.at].queue;
            self.slots.get(queue).claimed(asked.last);
        }
        let handed_back = written
            .iter()
            .filter(|end| is_ready_again(end))
            .filter_map(|end| end.queue.as_deref().map(str::to_owned));
        let queues = handed_back.chain(done.effects.queues);
        announce(&self.slots, &self.outbox, queues, sent);
        for queue in &done.cut_short {
            self.slots.get(*queue).ask_again();
        }
        self.ledger.ask_to_stop(&done.effects.stop);
        self.defer(held).await;
        if !done.claimed.is_empty() {
            self.hooks.probe(Moment::Claimed, done.claimed.len()).await;
        }
        self.start(done.claimed, reserved, sent);
        self.ledger
            .committed(&written, |end| self.hooks.rows_of(end));
        // Last: a waiter that is told may start the next run at once, for which slots must be free again.
        let calls = self.local.call(done.effects.after_commit, connection);
        if tokio::time::timeout(AFTER_COMMIT_TIMEOUT, calls)
            .await
            .is_err()
        {
            // A call is dropped in the middle of its statement.
            connection.discard();
        }
        // A waiter of this process that hears the notification first would have to ask for the output.
        self.outbox.push(done.effects.notifications);
    }

    /// Gives each claimed job its slot, enters the job into the ledger, and starts it.
    fn start(&self, claimed: Vec<Claimed>, mut reserved: Vec<Reserved>, sent: Instant) {
        let mut envelopes = Vec::with_capacity(claimed.len());
        for job in claimed {
            let reserved_for = job.reserved.and_then(|at| reserved.get_mut(at));
            let slot = reserved_for.and_then(|it| it.permits.split(1));
            let resolved = self.config.registry.resolve(&job);
            envelopes.extend(Envelope::claimed(job, resolved, &self.ledger, slot, sent));
        }
        for reserved in reserved {
            if reserved.claims && reserved.count() == 0 {
                self.slots.get(reserved.queue).ask_again();
            }
        }
        self.receive(envelopes);
    }

    /// Passes claimed jobs on to apalis.
    pub(super) fn receive(&self, envelopes: Vec<Envelope>) {
        self.inbox.push(envelopes);
        if self.lifecycle.has_reached(Phase::Draining) {
            // The worker was stopped during the claim: hand its jobs back.
            drop(self.inbox.drain());
        }
        self.work.notify_one();
    }

    /// Drops the ends that cannot be written in time: other workers take over their jobs.
    fn give_up(&self) {
        let dropped = self.ledger.give_up();
        report::given_up(&dropped.held, report::ROWS_HELD);
        report::given_up(&dropped.unwritten, report::NO_ANSWER);
    }
}

pub(super) fn sent_before(end: AttemptEnd) -> AttemptEnd {
    AttemptEnd {
        sent_before: true,
        ..end
    }
}
