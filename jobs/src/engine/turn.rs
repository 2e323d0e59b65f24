//! The committer and claimer: one transaction after the other.
//!
//! While one turn is being committed, ends gather; the next takes them all. There is no timer, and so
//! no added latency: a lone end goes at once, and the busier the process, the larger the groups. A
//! claim rides in the transaction that ends attempts when there is one, and goes alone when there is
//! none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;
use super::ends::{End, Verb, storable};
use super::lines::{Line, Reserved};
use super::link::{Link, Trouble};
use super::probe::Moment;
use super::recover::{confirmed, disown};
use super::transaction::{Done, Refused, attempt};

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

/// So many ends, and this share of all that are not committed, must wait before a second connection
/// helps.
pub(super) const MANY: usize = 25;
pub(super) const SHARE: usize = 5;

pub(crate) async fn run(shared: Arc<Shared>, mut link: Link) {
    loop {
        if shared.closing.is_cancelled() {
            // What a claim brought that was on its way for longer than the grace.
            drop(shared.inbox.drain());
        }
        if shared.is_held_up() {
            let _ = tokio::time::timeout(BREATH, shared.signal.notified()).await;
        }
        let (ends, alone) = next_ends(&shared, |_| true);
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
            let (ends, alone) = next_ends(&shared, |waiting| shared.are_many(waiting));
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
fn next_ends(shared: &Shared, enough: impl Fn(usize) -> bool) -> (Vec<End>, bool) {
    let mut waiting = shared.ends.lock();
    if !enough(waiting.len()) {
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
    let lines = shared.lines.iter().enumerate();
    let mut reserved = lines.filter_map(reserve).collect();
    // Who stops looks at the slots after it has said so: it sees these, or we see that.
    if shared.is_closed_to_work() {
        give_up(shared, &mut reserved);
    }
    reserved
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
        // Two of the longest statements, and a little of the others.
        let statement = (limit > LIMIT).then_some(limit / 2);
        let attempt = attempt(shared, link, ends.clone(), &reserved, wait, statement);
        let outcome = tokio::time::timeout(limit, attempt)
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
                Trouble::Server | Trouble::TooLong if shared.gives_up() && !ends.is_empty() => {
                    let count = ends.len();
                    tracing::error!(%error, count, "ends are left to those who take over");
                    shared.committed(count);
                }
                // A claim alone: the queue's data is at fault. The poll asks again.
                Trouble::Data if ends.is_empty() => {
                    tracing::error!(%error, "nothing can be claimed");
                    reserved.clear();
                }
                // No end answers for a claim that rode with it.
                Trouble::Data | Trouble::TooLong if !reserved.is_empty() && !ends.is_empty() => {
                    give_up(shared, &mut reserved);
                    groups.push(ends);
                }
                Trouble::Data | Trouble::TooLong if ends.len() > 1 => {
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
                Trouble::Server | Trouble::TooLong => {
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
            &format!(
                "the database refused the attempt's end: {error}; mend what the job returned or what \
                 refuses it, then retry the job, or reopen its run"
            ),
        )),
        output: None,
        ..end
    })
}

/// A committed turn: tell whoever must know, and start what was claimed.
async fn finish(
    shared: &Shared,
    ends: &[End],
    done: Done,
    mut reserved: Vec<Reserved>,
    sent: Instant,
) {
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
    let comes_back_at_once = |end: &&End| match end.verb {
        Verb::HandBack | Verb::Lost => true,
        Verb::Retry | Verb::Snooze => end.wait.is_zero(),
        _ => false,
    };
    let back = ends
        .iter()
        .filter(comes_back_at_once)
        .filter_map(|end| end.queue.as_deref().map(str::to_owned));
    note_asked(shared, &done, &mut reserved);
    for line in &done.cut_short {
        shared.lines[*line].wake();
    }
    shared.announce(back.chain(done.queues), sent);
    shared.tell(done.news.into_iter());
    if !done.held.is_empty() {
        shared.hold(done.held);
    }
    let count = done.claimed.len();
    if count > 0 {
        shared.probe(Moment::Claimed, count).await;
    }
    shared.start_claimed(done.claimed, reserved, sent);
    // Only now: whoever stops takes it that nothing comes any more.
    shared.committed(ends.len());
}

/// The lines remember what they were asked for, and what came last.
pub(super) fn note_asked(shared: &Shared, done: &Done, reserved: &mut [Reserved]) {
    for asked in &done.asked {
        reserved[asked.at].asked = asked.count;
        shared.lines[reserved[asked.at].line].claimed(asked.last);
    }
}
