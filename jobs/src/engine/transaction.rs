//! The transaction of a turn: lock, end, settle, claim, commit.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection};

use super::ends::{Came, End, Verb};
use super::lines::{Line, Reserved};
use super::link::{Link, Trouble};
use super::marks::{Found, Ranges, place};
use super::probe::Moment;
use super::{News, Offer, Offered, Shared};
use crate::backend::Claimed;
use crate::input::Input;
use crate::limits;

/// What a committed turn came to.
#[derive(Default)]
pub(super) struct Done {
    pub(super) stale: HashSet<usize>,
    pub(super) failed: HashSet<usize>,
    pub(super) held: Vec<End>,
    pub(super) claimed: Vec<Claimed>,
    /// How many of the slots of each line were claimed for, and what came last where all were filled.
    pub(super) asked: Vec<Asked>,
    pub(super) queues: Vec<String>,
    pub(super) news: Vec<News>,
    /// Where the claim looked, and what it found out about the index.
    looked: Option<(Ranges, Vec<Found>, DateTime<Utc>)>,
    /// The lines of which large jobs were left, perhaps, because the claim had become too large.
    pub(super) cut_short: Vec<usize>,
}

/// What a claim asked of a line, and what came.
pub(super) struct Asked {
    /// Which of the reserved lines.
    pub(super) at: usize,
    pub(super) count: usize,
    /// Priority and waiting time of the last, where as many came as were asked for.
    pub(super) last: Option<(i16, Duration)>,
}

/// Why a turn was not committed, or may not have been.
#[derive(Debug)]
pub(super) enum Refused {
    /// Nothing was written.
    Error(sqlx::Error),
    /// The answer to the commit of this transaction was lost, and with it whether these are ours.
    Unknown(String, Vec<Claimed>),
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Self::Error(error)
    }
}

/// One transaction: lock, end, settle, claim, commit. `statement` is the longest that one of its
/// statements may take, where that is not the usual.
pub(super) async fn attempt(
    shared: &Shared,
    link: &mut Link,
    ends: Vec<End>,
    reserved: &[Reserved],
    wait: bool,
    statement: Option<Duration>,
) -> Result<(Vec<End>, Done), Refused> {
    let connection = link.try_get().await?;
    let mut tx = connection.begin().await?;
    if let Some(limit) = statement {
        let millis = limit.as_millis().to_string();
        sqlx::query_scalar!("select set_config('statement_timeout', $1, true)", millis)
            .fetch_one(&mut *tx)
            .await?;
    }
    let (mut ends, held) = lock(shared, &mut tx, ends, wait).await?;
    let mut done = Done {
        held,
        ..Done::default()
    };
    let mut xid = None;
    if !ends.is_empty() {
        xid = end(shared, &mut tx, &mut ends, &mut done).await?;
        settle(shared, &mut tx, &ends, &offer(shared, reserved), &mut done).await?;
        seat(shared, reserved, &mut done.claimed);
    }
    claim(shared, &mut tx, reserved, &mut done).await?;
    if !ends.is_empty() {
        shared.probe(Moment::BeforeCommit, ends.len()).await;
    }
    match (tx.commit().await, xid) {
        (Ok(()), _) => {
            if let Some((ranges, found, now)) = done.looked.take() {
                shared.marks.learn(&ranges, &found, now);
            }
            if !ends.is_empty() {
                shared.probe(Moment::AfterCommit, ends.len()).await;
            }
            Ok((ends, done))
        }
        (Err(error), Some(xid)) if Trouble::of(&error) == Trouble::Server => {
            tracing::warn!(%error, "the answer to a commit was lost");
            Err(Refused::Unknown(xid, done.claimed))
        }
        (Err(error), _) => Err(error.into()),
    }
}

async fn lock(
    shared: &Shared,
    tx: &mut PgConnection,
    ends: Vec<End>,
    wait: bool,
) -> Result<(Vec<End>, Vec<End>), sqlx::Error> {
    let mut may_go = vec![true; ends.len()];
    for settle in &shared.settle {
        let concerned: Vec<usize> = (0..ends.len())
            .filter(|at| settle.row(&ends[*at]).is_some())
            .collect();
        if concerned.is_empty() {
            continue;
        }
        let theirs: Vec<&End> = concerned.iter().map(|at| &ends[*at]).collect();
        let answers = settle.lock(&mut *tx, &theirs, wait).await?;
        for (at, answer) in concerned.into_iter().zip(answers) {
            may_go[at] &= answer;
        }
    }
    let (mut go, mut held) = (Vec::with_capacity(ends.len()), Vec::new());
    for (mut end, may_go) in ends.into_iter().zip(may_go) {
        if may_go {
            go.push(end);
        } else {
            end.held_since.get_or_insert_with(Instant::now);
            held.push(end);
        }
    }
    // In the order of ids: two who end the same jobs meet in one direction.
    go.sort_unstable_by_key(|end| end.id);
    Ok((go, held))
}

async fn end(
    shared: &Shared,
    tx: &mut PgConnection,
    ends: &mut [End],
    done: &mut Done,
) -> Result<Option<String>, sqlx::Error> {
    let column = |of: fn(&End) -> i64| ends.iter().map(of).collect::<Vec<i64>>();
    let verbs: Vec<i16> = ends.iter().map(|end| end.verb as i16).collect();
    let classes: Vec<Option<&str>> = ends.iter().map(|end| Some(end.error()?.0)).collect();
    let messages: Vec<Option<&str>> = ends.iter().map(|end| Some(end.error()?.1)).collect();
    let row = sqlx::query_file!(
        "src/sql/end.sql",
        &column(|end| end.id),
        &column(|end| end.token),
        &verbs,
        &column(|end| limits::millis(end.wait)),
        &classes as &[Option<&str>],
        &messages as &[Option<&str>],
        shared.settings.keep_succeeded,
        limits::millis(shared.settings.unknown_after),
    )
    .fetch_one(tx)
    .await?;
    let positions = |ords: Option<Vec<i32>>| {
        ords.unwrap_or_default()
            .into_iter()
            .filter_map(|ord| usize::try_from(ord - 1).ok())
            .collect::<HashSet<usize>>()
    };
    done.stale = positions(row.stale);
    // Some fail only in the database, which then says why.
    let said = row
        .classes
        .into_iter()
        .flatten()
        .zip(row.messages.into_iter().flatten());
    for (ord, said) in row.failed.iter().flatten().zip(said) {
        if let (Some(end), (Some(class), Some(message))) = (
            usize::try_from(ord - 1)
                .ok()
                .and_then(|at| ends.get_mut(at)),
            said,
        ) {
            end.error = Some((class, message));
        }
    }
    done.failed = positions(row.failed);
    Ok(row.xid)
}

/// What this worker can start at once.
fn offer(shared: &Shared, reserved: &[Reserved]) -> Offer {
    let free = |at: usize| {
        let reserved = reserved.iter().find(|reserved| reserved.line == at)?;
        let free = i32::try_from(reserved.permits.num_permits()).unwrap_or(i32::MAX);
        Some((free, shared.lines[at].floor()?))
    };
    // All patterns: a queue belongs to the most specific one, also where that has no slot free.
    let offered = |(at, line): (usize, &Line)| {
        let (free, floor) = free(at).unwrap_or((0, i16::MAX));
        Offered {
            pattern: line.pattern.clone(),
            free,
            floor,
        }
    };
    let lines = shared.lines.iter().enumerate().map(offered).collect();
    Offer {
        worker: shared.worker(),
        lines,
        kinds: shared.kinds.clone(),
    }
}

/// Gives what was handed over its place in one of the reserved lines.
fn seat(shared: &Shared, reserved: &[Reserved], started: &mut [Claimed]) {
    let mut left: Vec<usize> = reserved
        .iter()
        .map(|reserved| reserved.permits.num_permits())
        .collect();
    for job in started {
        let line = shared.lines.iter().position(|line| line.matches(&job.queue));
        let free = (0..reserved.len()).find(|at| Some(reserved[*at].line) == line && left[*at] > 0);
        if let Some(at) = free {
            left[at] -= 1;
            job.line = i32::try_from(at + 1).unwrap_or(0);
        }
    }
}

async fn settle(
    shared: &Shared,
    tx: &mut PgConnection,
    ends: &[End],
    offer: &Offer,
    done: &mut Done,
) -> Result<(), sqlx::Error> {
    for settle in &shared.settle {
        let theirs: Vec<(&End, Came)> = ends
            .iter()
            .enumerate()
            .filter(|(at, end)| !done.stale.contains(at) && settle.row(end).is_some())
            .map(|(at, end)| (end, came(end, done.failed.contains(&at))))
            .collect();
        if !theirs.is_empty() {
            let settled = settle.settle(&mut *tx, &theirs, offer).await?;
            done.queues.extend(settled.queues);
            done.news.extend(settled.news);
            done.claimed.extend(settled.started);
        }
    }
    Ok(())
}

fn came(end: &End, failed: bool) -> Came {
    match end.verb {
        _ if failed => Came::Failed,
        Verb::Succeed => Came::Succeeded,
        _ => Came::Back,
    }
}

/// Fills the slots that are left of the lines that may have work.
async fn claim(
    shared: &Shared,
    tx: &mut PgConnection,
    reserved: &[Reserved],
    done: &mut Done,
) -> Result<(), sqlx::Error> {
    let seated = |at: usize| {
        let line = i32::try_from(at + 1).unwrap_or(0);
        done.claimed.iter().filter(|job| job.line == line).count()
    };
    done.asked = (0..reserved.len())
        .filter(|at| reserved[*at].claims)
        .map(|at| Asked {
            at,
            count: reserved[at]
                .permits
                .num_permits()
                .saturating_sub(seated(at)),
            last: None,
        })
        .filter(|asked| asked.count > 0)
        .collect();
    if done.asked.is_empty() {
        return Ok(());
    }
    // All patterns: a queue belongs to the most specific one, also where that has no slot free.
    let patterns: Vec<&str> = shared.patterns().collect();
    let mut limits = vec![0_i32; patterns.len()];
    let mut looked_for = Vec::with_capacity(done.asked.len());
    for asked in &done.asked {
        let line = reserved[asked.at].line;
        limits[line] = i32::try_from(asked.count).unwrap_or(i32::MAX);
        looked_for.push((i32::try_from(line + 1).unwrap_or(0), patterns[line]));
    }
    let ranges = shared.marks.ranges(&looked_for);
    let rows = sqlx::query_file!(
        "src/sql/claim.sql",
        shared.worker(),
        // With the ids of the jobs, the tokens: never given out before, not even before a crash.
        fastrand::i64(0..=i64::MAX),
        &patterns as &[&str],
        &limits,
        shared.settings.claim_bytes,
        shared.settings.only.as_deref(),
        shared.takes_steps(),
        &ranges.lines as &[Option<i32>],
        &ranges.columns.queues,
        &ranges.columns.to_queues as &[Option<String>],
        &ranges.columns.ranks,
        &ranges.columns.times,
        &ranges.columns.ids,
        &ranges.columns.to_ranks,
    )
    .fetch_all(&mut *tx)
    .await?;
    let mut claimed = Vec::with_capacity(rows.len());
    let (mut found, mut now) = (Vec::new(), None);
    for row in rows {
        now = Some(row.claimed_at);
        let line = usize::try_from(row.line - 1).ok();
        if line.is_none() {
            found.push(Found {
                range: row.range.unwrap_or(0),
                step: row.step.unwrap_or(0),
                after: row.after_queue.zip(row.after_rank),
                place: place(row.queue, row.rank, row.run_at, row.id),
                visited: row.visited.unwrap_or(0),
            });
            continue;
        }
        let asked = done
            .asked
            .iter_mut()
            .find(|asked| Some(reserved[asked.at].line) == line);
        let (Some(asked), Some(id), Some(token)) = (asked, row.id, row.token) else {
            continue;
        };
        let (priority, run_at) = (row.priority.unwrap_or(0), row.run_at);
        let waited_ms = row.waited_ms.unwrap_or(0);
        let waited = Duration::from_millis(u64::try_from(waited_ms).unwrap_or(0));
        let last = asked.last.get_or_insert((priority, waited));
        *last = (last.0.min(priority), last.1.min(waited));
        if row.bytes.is_some() {
            done.cut_short.push(reserved[asked.at].line);
        }
        claimed.push(Claimed {
            line: i32::try_from(asked.at + 1).unwrap_or(0),
            id,
            token,
            queue: row.queue.unwrap_or_default(),
            kind: row.kind.unwrap_or_default(),
            attempt: row.attempt.unwrap_or(1),
            attempts: row.attempts.unwrap_or(1),
            priority,
            run_at: run_at.unwrap_or_default(),
            waited_ms,
            lease_ms: row.lease_ms.unwrap_or(1_000),
            batch: row.batch,
            args: row.args.unwrap_or_default(),
            input: row.input.map_or(Input::None, Input::Json),
            options: row.options,
            of_run: None,
        });
    }
    if let Some(now) = now {
        shared.marks.heard(now);
        done.looked = Some((ranges, found, now));
    }
    for asked in &mut done.asked {
        let line = i32::try_from(asked.at + 1).unwrap_or(0);
        let came = claimed.iter().filter(|job| job.line == line).count();
        asked.last = asked.last.filter(|_| came >= asked.count);
    }
    let count = claimed.len();
    for load in &shared.load {
        load.load(&mut *tx, &mut claimed).await?;
    }
    if claimed.len() < count {
        let lines = done.asked.iter().map(|asked| reserved[asked.at].line);
        done.cut_short.extend(lines);
    }
    claimed.sort_by(|a, b| (b.priority, a.run_at, a.id).cmp(&(a.priority, b.run_at, b.id)));
    done.claimed.extend(claimed);
    Ok(())
}
