//! The claim of a transaction: jobs for the slots that are left, and their inputs.

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection};

use super::{Asked, Committed, Parts, Request};
use crate::attempt::{AttemptEnd, Claimed};
use crate::engine::end_rows::{EndRow, FailedRow, end_jobs};
use crate::engine::hooks::{Ended, Hooks};
use crate::engine::marks::{Found, Ranges, place};
use crate::input::Input;
use crate::sqlstate::ErrorClass;

/// A row of a claim: a claimed job, or a position in the index if its `line` is 0. The answer about the ends of the
/// same statement stands in the first row.
#[derive(Debug)]
struct ClaimRow {
    stale_ends: Option<Vec<i32>>,
    held_ends: Option<Vec<i32>>,
    failed_ends: Option<Vec<FailedRow>>,
    line: Option<i32>,
    id: Option<i64>,
    token: Option<i64>,
    queue: Option<String>,
    job_type: Option<String>,
    attempt: Option<i16>,
    max_attempts: Option<i16>,
    priority: Option<i16>,
    run_at: Option<DateTime<Utc>>,
    waited_ms: Option<i64>,
    lease_ms: Option<i32>,
    batch: Option<i64>,
    args: Option<String>,
    input: Option<String>,
    options: Option<String>,
    claimed_at: Option<DateTime<Utc>>,
    bytes: Option<i32>,
    range: Option<i32>,
    step: Option<i32>,
    after_queue: Option<String>,
    after_rank: Option<i32>,
    rank: Option<i32>,
    visited: Option<i64>,
    held: Option<i64>,
}

/// The arguments of a claim.
struct Search<'a> {
    /// All patterns of the worker: a queue belongs to its most specific pattern, even if that has no free slot.
    patterns: Vec<&'a str>,
    limits: Vec<i32>,
    ranges: Ranges,
}

/// Claims jobs for the reserved slots that hand-over has left free, and loads their inputs.
pub(super) async fn claim(
    parts: Parts<'_>,
    tx: &mut PgConnection,
    request: Request<'_>,
    done: &mut Committed,
) -> Result<(), sqlx::Error> {
    let Some(search) = search(parts, request, done) else {
        return Ok(());
    };
    let (ranges, columns) = (&search.ranges, &search.ranges.columns);
    let rows = sqlx::query_file_as!(
        ClaimRow,
        "src/sql/claim.sql",
        parts.config.worker(),
        random_token(),
        &search.patterns as &[&str],
        &search.limits,
        parts.config.claim_bytes,
        parts.config.only.as_deref(),
        parts.hooks.claims_owned_jobs(),
        &ranges.lines as &[Option<i32>],
        &columns.queues,
        &columns.to_queues as &[Option<String>],
        &columns.ranks,
        &columns.times,
        &columns.ids,
        &columns.to_ranks,
    )
    .fetch_all(&mut *tx)
    .await?;
    let claimed = read(parts, request, search, rows, done);
    load_all(parts, tx, request, claimed, done).await
}

/// Ends attempts of plain jobs and claims jobs in one statement, which is the transaction. Returns the answer about
/// the ends. If the inputs of the claimed jobs cannot be loaded afterwards, [`Committed::load_error`] is set, and the
/// caller gives the claims back.
pub(super) async fn end_and_claim(
    parts: Parts<'_>,
    connection: &mut PgConnection,
    request: Request<'_>,
    ends: &[&AttemptEnd],
    done: &mut Committed,
) -> Result<Ended, sqlx::Error> {
    let settings = request.end_settings(parts.config);
    let Some(search) = search(parts, request, done) else {
        return end_jobs(connection, ends, settings).await;
    };
    let (ranges, columns) = (&search.ranges, &search.ranges.columns);
    let mut rows = sqlx::query_file_as!(
        ClaimRow,
        "src/sql/end_and_claim.sql",
        &EndRow::of(ends) as _,
        settings.keep_succeeded,
        settings.unknown_ms,
        parts.config.worker(),
        random_token(),
        &search.patterns as &[&str],
        &search.limits,
        parts.config.claim_bytes,
        parts.config.only.as_deref(),
        parts.hooks.claims_owned_jobs(),
        &ranges.lines as &[Option<i32>],
        &columns.queues,
        &columns.to_queues as &[Option<String>],
        &columns.ranks,
        &columns.times,
        &columns.ids,
        &columns.to_ranks,
    )
    .fetch_all(&mut *connection)
    .await?;
    let ended = rows.first_mut().map(|row| {
        Ended::of_jobs(
            row.stale_ends.take(),
            row.held_ends.take(),
            row.failed_ends.take(),
        )
    });
    let claimed = read(parts, request, search, rows, done);
    if let Err(error) = load_all(parts, connection, request, claimed, done).await {
        done.load_error = Some(error);
    }
    Ok(ended.unwrap_or_default())
}

/// Returns the number that the tokens of a claim are derived from, together with the jobs' ids. The number is random,
/// because a sequence may return the same number twice after a crash or a failover.
fn random_token() -> i64 {
    fastrand::i64(0..=i64::MAX)
}

/// Returns the arguments of a claim for the reserved slots that are left, if any are.
fn search<'a>(parts: Parts<'a>, request: Request<'_>, done: &mut Committed) -> Option<Search<'a>> {
    let reserved = request.reserved;
    let assigned = |at: usize| {
        let claimed = done.claimed.iter();
        claimed.filter(|job| job.reserved == Some(at)).count()
    };
    done.asked = (0..reserved.len())
        .filter(|at| reserved[*at].claims)
        .map(|at| Asked {
            at,
            count: reserved[at].count().saturating_sub(assigned(at)),
            last: None,
        })
        .filter(|asked| asked.count > 0)
        .collect();
    if done.asked.is_empty() {
        return None;
    }
    let slots = parts.slots;
    let patterns: Vec<&str> = slots.iter().map(|queue| queue.pattern.as_str()).collect();
    let mut limits = vec![0_i32; patterns.len()];
    let mut looked_for = Vec::with_capacity(done.asked.len());
    for asked in &done.asked {
        let queue = reserved[asked.at].queue;
        limits[queue] = i32::try_from(asked.count).unwrap_or(i32::MAX);
        looked_for.push((i32::try_from(queue + 1).unwrap_or(0), patterns[queue]));
    }
    let ranges = slots.marks.ranges(&looked_for);
    Some(Search {
        patterns,
        limits,
        ranges,
    })
}

/// Reads the answer of a claim: the claimed jobs, and what the claim has learnt about the index.
fn read(
    parts: Parts<'_>,
    request: Request<'_>,
    search: Search<'_>,
    rows: Vec<ClaimRow>,
    done: &mut Committed,
) -> Vec<Claimed> {
    let reserved = request.reserved;
    let mut claimed = Vec::with_capacity(rows.len());
    let (mut found, mut now) = (Vec::new(), None);
    for row in rows {
        let (Some(line), Some(claimed_at)) = (row.line, row.claimed_at) else {
            continue;
        };
        now = Some(claimed_at);
        let Some(queue) = usize::try_from(line - 1).ok() else {
            found.push(Found {
                range: row.range.unwrap_or(0),
                step: row.step.unwrap_or(0),
                after: row.after_queue.zip(row.after_rank),
                place: place(row.queue, row.rank, row.run_at, row.id),
                visited: row.visited.unwrap_or(0),
                held: row.held,
            });
            continue;
        };
        let mut asked = done.asked.iter_mut();
        let asked = asked.find(|asked| reserved[asked.at].queue == queue);
        let (Some(asked), Some(id), Some(token)) = (asked, row.id, row.token) else {
            continue;
        };
        let priority = row.priority.unwrap_or(0);
        let waited_ms = row.waited_ms.unwrap_or(0);
        let waited = Duration::from_millis(u64::try_from(waited_ms).unwrap_or(0));
        let last = asked.last.get_or_insert((priority, waited));
        *last = (last.0.min(priority), last.1.min(waited));
        if row.bytes.is_some() {
            done.cut_short.push(queue);
        }
        claimed.push(Claimed {
            id,
            reserved: Some(asked.at),
            token,
            queue: row.queue.unwrap_or_default(),
            job_type: row.job_type.unwrap_or_default(),
            attempt: row.attempt.unwrap_or(1),
            max_attempts: row.max_attempts.unwrap_or(1),
            priority,
            run_at: row.run_at.unwrap_or_default(),
            waited_ms,
            lease_ms: row.lease_ms.unwrap_or(1_000),
            batch: row.batch,
            args: row.args.unwrap_or_default(),
            input: row.input.map_or(Input::None, Input::Json),
            options: row.options,
            owner: None,
        });
    }
    if let Some(now) = now {
        parts.slots.marks.record_time(now);
        done.looked = Some((search.ranges, found, now));
    }
    for asked in &mut done.asked {
        let is_here = |job: &&Claimed| job.reserved == Some(asked.at);
        let count = claimed.iter().filter(is_here).count();
        asked.last = asked.last.filter(|_| count >= asked.count);
    }
    claimed
}

/// Loads the inputs of the claimed jobs and adds the jobs to the result.
async fn load_all(
    parts: Parts<'_>,
    tx: &mut PgConnection,
    request: Request<'_>,
    mut claimed: Vec<Claimed>,
    done: &mut Committed,
) -> Result<(), sqlx::Error> {
    let before: Vec<(i64, String, DateTime<Utc>)> = claimed
        .iter()
        .filter(|job| job.is_owned())
        .map(|job| (job.id, job.queue.clone(), job.run_at))
        .collect();
    let count = claimed.len();
    load(parts.hooks, tx, &mut claimed, request.isolate_inputs).await?;
    if claimed.len() < count {
        let kept: HashSet<i64> = claimed.iter().map(|job| job.id).collect();
        let given_back = before.into_iter().filter(|(id, ..)| !kept.contains(id));
        done.given_back
            .extend(given_back.map(|(_, queue, run_at)| (queue, run_at)));
        let queues = done
            .asked
            .iter()
            .map(|asked| request.reserved[asked.at].queue);
        done.cut_short.extend(queues);
    }
    claimed.sort_by(|a, b| (b.priority, a.run_at, a.id).cmp(&(a.priority, b.run_at, b.id)));
    done.claimed.extend(claimed);
    Ok(())
}

/// Loads the inputs of claimed jobs. Removes the jobs from the list whose inputs exceed the byte limit for now.
async fn load(
    hooks: &Hooks,
    tx: &mut PgConnection,
    claimed: &mut Vec<Claimed>,
    isolate: bool,
) -> Result<(), sqlx::Error> {
    if !isolate {
        for hook in &hooks.claim {
            hook.load(&mut *tx, claimed).await?;
        }
        return Ok(());
    }
    let mut parts = vec![std::mem::take(claimed)];
    while let Some(part) = parts.pop() {
        let mut savepoint = tx.begin().await?;
        let mut loaded = part.clone();
        let mut outcome = Ok(());
        for hook in &hooks.claim {
            outcome = hook.load(&mut savepoint, &mut loaded).await;
            if outcome.is_err() {
                break;
            }
        }
        match outcome {
            Ok(()) => {
                savepoint.commit().await?;
                claimed.extend(loaded);
            }
            Err(error) if ErrorClass::of(&error) == ErrorClass::Data => {
                savepoint.rollback().await?;
                split_or_refuse(part, &error, &mut parts, claimed);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Halves a list of jobs whose inputs cannot be loaded; refuses the input if the list is a single job.
fn split_or_refuse(
    mut part: Vec<Claimed>,
    error: &sqlx::Error,
    parts: &mut Vec<Vec<Claimed>>,
    claimed: &mut Vec<Claimed>,
) {
    if part.len() > 1 {
        let second = part.split_off(part.len() / 2);
        parts.push(second);
        parts.push(part);
        return;
    }
    for mut job in part {
        tracing::error!(job.id = job.id, job.type = job.job_type, %error, "job input could not be loaded");
        job.input = Input::Refused(
            "InputRefused".to_owned(),
            format!(
                "the database could not load the job's input: {error}; make the input smaller or repair \
                 it, then retry the job, or reopen its run"
            ),
        );
        claimed.push(job);
    }
}
