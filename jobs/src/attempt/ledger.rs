//! The ledger: every attempt of this process and the stage it is in, behind one lock.
//!
//! ```text
//!            claim            end               take_group           committed
//! (nothing) ------> running ------> waiting ------------> writing ------------> (nothing)
//!                      |            ^     ^                |  |  |
//!                 lapse|  retry time|     |    put_back    |  |  | isolate
//!                      v            |     +----------------+  |  +-------> isolated
//!                   lapsed        held <----------------------+ defer
//! ```
//!
//! Invariants; each change happens under the lock:
//!
//! 1. From its claim until its end is committed, an attempt is in the ledger. A reconnecting committer
//!    releases every row that was claimed for this worker and is *not* in the ledger.
//! 2. An end is in only one stage, so only one transaction at a time writes it.
//! 3. An attempt ends once: a second end of the same token is ignored.
//! 4. The lease of an attempt is renewed until its end is committed, also while the end waits.
//! 5. An end whose row another transaction holds waits in `held`, together with later ends of that row.
//!    A held end never delays the ends of other rows.
//! 6. The ledger is quiet when no attempt runs and no open transaction may still claim.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{AttemptEnd, Claimed, Control, EndKind, JobLabel, StopReason};

/// The first pause before the ends of a held row are retried. The pause doubles each time.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(2);
/// The maximum pause before the ends of a held row are retried.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The maximum pause for a row that has been held for longer than [`LONG_HELD`].
const MAX_RETRY_DELAY_LONG_HELD: Duration = Duration::from_millis(500);
/// The time for which a row has to be held until its maximum pause is [`MAX_RETRY_DELAY_LONG_HELD`].
const LONG_HELD: Duration = Duration::from_secs(5);

/// The time for which the token of a lapsed attempt is kept, in leases of the attempt.
const LAPSED_LEASES: u32 = 20;

/// The minimum number of waiting ends from which on the second committer writes ends.
const CROWDED_COUNT: usize = 25;
/// The divisor of the uncommitted ends: the second committer writes ends when at least one in this many waits.
const CROWDED_SHARE: usize = 5;

/// The limits of one group of ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupLimits {
    /// The maximum number of ends.
    pub(crate) count: usize,
    /// The maximum bytes of outputs and errors. A group of one end may be larger.
    pub(crate) bytes: usize,
}

/// A row that must be locked before an end can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum HeldRow {
    /// A row that an end hook locks: the hook's position and the row's id.
    Hook(usize, i64),
    /// The queue row of the job.
    Job(i64),
}

/// Ends that are written on a separate connection, because a group that contained them failed.
#[derive(Debug)]
pub(crate) struct IsolatedGroup {
    pub(crate) ends: Vec<AttemptEnd>,
    /// The time limit of the transaction.
    pub(crate) limit: Duration,
}

/// The ends that a worker drops when its shutdown times out.
#[derive(Debug, Default)]
pub(crate) struct GivenUp {
    /// Ends that waited for the database.
    pub(crate) unwritten: Vec<AttemptEnd>,
    /// Ends that waited for a row that another transaction holds.
    pub(crate) held: Vec<AttemptEnd>,
}

/// A row for which ends wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LongHeld {
    pub(crate) row: HeldRow,
    /// How long the row has been held.
    pub(crate) time: Duration,
    /// The number of ends that wait for the row.
    pub(crate) ends: usize,
}

/// All attempts of one worker.
#[derive(Debug)]
pub(crate) struct Ledger {
    state: Mutex<State>,
    limits: GroupLimits,
    /// Wakes the committer.
    work: Arc<Notify>,
    /// Wakes the second committer.
    crowded: Notify,
    /// Wakes the task that writes isolated groups.
    isolated: Notify,
    /// Wakes shutdown when no attempt runs or no end is left to write.
    quiet: Notify,
}

#[derive(Debug, Default)]
struct State {
    attempts: HashMap<i64, Entry>,
    /// Tokens of attempts that a client of this process is about to claim for this worker.
    expected: HashSet<i64>,
    /// Tokens of ends in the order in which they arrived.
    waiting: VecDeque<i64>,
    held: HashMap<HeldRow, Held>,
    /// The time at which the ends of each held row are retried.
    schedule: BTreeSet<(Instant, HeldRow)>,
    /// Rows whose ends are being retried: the time since which each is held, and the last pause.
    probing: HashMap<HeldRow, (Instant, Duration)>,
    isolated: VecDeque<IsolatedGroup>,
    /// The number of open transactions that may still claim.
    transactions: usize,
    running: usize,
    writing: usize,
    in_isolation: usize,
    held_ends: usize,
    held_bytes: usize,
}

#[derive(Debug)]
struct Entry {
    /// The lease to renew; `None` for an attempt that this process takes over from another worker.
    lease: Option<Lease>,
    job: i64,
    stage: Stage,
}

#[derive(Debug)]
struct Lease {
    length: Duration,
    /// When the last request was sent that set or renewed the lease.
    renewed: Instant,
}

#[derive(Debug)]
enum Stage {
    /// Claimed, and running or about to run. The prepared end is filled in when the attempt ends.
    Running(Arc<Control>, Box<AttemptEnd>),
    Waiting(Box<AttemptEnd>),
    Writing,
    Held(Box<AttemptEnd>),
    Isolated,
    /// Stopped because its lease was lost: another worker ends the job.
    Lapsed(Instant),
}

#[derive(Debug)]
struct Held {
    since: Instant,
    delay: Duration,
    retry_at: Instant,
    tokens: Vec<i64>,
}

/// Counts an open transaction that may claim, until this guard is dropped.
#[derive(Debug)]
pub(crate) struct TransactionGuard<L: Deref<Target = Ledger>>(L);

impl<L: Deref<Target = Ledger>> Drop for TransactionGuard<L> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.transactions -= 1;
        drop(state);
        self.0.quiet.notify_one();
        self.0.work.notify_one();
    }
}

impl Ledger {
    pub(crate) fn new(limits: GroupLimits, work: Arc<Notify>) -> Self {
        Self {
            state: Mutex::default(),
            limits,
            work,
            crowded: Notify::new(),
            isolated: Notify::new(),
            quiet: Notify::new(),
        }
    }

    // --- an attempt's own life ---------------------------------------------------------------------

    /// Enters a claimed attempt, whose lease counts from `sent`. Returns `false` without a change if the
    /// token is already known.
    pub(crate) fn claim(&self, job: &Claimed, control: Arc<Control>, sent: Instant) -> bool {
        let length = Duration::from_millis(u64::try_from(job.lease_ms).unwrap_or(1_000));
        let entry = Entry {
            lease: Some(Lease {
                length,
                renewed: sent,
            }),
            job: job.id,
            stage: Stage::Running(control, Box::new(AttemptEnd::of_claim(job))),
        };
        let mut state = self.state.lock();
        if state.attempts.contains_key(&job.token) {
            return false;
        }
        state.attempts.insert(job.token, entry);
        state.running += 1;
        true
    }

    /// Ends a running attempt. `fill` completes the end; if `fill` returns `false`, another worker is
    /// responsible for the job, and the attempt becomes lapsed.
    pub(crate) fn end(&self, token: i64, fill: impl FnOnce(&mut AttemptEnd) -> bool) {
        let mut state = self.state.lock();
        let Some(entry) = state.attempts.get_mut(&token) else {
            return;
        };
        let lapsed = Stage::Lapsed(Instant::now());
        let stage = std::mem::replace(&mut entry.stage, lapsed);
        let Stage::Running(_, mut end) = stage else {
            entry.stage = stage;
            return;
        };
        let crowded = if fill(&mut end) {
            entry.stage = Stage::Waiting(end);
            state.waiting.push_back(token);
            state.is_crowded()
        } else {
            false
        };
        state.running -= 1;
        let idle = state.running == 0;
        drop(state);
        self.work.notify_one();
        if crowded {
            self.crowded.notify_one();
        }
        if idle {
            self.quiet.notify_one();
        }
    }

    /// Enters the end of an attempt whose lease another worker lost. Returns `false` if the token is already
    /// known: this process watches the leases of its own attempts.
    pub(crate) fn take_over(&self, end: AttemptEnd) -> bool {
        let token = end.token;
        let entry = Entry {
            lease: None,
            job: end.id,
            stage: Stage::Waiting(Box::new(end)),
        };
        let mut state = self.state.lock();
        // A lapsed attempt of this process is taken over like those of others.
        let known = state.attempts.get(&token);
        if known.is_some_and(|known| !matches!(known.stage, Stage::Lapsed(_))) {
            return false;
        }
        state.attempts.insert(token, entry);
        state.waiting.push_back(token);
        drop(state);
        self.work.notify_one();
        true
    }

    // --- writing ends ------------------------------------------------------------------------------

    /// Counts a transaction that may claim until the returned guard is dropped.
    pub(crate) fn transaction(&self) -> TransactionGuard<&Self> {
        self.state.lock().transactions += 1;
        TransactionGuard(self)
    }

    /// Counts an open transaction of a client that may claim for this worker, until the guard is dropped.
    pub(crate) fn owned_transaction(self: &Arc<Self>) -> TransactionGuard<Arc<Self>> {
        self.state.lock().transactions += 1;
        TransactionGuard(Arc::clone(self))
    }

    /// Adds the token of an attempt that a client of this process is about to claim for this worker.
    pub(crate) fn expect(&self, token: i64) {
        self.state.lock().expected.insert(token);
    }

    /// Removes a token that is not expected any more: the attempt was entered, or its claim was not made.
    pub(crate) fn forget_expected(&self, token: i64) {
        self.state.lock().expected.remove(&token);
    }

    /// Takes the next group of ends, up to the group limits, with the held ends whose retry is due at `now`.
    /// Ends of rows that are known to be held are moved to `held`. With `only_if_crowded`, takes ends only if
    /// many wait.
    pub(crate) fn take_group(
        &self,
        now: Instant,
        only_if_crowded: bool,
        rows_of: impl Fn(&AttemptEnd) -> Vec<HeldRow>,
    ) -> Vec<AttemptEnd> {
        let mut state = self.state.lock();
        if state.release_due(now) {
            self.isolated.notify_one();
        }
        if only_if_crowded && !state.is_crowded() {
            // The first committer may have looked for the next retry already.
            self.work.notify_one();
            return Vec::new();
        }
        let (mut group, mut bytes) = (Vec::new(), 0);
        while group.len() < self.limits.count {
            let Some(token) = state.waiting.pop_front() else {
                break;
            };
            let Some(entry) = state.attempts.get_mut(&token) else {
                continue;
            };
            let stage = std::mem::replace(&mut entry.stage, Stage::Writing);
            let Stage::Waiting(end) = stage else {
                entry.stage = stage;
                continue;
            };
            if !state.held.is_empty()
                && let Some(row) = rows_of(&end)
                    .into_iter()
                    .find(|row| state.held.contains_key(row))
            {
                state.hold(*end, row);
                continue;
            }
            let size = end.bytes();
            if !group.is_empty() && bytes + size > self.limits.bytes {
                if let Some(entry) = state.attempts.get_mut(&token) {
                    entry.stage = Stage::Waiting(end);
                }
                state.waiting.push_front(token);
                break;
            }
            bytes += size;
            state.writing += 1;
            group.push(*end);
        }
        group
    }

    /// Puts unwritten ends back at the front of the waiting ends.
    pub(crate) fn put_back(&self, ends: Vec<AttemptEnd>) {
        let mut state = self.state.lock();
        for end in ends.into_iter().rev() {
            let token = end.token;
            if let Some(entry) = state.attempts.get_mut(&token)
                && matches!(entry.stage, Stage::Writing)
            {
                entry.stage = Stage::Waiting(Box::new(end));
                state.writing -= 1;
                state.waiting.push_front(token);
            }
        }
        drop(state);
        self.work.notify_one();
    }

    /// Defers ends whose row another transaction holds at `now`. Ends of other workers' attempts are dropped:
    /// the next tick finds them again if their leases are still expired.
    pub(crate) fn defer(&self, now: Instant, ends: Vec<(AttemptEnd, HeldRow)>) {
        let mut state = self.state.lock();
        for (end, row) in ends {
            state.writing -= 1;
            let is_foreign = |entry: &Entry| entry.lease.is_none();
            if state.attempts.get(&end.token).is_some_and(is_foreign) {
                state.attempts.remove(&end.token);
                continue;
            }
            let before = state.probing.remove(&row);
            if let std::collections::hash_map::Entry::Vacant(vacant) = state.held.entry(row) {
                let (since, delay) = before.map_or((now, FIRST_RETRY_DELAY), |(since, delay)| {
                    let max = if now.duration_since(since) < LONG_HELD {
                        MAX_RETRY_DELAY
                    } else {
                        MAX_RETRY_DELAY_LONG_HELD
                    };
                    (since, (delay * 2).min(max))
                });
                let retry_at = now + delay.mul_f64(0.75 + 0.5 * fastrand::f64());
                vacant.insert(Held {
                    since,
                    delay,
                    retry_at,
                    tokens: Vec::new(),
                });
                state.schedule.insert((retry_at, row));
            }
            state.hold(end, row);
        }
        drop(state);
        self.work.notify_one();
        self.quiet.notify_one();
    }

    /// Moves ends to an isolated group after a transaction with all of them failed.
    pub(crate) fn isolate(&self, ends: Vec<AttemptEnd>, limit: Duration) {
        if ends.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for end in &ends {
            if let Some(entry) = state.attempts.get_mut(&end.token) {
                entry.stage = Stage::Isolated;
            }
        }
        state.writing -= ends.len();
        state.in_isolation += ends.len();
        state.isolated.push_back(IsolatedGroup { ends, limit });
        drop(state);
        self.isolated.notify_one();
    }

    /// Takes the next isolated group.
    pub(crate) fn take_isolated(&self) -> Option<IsolatedGroup> {
        let mut state = self.state.lock();
        let group = state.isolated.pop_front()?;
        for end in &group.ends {
            if let Some(entry) = state.attempts.get_mut(&end.token) {
                entry.stage = Stage::Writing;
            }
        }
        state.in_isolation -= group.ends.len();
        state.writing += group.ends.len();
        Some(group)
    }

    /// Removes attempts whose ends are committed or stale.
    pub(crate) fn committed(
        &self,
        ends: &[AttemptEnd],
        rows_of: impl Fn(&AttemptEnd) -> Vec<HeldRow>,
    ) {
        let mut state = self.state.lock();
        for end in ends {
            state.attempts.remove(&end.token);
            if !state.probing.is_empty() {
                for row in rows_of(end) {
                    state.probing.remove(&row);
                }
            }
        }
        state.writing -= ends.len();
        drop(state);
        self.quiet.notify_one();
    }

    /// Drops every end that is not being written. Other workers take over their jobs.
    pub(crate) fn give_up(&self) -> GivenUp {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut dropped = GivenUp::default();
        state.attempts.retain(|_, entry| {
            match std::mem::replace(&mut entry.stage, Stage::Writing) {
                Stage::Waiting(end) => dropped.unwritten.push(*end),
                Stage::Held(end) => dropped.held.push(*end),
                Stage::Isolated => {}
                stage => {
                    entry.stage = stage;
                    return true;
                }
            }
            false
        });
        let isolated = state.isolated.drain(..).flat_map(|group| group.ends);
        dropped.unwritten.extend(isolated);
        state.waiting.clear();
        state.held.clear();
        state.schedule.clear();
        state.probing.clear();
        state.in_isolation = 0;
        state.held_ends = 0;
        state.held_bytes = 0;
        dropped
    }

    /// Drops ends that were being written and cannot be written.
    pub(crate) fn forget(&self, ends: &[AttemptEnd]) {
        self.committed(ends, |_| Vec::new());
    }

    // --- leases ------------------------------------------------------------------------------------

    /// Returns the job and token of every attempt whose lease was last renewed more than a third of its
    /// length ago, including attempts whose end is not committed yet.
    pub(crate) fn leases_due(&self) -> Vec<(i64, i64)> {
        let state = self.state.lock();
        let due = |entry: &Entry| {
            let lease = entry.lease.as_ref()?;
            (!matches!(entry.stage, Stage::Lapsed(_))
                && lease.renewed.elapsed() >= lease.length / 3)
                .then_some(entry.job)
        };
        state
            .attempts
            .iter()
            .filter_map(|(token, entry)| Some((due(entry)?, *token)))
            .collect()
    }

    /// Records that leases were renewed. A renewed lease counts from `sent`, a time before the request was sent, so
    /// that the lease in the database never expires earlier.
    pub(crate) fn renewed(&self, tokens: impl Iterator<Item = i64>, sent: Instant) {
        let mut state = self.state.lock();
        for token in tokens {
            if let Some(lease) = state
                .attempts
                .get_mut(&token)
                .and_then(|entry| entry.lease.as_mut())
            {
                lease.renewed = sent;
            }
        }
    }

    /// Stops a running attempt whose row has another token. Returns the job if the attempt was running.
    pub(crate) fn lease_lost(&self, token: i64) -> Option<i64> {
        let state = self.state.lock();
        let entry = state.attempts.get(&token)?;
        match &entry.stage {
            Stage::Running(control, _) => control.kill(StopReason::LeaseLost).then_some(entry.job),
            _ => None,
        }
    }

    /// Stops the running attempts whose lease could not be renewed for five sixths of its length, so that
    /// they end before the lease expires. Returns their jobs.
    pub(crate) fn stop_lapsed(&self) -> Vec<i64> {
        let mut state = self.state.lock();
        let (mut stopped, mut forgotten) = (Vec::new(), Vec::new());
        for (token, entry) in &state.attempts {
            let Some(lease) = &entry.lease else { continue };
            match &entry.stage {
                Stage::Lapsed(at) if at.elapsed() > lease.length * LAPSED_LEASES => {
                    forgotten.push(*token);
                }
                // The lease of a waiting end is renewed as soon as the database answers.
                Stage::Running(control, _)
                    if lease.renewed.elapsed() >= lease.length * 5 / 6
                        && control.kill(StopReason::LeaseLost) =>
                {
                    stopped.push(entry.job);
                }
                _ => {}
            }
        }
        for token in forgotten {
            state.attempts.remove(&token);
        }
        stopped
    }

    /// Returns the tokens of all attempts in the ledger.
    pub(crate) fn tokens(&self) -> Vec<i64> {
        let state = self.state.lock();
        let tokens = state.attempts.keys().chain(&state.expected);
        tokens.copied().collect()
    }

    // --- running attempts --------------------------------------------------------------------------

    /// Asks every running attempt to stop.
    pub(crate) fn ask_all_to_stop(&self) {
        for entry in self.state.lock().attempts.values() {
            if let Stage::Running(control, _) = &entry.stage {
                control.ask_to_stop();
            }
        }
    }

    /// Asks the running attempts of these jobs to stop.
    pub(crate) fn ask_to_stop(&self, jobs: &[i64]) {
        if jobs.is_empty() {
            return;
        }
        let jobs: HashSet<i64> = jobs.iter().copied().collect();
        for entry in self.state.lock().attempts.values() {
            if let Stage::Running(control, _) = &entry.stage
                && jobs.contains(&entry.job)
            {
                control.ask_to_stop();
            }
        }
    }

    /// Aborts every running attempt; an attempt is handed back when its future is dropped.
    pub(crate) fn kill_all(&self) {
        for entry in self.state.lock().attempts.values() {
            if let Stage::Running(control, _) = &entry.stage {
                control.kill(StopReason::Shutdown);
            }
        }
    }

    /// Hands back the running attempts that could not be aborted, without waiting for them. Returns their
    /// jobs.
    pub(crate) fn abandon_all(&self) -> Vec<i64> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut jobs = Vec::new();
        for (token, entry) in &mut state.attempts {
            let stage = std::mem::replace(&mut entry.stage, Stage::Writing);
            match stage {
                Stage::Running(control, mut end) => {
                    control.abandon();
                    end.kind = EndKind::HandBack;
                    entry.stage = Stage::Waiting(end);
                    state.waiting.push_back(*token);
                    state.running -= 1;
                    jobs.push(entry.job);
                }
                stage => entry.stage = stage,
            }
        }
        self.work.notify_one();
        self.quiet.notify_one();
        jobs
    }

    /// Returns the job that this task performs, the name of its type, and its queue.
    pub(crate) fn performed_by(&self, task: tokio::task::Id) -> Option<(i64, String, String)> {
        let state = self.state.lock();
        state
            .attempts
            .values()
            .find_map(|entry| match &entry.stage {
                Stage::Running(control, end) if control.runs_in(task) => {
                    let (label, queue) = (end.label.as_ref()?, end.queue.as_ref()?);
                    Some((entry.job, label.job_type.clone(), queue.as_ref().to_owned()))
                }
                _ => None,
            })
    }

    /// Returns the jobs, with their labels, whose current poll has taken longer than `limit`.
    pub(crate) fn blocked(&self, limit: Duration) -> Vec<(i64, Duration, Arc<JobLabel>)> {
        let state = self.state.lock();
        let blocked = |entry: &Entry| match &entry.stage {
            Stage::Running(control, end) => {
                let time = control.in_poll_for().filter(|time| *time > limit)?;
                Some((entry.job, time, end.label.clone()?))
            }
            _ => None,
        };
        state.attempts.values().filter_map(blocked).collect()
    }

    // --- counts and waiting ------------------------------------------------------------------------

    /// Returns the number of ends that wait or are being written, without held ends.
    pub(crate) fn uncommitted(&self) -> usize {
        self.state.lock().uncommitted()
    }

    /// Returns the number and the bytes of held ends.
    pub(crate) fn held(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.held_ends, state.held_bytes)
    }

    /// Returns the rows that have been held for at least `limit` at `now`, the longest held first.
    pub(crate) fn long_held(&self, now: Instant, limit: Duration) -> Vec<LongHeld> {
        let state = self.state.lock();
        let rows = state.held.iter().map(|(row, held)| LongHeld {
            row: *row,
            time: now.saturating_duration_since(held.since),
            ends: held.tokens.len(),
        });
        let mut rows: Vec<LongHeld> = rows.filter(|held| held.time >= limit).collect();
        rows.sort_unstable_by_key(|held| (std::cmp::Reverse(held.time), held.row));
        rows
    }

    /// Returns the time at which the ends of a held row are retried next.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.schedule.first().map(|(at, _)| *at)
    }

    /// Returns whether no attempt runs and no open transaction may still claim.
    pub(crate) fn is_quiet(&self) -> bool {
        let state = self.state.lock();
        state.running == 0 && state.transactions == 0
    }

    /// Returns whether no attempt runs, no end is left to write, and no open transaction may still claim.
    pub(crate) fn is_drained(&self) -> bool {
        let state = self.state.lock();
        state.running == 0
            && state.transactions == 0
            && state.uncommitted() == 0
            && state.held_ends == 0
    }

    /// Completes when there may be enough waiting ends for the second committer.
    pub(crate) async fn crowded(&self) {
        self.crowded.notified().await;
    }

    /// Completes when there may be an isolated group.
    pub(crate) async fn isolated(&self) {
        self.isolated.notified().await;
    }

    /// Completes when [`is_quiet`](Self::is_quiet) or [`is_drained`](Self::is_drained) may have changed.
    pub(crate) async fn may_be_quiet(&self) {
        self.quiet.notified().await;
    }
}

impl State {
    fn uncommitted(&self) -> usize {
        self.waiting.len() + self.writing + self.in_isolation
    }

    /// Returns whether the second committer should write ends. A few ends, or a small share of all
    /// uncommitted ends, are better written in one group.
    fn is_crowded(&self) -> bool {
        self.waiting.len() >= CROWDED_COUNT.max(self.uncommitted() / CROWDED_SHARE)
    }

    /// Moves an end to `held` until the ends of its row are retried.
    fn hold(&mut self, end: AttemptEnd, row: HeldRow) {
        let token = end.token;
        let Some(entry) = self.attempts.get_mut(&token) else {
            return;
        };
        if entry.lease.is_none() {
            self.attempts.remove(&token);
            return;
        }
        self.held_ends += 1;
        self.held_bytes += end.bytes();
        entry.stage = Stage::Held(Box::new(end));
        if let Some(held) = self.held.get_mut(&row) {
            held.tokens.push(token);
        }
    }

    /// Moves held ends whose retry is due at `now` back to the waiting ends. Ends that were isolated before go back
    /// to isolation. Returns whether an end went to isolation.
    fn release_due(&mut self, now: Instant) -> bool {
        let mut isolated = false;
        while let Some((at, row)) = self.schedule.first().copied() {
            if at > now {
                break;
            }
            self.schedule.pop_first();
            let Some(held) = self.held.remove(&row) else {
                continue;
            };
            debug_assert_eq!(held.retry_at, at);
            self.probing.insert(row, (held.since, held.delay));
            for token in held.tokens {
                let Some(entry) = self.attempts.get_mut(&token) else {
                    continue;
                };
                let stage = std::mem::replace(&mut entry.stage, Stage::Writing);
                let Stage::Held(end) = stage else {
                    entry.stage = stage;
                    continue;
                };
                self.held_ends -= 1;
                self.held_bytes -= end.bytes();
                if let Some(limit) = end.isolation_limit {
                    entry.stage = Stage::Isolated;
                    self.in_isolation += 1;
                    let ends = vec![*end];
                    self.isolated.push_back(IsolatedGroup { ends, limit });
                    isolated = true;
                } else {
                    entry.stage = Stage::Waiting(end);
                    self.waiting.push_back(token);
                }
            }
        }
        isolated
    }
}

#[cfg(test)]
mod tests;
