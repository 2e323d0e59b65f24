//! The transaction of a committer: ends attempts, claims jobs, commits. No statement waits for a lock.

mod claim;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection};

use super::config::Config;
use super::connection::EngineConnection;
use super::end_rows::end_jobs;
use super::hooks::{Effects, EndSettings, Ended, FailedJob, Hooks, OfferedSlots, SlotOffer};
use super::marks::{Found, Ranges};
use super::probe::Moment;
use super::slots::{Reserved, Slots};
use crate::attempt::{AttemptEnd, Claimed, HeldRow};
use crate::limits;
use crate::sqlstate::{self, ErrorClass};

/// The parts of the worker that a transaction uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) config: &'a Config,
    pub(super) hooks: &'a Hooks,
    pub(super) slots: &'a Slots,
}

/// The work of one transaction: ends to write and slots to fill.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) ends: &'a [AttemptEnd],
    pub(super) reserved: &'a [Reserved],
    /// The timeout of a statement, if it differs from the usual one.
    pub(super) statement_limit: Option<Duration>,
    /// Whether to halve the claimed jobs when their inputs cannot be loaded, so that only the job with the
    /// failing input fails.
    pub(super) isolate_inputs: bool,
}

impl Request<'_> {
    /// Returns whether the transaction claims jobs.
    fn claims(&self) -> bool {
        self.reserved.iter().any(|reserved| reserved.claims)
    }

    /// Returns the settings with which the transaction ends attempts.
    fn end_settings(&self, config: &Config) -> EndSettings {
        EndSettings {
            keep_succeeded: config.keep_succeeded,
            unknown_ms: limits::millis(config.unknown_job_timeout),
            asynchronous_commit: !self.claims()
                && self.ends.iter().all(|end| end.asynchronous_commit),
        }
    }
}

/// The result of a committed transaction.
#[derive(Debug, Default)]
pub(super) struct Committed {
    /// Positions of ends that changed no row: the job's row was deleted or has another token.
    pub(super) stale: HashSet<usize>,
    /// Positions of ends after which their jobs have failed for good.
    pub(super) failed: HashMap<usize, FailedJob>,
    /// Positions of ends that were not written because another transaction holds the given row.
    pub(super) held: HashMap<usize, HeldRow>,
    pub(super) claimed: Vec<Claimed>,
    pub(super) asked: Vec<Asked>,
    pub(super) effects: Effects,
    /// Positions of patterns whose queues may still have large jobs, because the claim reached its byte limit.
    pub(super) cut_short: Vec<usize>,
    /// Queue and due time of jobs that were claimed and given back, because their inputs had no room.
    given_back: Vec<(String, DateTime<Utc>)>,
    /// The reason why inputs of jobs that are claimed by now could not be loaded. The claims must be given back.
    pub(super) load_error: Option<sqlx::Error>,
    /// The ranges that the claim scanned, and the positions that it found.
    looked: Option<(Ranges, Vec<Found>, DateTime<Utc>)>,
}

/// The number of jobs that a claim asked for in one pattern, and the last job that it got.
#[derive(Debug)]
pub(super) struct Asked {
    /// The position among the reserved slots.
    pub(super) at: usize,
    pub(super) count: usize,
    /// The priority and waiting time of the last claimed job, if the claim was filled.
    pub(super) last: Option<(i16, Duration)>,
}

/// The reason why a transaction was not committed, or may not have been committed.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error. Nothing was written.
    Error(sqlx::Error),
    /// An end hook needs rows that other transactions have locked; `rows` are the hook's own rows that depend
    /// on them. Nothing was written.
    Held { hook: usize, rows: Vec<i64> },
    /// The answer to the commit was lost: it is unknown whether these jobs are claimed.
    Unknown(Vec<Claimed>),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Error(error)
    }
}

/// The ends that one hook writes, or the engine itself.
#[derive(Debug)]
struct Share {
    /// The position of the hook; `None` for the engine.
    hook: Option<usize>,
    /// The positions of the ends.
    ends: Vec<usize>,
}

/// Runs one transaction. If a single statement does all its work, the statement is the transaction: there is no
/// `BEGIN` and no `COMMIT` to wait for.
pub(super) async fn run(
    parts: Parts<'_>,
    connection: &mut EngineConnection,
    request: Request<'_>,
) -> Result<Committed, Failure> {
    let shares = shares(parts.hooks, request.ends);
    if is_one_statement(parts, request, &shares) {
        return run_alone(parts, connection, request, &shares).await;
    }
    let mut tx = connection.get().await?.begin().await?;
    let done = match write(parts, &mut tx, request, &shares).await {
        Ok(done) => done,
        Err(failure) => {
            // At once: a transaction that is left open, aborted or not, is one that others see.
            let _ = tx.rollback().await;
            return Err(failure);
        }
    };
    commit(parts, tx, request, done).await
}

/// Sorts the ends by the hook that owns the job.
fn shares(hooks: &Hooks, ends: &[AttemptEnd]) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for (at, end) in ends.iter().enumerate() {
        let hook = hooks.end.iter().position(|hook| hook.row(end).is_some());
        match shares.iter_mut().find(|share| share.hook == hook) {
            Some(share) => share.ends.push(at),
            None => shares.push(Share {
                hook,
                ends: vec![at],
            }),
        }
    }
    // In the order of the hooks, so that all transactions lock rows in the same order.
    shares.sort_by_key(|share| share.hook.unwrap_or(usize::MAX));
    shares
}

fn is_one_statement(parts: Parts<'_>, request: Request<'_>, shares: &[Share]) -> bool {
    if request.statement_limit.is_some() || parts.hooks.has_probe() {
        return false;
    }
    let claims = request.claims();
    match shares {
        // A claim whose inputs are loaded half by half needs savepoints.
        [] => claims && !request.isolate_inputs,
        [Share { hook: None, .. }] => !claims || !request.isolate_inputs,
        [share] => {
            let hook = share.hook.and_then(|at| parts.hooks.end.get(at));
            !claims && hook.is_none_or(|hook| hook.is_one_statement())
        }
        _ => false,
    }
}

/// Runs a transaction of one statement: ends attempts, claims jobs, or does both. The inputs of claimed jobs are loaded
/// after the commit; if that fails, the caller gives the claims back.
async fn run_alone(
    parts: Parts<'_>,
    connection: &mut EngineConnection,
    request: Request<'_>,
    shares: &[Share],
) -> Result<Committed, Failure> {
    let mut done = Committed::default();
    let connection = connection.get().await?;
    let claims = request.claims();
    let written = match shares {
        [] => {
            let claimed = claim::claim(parts, connection, request, &mut done).await;
            claimed.map_err(Failure::Error)
        }
        [share @ Share { hook: None, .. }] if claims => {
            let ends: Vec<&AttemptEnd> = request.ends.iter().collect();
            let ended = claim::end_and_claim(parts, connection, request, &ends, &mut done).await;
            let ended = ended.map(|ended| done.add(ended, share, parts.hooks, request.ends));
            ended.map_err(Failure::Error)
        }
        _ => end(parts, connection, request, shares, &mut done).await,
    };
    match written {
        Ok(()) => {
            done.learn(parts.slots);
            Ok(done)
        }
        // The statement may have been committed, and its answer lost.
        Err(Failure::Error(error))
            if ErrorClass::of(&error) == ErrorClass::Server
                && error.as_database_error().is_none() =>
        {
            tracing::warn!(%error, "commit answer lost");
            Err(Failure::Unknown(Vec::new()))
        }
        Err(failure) => Err(failure),
    }
}

/// Does everything but the commit.
async fn write(
    parts: Parts<'_>,
    tx: &mut PgConnection,
    request: Request<'_>,
    shares: &[Share],
) -> Result<Committed, Failure> {
    if let Some(limit) = request.statement_limit {
        let millis = limit.as_millis().to_string();
        sqlx::query_scalar!("select set_config('statement_timeout', $1, true)", millis)
            .fetch_one(&mut *tx)
            .await?;
    }
    let mut done = Committed::default();
    end(parts, tx, request, shares, &mut done).await?;
    claim::claim(parts, tx, request, &mut done).await?;
    Ok(done)
}

async fn commit(
    parts: Parts<'_>,
    tx: sqlx::PgTransaction<'_>,
    request: Request<'_>,
    mut done: Committed,
) -> Result<Committed, Failure> {
    let ended = request.ends.len() - done.held.len();
    if ended > 0 {
        parts.hooks.probe(Moment::BeforeCommit, ended).await;
    }
    match tx.commit().await {
        Ok(()) => {
            done.learn(parts.slots);
            if ended > 0 {
                parts.hooks.probe(Moment::AfterCommit, ended).await;
            }
            Ok(done)
        }
        Err(error) if ErrorClass::of(&error) == ErrorClass::Server => {
            tracing::warn!(%error, "commit answer lost");
            Err(Failure::Unknown(done.claimed))
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends the attempts, and gives the started jobs their slots.
async fn end(
    parts: Parts<'_>,
    connection: &mut PgConnection,
    request: Request<'_>,
    shares: &[Share],
    done: &mut Committed,
) -> Result<(), Failure> {
    let settings = request.end_settings(parts.config);
    let offer = offer(parts, request.reserved);
    for share in shares {
        let ends: Vec<&AttemptEnd> = share.ends.iter().map(|at| &request.ends[*at]).collect();
        let hook = share.hook.and_then(|at| parts.hooks.end.get(at));
        let ended = match hook {
            Some(hook) => hook.end(&mut *connection, &ends, &offer, settings).await,
            None => end_jobs(&mut *connection, &ends, settings).await,
        };
        let ended = ended.map_err(|error| match (share.hook, sqlstate::held_rows(&error)) {
            (Some(hook), Some(rows)) => Failure::Held { hook, rows },
            _ => Failure::Error(error),
        })?;
        done.add(ended, share, parts.hooks, request.ends);
    }
    assign_slots(parts.slots, request.reserved, &mut done.claimed);
    Ok(())
}

impl Committed {
    /// Notes what the committed claim has learnt about the index.
    fn learn(&mut self, slots: &Slots) {
        if let Some((ranges, found, now)) = self.looked.take() {
            slots.marks.learn(&ranges, &found, now);
        }
        for (queue, run_at) in self.given_back.drain(..) {
            slots.marks.cut(&queue, run_at);
        }
    }

    /// Adds the result of one share.
    fn add(&mut self, ended: Ended, share: &Share, hooks: &Hooks, ends: &[AttemptEnd]) {
        let position = |at: usize| share.ends.get(at).copied();
        self.stale
            .extend(ended.stale.into_iter().filter_map(position));
        let held = ended.held.into_iter().filter_map(position);
        self.held
            .extend(held.map(|at| (at, HeldRow::Job(ends[at].id))));
        if !ended.held_rows.is_empty() {
            let rows: HashSet<i64> = ended.held_rows.into_iter().collect();
            let hook = share.hook.and_then(|at| Some((at, hooks.end.get(at)?)));
            if let Some((at_hook, hook)) = hook {
                for at in &share.ends {
                    if let Some(row) = hook.row(&ends[*at]).filter(|row| rows.contains(row)) {
                        self.held.insert(*at, HeldRow::Hook(at_hook, row));
                    }
                }
            }
        }
        let failed = ended.failed.into_iter();
        self.failed
            .extend(failed.filter_map(|(at, job)| Some((position(at)?, job))));
        let effects = ended.effects;
        self.claimed.extend(effects.started);
        self.effects.queues.extend(effects.queues);
        self.effects.notifications.extend(effects.notifications);
        self.effects.stop.extend(effects.stop);
        self.effects.after_commit.extend(effects.after_commit);
    }
}

/// Offers the reserved slots to hand-over. The offer includes patterns without a free slot: a queue that
/// belongs to such a pattern must not use the slots of a less specific pattern.
fn offer(parts: Parts<'_>, reserved: &[Reserved]) -> SlotOffer {
    let free = |at: usize| {
        let reserved = reserved.iter().find(|reserved| reserved.queue == at)?;
        let min_priority = parts.slots.get(at).min_priority()?;
        Some((i32::try_from(reserved.count()).ok()?, min_priority))
    };
    let offered = |(at, queue): (usize, &super::slots::QueueSlots)| {
        let (free, min_priority) = free(at).unwrap_or((0, i16::MAX));
        OfferedSlots {
            pattern: queue.pattern.clone(),
            free,
            min_priority,
        }
    };
    let queues = if reserved.is_empty() {
        Vec::new()
    } else {
        parts.slots.iter().enumerate().map(offered).collect()
    };
    SlotOffer {
        worker: parts.config.worker(),
        queues,
        job_types: parts.config.job_types.clone(),
    }
}

/// Assigns handed-over jobs to the reserved slots of their queues.
fn assign_slots(slots: &Slots, reserved: &[Reserved], started: &mut [Claimed]) {
    let mut left: Vec<usize> = reserved.iter().map(Reserved::count).collect();
    for job in started {
        let pattern = slots.pattern_of(&job.queue);
        let free =
            (0..reserved.len()).find(|at| left[*at] > 0 && Some(reserved[*at].queue) == pattern);
        if let Some(at) = free {
            left[at] -= 1;
            job.reserved = Some(at);
        }
    }
}
