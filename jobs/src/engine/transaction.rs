//! The transaction of a committer: lock, end, apply, claim, commit. No statement waits for a lock.

mod claim;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection};

use super::config::Config;
use super::connection::EngineConnection;
use super::hooks::{Effects, Hooks, OfferedSlots, SlotOffer};
use super::marks::{Found, Ranges};
use super::probe::Moment;
use super::slots::{Reserved, Slots};
use crate::attempt::{AttemptEnd, Claimed, EndKind, HeldRow, Outcome};
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
    /// Where the claim looked, and what it learnt about the index.
    looked: Option<(Ranges, Vec<Found>, DateTime<Utc>)>,
}

/// A job that failed for good.
#[derive(Debug)]
pub(super) struct FailedJob {
    /// The class and the message of the last error.
    pub(super) reason: (String, String),
    pub(super) kind: String,
    pub(super) key: Option<String>,
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

/// Runs one transaction.
pub(super) async fn run(
    parts: Parts<'_>,
    connection: &mut EngineConnection,
    request: Request<'_>,
) -> Result<Committed, Failure> {
    let mut tx = connection.get().await?.begin().await?;
    let done = match write(parts, &mut tx, request).await {
        Ok(done) => done,
        Err(failure) => {
            // At once: a transaction that is left open, aborted or not, is one that others see.
            let _ = tx.rollback().await;
            return Err(failure);
        }
    };
    commit(parts, tx, request, done).await
}

/// Does everything but the commit.
async fn write(
    parts: Parts<'_>,
    tx: &mut PgConnection,
    request: Request<'_>,
) -> Result<Committed, Failure> {
    if let Some(limit) = request.statement_limit {
        let millis = limit.as_millis().to_string();
        sqlx::query_scalar!("select set_config('statement_timeout', $1, true)", millis)
            .fetch_one(&mut *tx)
            .await?;
    }
    let mut done = Committed {
        held: lock(parts.hooks, tx, request.ends).await?,
        ..Committed::default()
    };
    end(parts.config, tx, request.ends, &mut done).await?;
    apply(parts, tx, request, &mut done).await?;
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
            if let Some((ranges, found, now)) = done.looked.take() {
                parts.slots.marks.learn(&ranges, &found, now);
            }
            for (queue, run_at) in done.given_back.drain(..) {
                parts.slots.marks.cut(&queue, run_at);
            }
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

/// Locks the hook rows of the ends without waiting. Returns the ends whose rows another transaction holds.
async fn lock(
    hooks: &Hooks,
    tx: &mut PgConnection,
    ends: &[AttemptEnd],
) -> Result<HashMap<usize, HeldRow>, sqlx::Error> {
    let mut held_ends = HashMap::new();
    for (at_hook, hook) in hooks.end.iter().enumerate() {
        let mut rows: Vec<i64> = ends.iter().filter_map(|end| hook.row(end)).collect();
        rows.sort_unstable();
        rows.dedup();
        if rows.is_empty() {
            continue;
        }
        let held: HashSet<i64> = hook.lock(&mut *tx, &rows).await?.into_iter().collect();
        if held.is_empty() {
            continue;
        }
        for (at, end) in ends.iter().enumerate() {
            if let Some(row) = hook.row(end).filter(|row| held.contains(row)) {
                held_ends.entry(at).or_insert(HeldRow::Hook(at_hook, row));
            }
        }
    }
    Ok(held_ends)
}

/// Ends the attempts whose rows are not held, in the order of their jobs' ids.
async fn end(
    config: &Config,
    tx: &mut PgConnection,
    ends: &[AttemptEnd],
    done: &mut Committed,
) -> Result<(), sqlx::Error> {
    let mut order: Vec<usize> = (0..ends.len())
        .filter(|at| !done.held.contains_key(at))
        .collect();
    if order.is_empty() {
        return Ok(());
    }
    order.sort_unstable_by_key(|at| ends[*at].id);
    let column = |of: fn(&AttemptEnd) -> i64| -> Vec<i64> {
        order.iter().map(|at| of(&ends[*at])).collect()
    };
    let kinds: Vec<i16> = order.iter().map(|at| ends[*at].kind as i16).collect();
    let errors: Vec<Option<(&str, &str)>> = order.iter().map(|at| ends[*at].error()).collect();
    let classes: Vec<Option<&str>> = errors.iter().map(|error| Some(error.as_ref()?.0)).collect();
    let messages: Vec<Option<&str>> = errors.iter().map(|error| Some(error.as_ref()?.1)).collect();
    let row = sqlx::query_file!(
        "src/sql/end.sql",
        &column(|end| end.id),
        &column(|end| end.token),
        &kinds,
        &column(|end| limits::millis(end.wait)),
        &classes as &[Option<&str>],
        &messages as &[Option<&str>],
        config.keep_succeeded,
        limits::millis(config.unknown_after),
    )
    .fetch_one(tx)
    .await?;
    let position = |ord: i32| {
        let at = usize::try_from(ord - 1).ok()?;
        order.get(at).copied()
    };
    done.stale = row
        .stale
        .into_iter()
        .flatten()
        .filter_map(position)
        .collect();
    for at in row.held.into_iter().flatten().filter_map(position) {
        done.held.insert(at, HeldRow::Job(ends[at].id));
    }
    // For some jobs the database decides that they have failed, and returns the reason.
    let reasons = row.classes.unwrap_or_default().into_iter();
    let reasons = reasons.zip(row.messages.unwrap_or_default());
    let names = row.kinds.unwrap_or_default().into_iter();
    let names = names.zip(row.keys.unwrap_or_default());
    let failed = row.failed.into_iter().flatten().zip(reasons.zip(names));
    for (ord, ((class, message), (kind, key))) in failed {
        if let Some(at) = position(ord) {
            let reason = (class.unwrap_or_default(), message.unwrap_or_default());
            done.failed.insert(at, FailedJob { reason, kind, key });
        }
    }
    Ok(())
}

/// Calls every end hook with the ends that concern it.
async fn apply(
    parts: Parts<'_>,
    tx: &mut PgConnection,
    request: Request<'_>,
    done: &mut Committed,
) -> Result<(), Failure> {
    let ends = request.ends;
    if ends.len() == done.held.len() {
        return Ok(());
    }
    // Hooks see the database's reason for failures that the database decided.
    let decided: HashMap<usize, AttemptEnd> = done
        .failed
        .iter()
        .filter(|(at, job)| ends[**at].error.as_ref() != Some(&job.reason))
        .map(|(at, job)| {
            let mut end = ends[*at].clone();
            end.error = Some(job.reason.clone());
            (*at, end)
        })
        .collect();
    let offer = offer(parts, request.reserved);
    for (at_hook, hook) in parts.hooks.end.iter().enumerate() {
        let concerned: Vec<(&AttemptEnd, Outcome)> = (0..ends.len())
            .filter(|at| !done.stale.contains(at) && !done.held.contains_key(at))
            .map(|at| {
                let end = decided.get(&at).unwrap_or(&ends[at]);
                (end, outcome(end, done.failed.contains_key(&at)))
            })
            .filter(|(end, _)| hook.row(end).is_some())
            .collect();
        if concerned.is_empty() {
            continue;
        }
        let effects = hook.apply(&mut *tx, &concerned, &offer).await;
        let effects = effects.map_err(|error| match sqlstate::held_rows(&error) {
            Some(rows) => Failure::Held {
                hook: at_hook,
                rows,
            },
            None => Failure::Error(error),
        })?;
        done.claimed.extend(effects.started);
        done.effects.queues.extend(effects.queues);
        done.effects.notifications.extend(effects.notifications);
        done.effects.stop.extend(effects.stop);
        done.effects.failed.extend(effects.failed);
        done.effects.after_commit.extend(effects.after_commit);
    }
    seat(parts.slots, request.reserved, &mut done.claimed);
    Ok(())
}

fn outcome(end: &AttemptEnd, has_failed: bool) -> Outcome {
    match end.kind {
        _ if has_failed => Outcome::Failed,
        EndKind::Succeed => Outcome::Succeeded,
        _ => Outcome::WillRetry,
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
        kinds: parts.config.kinds.clone(),
    }
}

/// Assigns handed-over jobs to the reserved slots of their queues.
fn seat(slots: &Slots, reserved: &[Reserved], started: &mut [Claimed]) {
    let mut left: Vec<usize> = reserved.iter().map(Reserved::count).collect();
    for job in started {
        let pattern = slots.pattern_of(&job.queue);
        let free =
            (0..reserved.len()).find(|at| left[*at] > 0 && Some(reserved[*at].queue) == pattern);
        if let Some(at) = free {
            left[at] -= 1;
            job.line = i32::try_from(at + 1).unwrap_or(0);
        }
    }
}
