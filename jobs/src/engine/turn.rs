//! The committer and claimer: one transaction after the other.
//!
//! While one turn is being committed, ends gather; the next takes them all. There is no timer, and so
//! no added latency: a lone end goes at once, and the busier the process, the larger the groups. A
//! claim rides in the transaction that ends attempts when there is one, and goes alone when there is
//! none.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection};

use super::ends::{Came, End, Verb, storable};
use super::lines::{Line, Reserved};
use super::link::{Link, Trouble};
use super::probe::Moment;
use super::recover::{confirmed, disown};
use super::{News, Offer, Offered, Shared};
use crate::Input;
use crate::backend::Claimed;

/// The most jobs in one claim.
const CLAIM: u32 = 2_000;
/// Above so many uncommitted ends, nothing more is claimed.
const BACKLOG: usize = 10_000;
/// So long does an end wait for a row that others hold, before it goes alone and waits its turn.
const HELD: Duration = Duration::from_millis(100);
/// The longest that one turn may take.
const LIMIT: Duration = Duration::from_secs(60);

/// So long do ends that others hold up wait for company before they are tried again.
const BREATH: Duration = Duration::from_millis(5);

/// So many ends must wait before a second connection helps: few are better off in one group.
pub(super) const MANY: usize = 200;

pub(crate) async fn run(shared: Arc<Shared>, mut link: Link) {
    loop {
        if shared.is_held_up() {
            let _ = tokio::time::timeout(BREATH, shared.signal.notified()).await;
        }
        let (ends, alone) = next_ends(&shared, 0);
        let reserved = if alone {
            Vec::new()
        } else {
            reserve(&shared, &ends)
        };
        if ends.is_empty() && reserved.is_empty() {
            if shared.is_drained() {
                break;
            }
            shared.signal.notified().await;
            continue;
        }
        see_through(&shared, &mut link, ends, reserved, alone).await;
    }
    shared.drained.cancel();
}

/// A second pair of hands: while one turn is being committed and many ends have gathered, takes these.
pub(crate) async fn assist(shared: Arc<Shared>, mut link: Link) {
    loop {
        tokio::select! {
            () = shared.many.notified() => {}
            () = shared.drained.cancelled() => return,
        }
        loop {
            let (ends, alone) = next_ends(&shared, MANY);
            if ends.is_empty() {
                break;
            }
            let reserved = if alone {
                Vec::new()
            } else {
                reserve(&shared, &ends)
            };
            see_through(&shared, &mut link, ends, reserved, alone).await;
        }
    }
}

async fn see_through(
    shared: &Shared,
    link: &mut Link,
    ends: Vec<End>,
    reserved: Vec<Reserved>,
    alone: bool,
) {
    let tokens: Vec<i64> = ends.iter().map(End::token).collect();
    turn(shared, link, ends, reserved, alone).await;
    let mut in_flight = shared.in_flight.lock();
    for token in &tokens {
        in_flight.remove(token);
    }
}

/// The next group: all that have gathered, or those of one held row alone.
fn next_ends(shared: &Shared, at_least: usize) -> (Vec<End>, bool) {
    let mut waiting = shared.ends.lock();
    if waiting.len() < at_least {
        return (Vec::new(), false);
    }
    let (ends, alone) = take_ends(shared, &mut waiting);
    // Before anybody else can look: at every moment an end is here or there.
    shared.in_flight.lock().extend(ends.iter().map(End::token));
    (ends, alone)
}

fn take_ends(shared: &Shared, waiting: &mut Vec<End>) -> (Vec<End>, bool) {
    let rows = |end: &End| -> Vec<Option<i64>> {
        shared.settle.iter().map(|settle| settle.row(end)).collect()
    };
    let overdue = waiting
        .iter()
        .find(|end| end.held_since.is_some_and(|since| since.elapsed() >= HELD))
        .map(rows);
    if let Some(row) = overdue {
        let (alone, rest) = waiting.drain(..).partition(|end| rows(end) == row);
        *waiting = rest;
        return (alone, true);
    }
    let count = waiting.len().min(shared.settings.group);
    (waiting.drain(..count).collect(), false)
}

/// The slots that this turn may fill: by a claim where there may be work, and by what the ends of
/// steps set free.
fn reserve(shared: &Shared, ends: &[End]) -> Vec<Reserved> {
    if shared.is_closed_to_work() || shared.uncommitted() > BACKLOG {
        return Vec::new();
    }
    let hand_over = shared.takes_steps() && ends.iter().any(End::is_step);
    let reserve = |(line, it): (usize, &Line)| {
        let slots = it.reserve(CLAIM, hand_over)?;
        Some(Reserved {
            line,
            asked: 0,
            permits: slots.permits,
            claims: slots.claims,
        })
    };
    shared
        .lines
        .iter()
        .enumerate()
        .filter_map(reserve)
        .collect()
}

/// What a committed turn came to.
#[derive(Default)]
pub(super) struct Done {
    pub(super) stale: HashSet<usize>,
    failed: HashSet<usize>,
    pub(super) held: Vec<End>,
    pub(super) claimed: Vec<Claimed>,
    /// How many of the slots of each line were claimed for, and what came last where all were filled.
    asked: Vec<Asked>,
    queues: Vec<String>,
    news: Vec<News>,
}

/// What a claim asked of a line, and what came.
pub(super) struct Asked {
    /// Which of the reserved lines.
    at: usize,
    count: usize,
    /// Priority and waiting time of the last, where as many came as were asked for.
    last: Option<(i16, Duration)>,
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

/// Sees these ends through, whatever happens on the way.
async fn turn(
    shared: &Shared,
    link: &mut Link,
    ends: Vec<End>,
    reserved: Vec<Reserved>,
    wait: bool,
) {
    let mut groups = vec![ends];
    let mut reserved = reserved;
    let mut limit = LIMIT;
    while let Some(ends) = groups.pop() {
        if ends.is_empty() && reserved.is_empty() {
            continue;
        }
        if link.is_new() {
            // Not while another turn may have claimed what nobody has heard of yet.
            let _quiet = shared.turning.write().await;
            disown(shared, link, &shared.known_tokens()).await;
        }
        let _turning = shared.turning.read().await;
        let sent = Instant::now();
        let outcome =
            tokio::time::timeout(limit, attempt(shared, link, ends.clone(), &reserved, wait))
                .await
                .unwrap_or_else(|_| Err(Refused::Error(sqlx::Error::PoolTimedOut)));
        match outcome {
            Ok((ends, done)) => {
                link.good();
                limit = LIMIT;
                finish(shared, &ends, done, std::mem::take(&mut reserved), sent).await;
            }
            Err(Refused::Unknown(xid, claimed)) => {
                link.forget();
                let claimed = confirmed(shared, link, &xid, claimed).await;
                if claimed.is_empty() {
                    give_up(shared, &mut reserved);
                } else {
                    shared.start_claimed(claimed, std::mem::take(&mut reserved), sent);
                }
                // Sent again, whatever came of them: the fence knows what has been written.
                let again = |end| End {
                    sent_before: true,
                    ..end
                };
                groups.push(ends.into_iter().map(again).collect());
            }
            Err(Refused::Error(error)) => match Trouble::of(&error) {
                // A claim alone: the queue's data is at fault. The poll asks again.
                Trouble::Data if ends.is_empty() => {
                    tracing::error!(%error, "nothing can be claimed");
                    reserved.clear();
                }
                // No end answers for a claim that rode with it.
                Trouble::Data if !reserved.is_empty() => {
                    give_up(shared, &mut reserved);
                    groups.push(ends);
                }
                Trouble::Data if ends.len() > 1 => {
                    tracing::warn!(%error, count = ends.len(), "a group of ends was refused; it is split");
                    let half = ends.len() / 2;
                    groups.push(ends[half..].to_vec());
                    groups.push(ends[..half].to_vec());
                }
                Trouble::Data => {
                    let refused = ends
                        .into_iter()
                        .filter_map(|end| refuse(shared, end, &error));
                    groups.push(refused.collect());
                }
                Trouble::Conflict => {
                    tracing::debug!(%error, "a turn is tried again");
                    groups.push(ends);
                }
                Trouble::Server if shared.gives_up() => {
                    let count = ends.len();
                    tracing::error!(%error, count, "ends are left to those who take over");
                    shared.committed(count);
                }
                Trouble::Server => {
                    tracing::warn!(%error, "a turn could not be committed; it is tried again");
                    // Nothing is claimed while we wait: the slots belong to whoever comes first.
                    give_up(shared, &mut reserved);
                    groups.push(ends);
                    limit = (limit * 2).min(LIMIT * 10);
                    link.bad(&shared.closing).await;
                }
            },
        }
    }
}

/// Lets go of slots that no claim filled; there may still be work for them.
fn give_up(shared: &Shared, reserved: &mut Vec<Reserved>) {
    for reserved in reserved.drain(..) {
        shared.lines[reserved.line].wake();
        drop(reserved.permits);
    }
    shared.signal.notify_one();
}

/// The culprit stands alone: its attempt ends failed, with the reason. If that is refused as well, its
/// lease runs out, and the row says so.
fn refuse(shared: &Shared, end: End, error: &sqlx::Error) -> Option<End> {
    let hopeless = end
        .error
        .as_ref()
        .is_some_and(|(class, _)| class == "EndRefused");
    if hopeless {
        tracing::error!(job.id = end.id, %error, "an end cannot be written");
        shared.committed(1);
        shared.lost.lock().remove(&end.token);
        return None;
    }
    Some(End {
        verb: Verb::Fail,
        error: Some(storable(
            "EndRefused",
            &format!("the database refused the attempt's end: {error}"),
        )),
        output: None,
        ..end
    })
}

/// One transaction: lock, end, settle, claim, commit.
pub(super) async fn attempt(
    shared: &Shared,
    link: &mut Link,
    ends: Vec<End>,
    reserved: &[Reserved],
    wait: bool,
) -> Result<(Vec<End>, Done), Refused> {
    let connection = link.try_get().await?;
    let mut tx = connection.begin().await?;
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
        &column(|end| i64::try_from(end.wait.as_millis()).unwrap_or(i64::MAX)),
        &classes as &[Option<&str>],
        &messages as &[Option<&str>],
        shared.settings.keep_succeeded,
        i64::try_from(shared.settings.unknown_after.as_millis()).unwrap_or(i64::MAX),
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
    let lines = reserved
        .iter()
        .filter_map(|reserved| {
            let line = &shared.lines[reserved.line];
            Some(Offered {
                pattern: line.pattern.clone(),
                free: i32::try_from(reserved.permits.num_permits()).unwrap_or(i32::MAX),
                floor: line.floor()?,
            })
        })
        .collect();
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
        let free = (0..reserved.len())
            .find(|at| left[*at] > 0 && shared.lines[reserved[*at].line].matches(&job.queue));
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
    let patterns: Vec<&str> = done
        .asked
        .iter()
        .map(|asked| shared.lines[reserved[asked.at].line].pattern.as_str())
        .collect();
    let limits: Vec<i32> = done
        .asked
        .iter()
        .map(|asked| i32::try_from(asked.count).unwrap_or(i32::MAX))
        .collect();
    let rows = sqlx::query_file!(
        "src/sql/claim.sql",
        shared.worker(),
        &patterns as &[&str],
        &limits,
        shared.settings.only.as_deref(),
        shared.takes_steps(),
    )
    .fetch_all(&mut *tx)
    .await?;
    let mut claimed = Vec::with_capacity(rows.len());
    for row in rows {
        let at = usize::try_from(row.line - 1).ok();
        let Some(asked) = at.and_then(|at| done.asked.get_mut(at)) else {
            continue;
        };
        let waited = Duration::from_millis(u64::try_from(row.waited_ms).unwrap_or(0));
        let last = asked.last.get_or_insert((row.priority, waited));
        *last = (last.0.min(row.priority), last.1.min(waited));
        claimed.push(Claimed {
            line: i32::try_from(asked.at + 1).unwrap_or(0),
            id: row.id,
            token: row.token,
            queue: row.queue,
            kind: row.kind,
            attempt: row.attempt,
            attempts: row.attempts,
            priority: row.priority,
            run_at: row.run_at,
            waited_ms: row.waited_ms,
            lease_ms: row.lease_ms,
            batch: row.batch,
            args: row.args,
            input: row.input.map_or(Input::None, Input::Json),
            options: row.options,
        });
    }
    for asked in &mut done.asked {
        let line = i32::try_from(asked.at + 1).unwrap_or(0);
        let came = claimed.iter().filter(|job| job.line == line).count();
        asked.last = asked.last.filter(|_| came >= asked.count);
    }
    for load in &shared.load {
        load.load(&mut *tx, &mut claimed).await?;
    }
    claimed.sort_by(|a, b| (b.priority, a.run_at, a.id).cmp(&(a.priority, b.run_at, b.id)));
    done.claimed.extend(claimed);
    Ok(())
}

/// A committed turn: tell whoever must know, and start what was claimed.
async fn finish(
    shared: &Shared,
    ends: &[End],
    done: Done,
    mut reserved: Vec<Reserved>,
    sent: Instant,
) {
    shared.committed(ends.len());
    {
        let mut lost = shared.lost.lock();
        for end in ends.iter().filter(|end| end.verb == Verb::Lost) {
            lost.remove(&end.token);
        }
    }
    for at in &done.stale {
        if let Some(end) = ends.get(*at)
            && end.verb != Verb::Lost
            && !end.sent_before
        {
            tracing::warn!(
                job.id = end.id,
                token = end.token,
                "a late end changed nothing: the lease was lost"
            );
        }
    }
    let soonest = ends
        .iter()
        .filter(|end| matches!(end.verb, Verb::Retry | Verb::Snooze | Verb::Unknown))
        .map(|end| end.wait)
        .min();
    shared.due_in(soonest);
    let back = ends
        .iter()
        .filter(|end| matches!(end.verb, Verb::HandBack | Verb::Lost))
        .filter_map(|end| end.queue.as_deref().map(str::to_owned));
    note_asked(shared, &done, &mut reserved);
    shared.announce(back.chain(done.queues));
    shared.tell(done.news.into_iter());
    if !done.held.is_empty() {
        shared.hold(done.held);
    }
    let count = done.claimed.len();
    if count > 0 {
        shared.probe(Moment::Claimed, count).await;
    }
    shared.start_claimed(done.claimed, reserved, sent);
}

/// The lines remember what they were asked for, and what came last.
pub(super) fn note_asked(shared: &Shared, done: &Done, reserved: &mut [Reserved]) {
    for asked in &done.asked {
        reserved[asked.at].asked = asked.count;
        shared.lines[reserved[asked.at].line].claimed(asked.last);
    }
}
