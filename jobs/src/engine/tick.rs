//! What time brings: jobs that are due, leases that ran out, a sign of life, and news for others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use sqlx::PgConnection;

use super::Shared;
use super::ends::{End, Verb};
use super::link::{Link, limited};
use super::marks::{Looked, Swept, place};
use crate::Error;

/// How long a worker that is done waits for the database to hear of it.
const GOODBYE: Duration = Duration::from_secs(2);
/// Others are told of jobs that became ready so long after they were due: their marks may be later than
/// that.
const DUE_LATE: TimeDelta = TimeDelta::seconds(5);
/// Between two sweeps lies so many times the time that one takes: what it costs is then bounded, however
/// many dead rows a transaction elsewhere keeps.
const SWEEP_SHARE: u32 = 20;

/// Registers the worker; without a row of its own, nothing is claimed.
pub(crate) async fn register(shared: &Shared, link: &mut Link) -> bool {
    loop {
        let registered = async {
            let connection = link.try_get().await?;
            if let Some(lack) = crate::migrate::lacking(connection).await? {
                return Ok(Err(lack));
            }
            sqlx::query_file_scalar!(
                "src/sql/register_worker.sql",
                shared.settings.name,
                shared.settings.host,
                i32::try_from(std::process::id()).unwrap_or(0),
                shared.queues_json(),
                &shared.registry.names(),
                &shared.registry.versions(),
                shared.takes_steps(),
            )
            .fetch_one(connection)
            .await
            .map(Ok)
        };
        let error = match limited(registered).await {
            Ok(Ok(worker)) => {
                link.good();
                let _ = shared.worker.set(worker);
                return true;
            }
            Ok(Err(lack)) => lack,
            Err(error) => Error::from(error),
        };
        match error {
            // `run` ends with it. A worker that others run cannot end by itself: it goes on when somebody
            // has migrated.
            Error::NotMigrated { .. } => shared.refuse(error),
            error => tracing::warn!(%error, "the worker cannot be registered; trying again"),
        }
        link.bad(&shared.stopping).await;
        if shared.stopping.is_cancelled() {
            return false;
        }
    }
}

pub(crate) async fn run(shared: Arc<Shared>, mut link: Link) {
    let mut looked = Looked::default();
    // When the next sweep is due: at once, then with each poll, or rarer where sweeps take long.
    let mut next_sweep = Instant::now();
    // When the next tick is due; at once where there is none. News do not wait for it.
    let mut next: Option<Instant> = None;
    while !shared.drained.is_cancelled() {
        let outcome = async {
            let connection = link.try_get().await?;
            announce(&shared, connection).await?;
            let now = Instant::now();
            match next {
                Some(at) if now < at => return Ok(at),
                _ if shared.stopping.is_cancelled() => return Ok(now + shared.settings.poll),
                _ => {}
            }
            let poll = shared.settings.poll;
            let asked = shared.sweep_asked.swap(false, Ordering::AcqRel);
            let sweeps = asked || now >= next_sweep;
            let due = async {
                if sweeps {
                    sweep(&shared, connection, &mut looked).await?;
                }
                tick(&shared, connection, &mut looked).await
            };
            let due = due.await;
            if sweeps {
                let took = now.elapsed();
                next_sweep = Instant::now() + poll.max(took * SWEEP_SHARE);
                shared.marks.sweep_took(took);
            }
            let due = due?;
            Ok(Instant::now() + due.map_or(poll, |due| due.min(poll)))
        };
        let outcome = tokio::select! {
            outcome = limited(outcome) => outcome,
            () = overdue(&shared) => Err(sqlx::Error::PoolTimedOut),
        };
        match outcome {
            Ok(at) => {
                link.good();
                next = wait(&shared, at).await;
            }
            Err(error) => {
                tracing::warn!(%error, "the database does not answer; trying again");
                link.bad(&shared.drained).await;
                next = None;
            }
        }
    }
    farewell(&shared, &mut link).await;
}

/// Nothing is left to do but to say goodbye, and the database still does not answer.
async fn overdue(shared: &Shared) {
    shared.drained.cancelled().await;
    tokio::time::sleep(GOODBYE).await;
}

/// Until the tick is due, which is never later than the poll: it covers every notification that was
/// never sent or never heard. Where there are news before that, returns when it will be.
async fn wait(shared: &Shared, at: Instant) -> Option<Instant> {
    loop {
        let local = *shared.next_due.lock();
        let until = local.map_or(at, |local| local.min(at));
        let pause = until.saturating_duration_since(Instant::now());
        tokio::select! {
            () = tokio::time::sleep(pause.max(Duration::from_millis(1))) => break,
            () = shared.tick_now.notified() => break,
            () = shared.drained.cancelled() => break,
            () = shared.news_now.notified() => return Some(until),
            () = shared.due_changed.notified() => {}
        }
    }
    // What is due later than now will be found by the tick that follows.
    shared.next_due.lock().take();
    None
}

/// Looks where nothing was seen before: into the marks here, and the tick that follows into the rest.
pub(super) async fn sweep(
    shared: &Shared,
    connection: &mut PgConnection,
    looked: &mut Looked,
) -> Result<(), sqlx::Error> {
    looked.look_back(shared.marks.depth());
    let sweep = shared.marks.sweep();
    if sweep.queues.is_empty() {
        return Ok(());
    }
    let rows = sqlx::query_file!(
        "src/sql/sweep.sql",
        &sweep.queues,
        &sweep.ranks,
        &sweep.times,
        &sweep.to_times,
        &sweep.to_ids,
        &sweep.before.queues,
        &sweep.before.to_queues as &[Option<String>],
        &sweep.before.ranks,
        &sweep.before.times,
        &sweep.before.ids,
        &sweep.before.to_ranks,
    )
    .fetch_all(connection)
    .await?;
    let swept: Vec<Swept> = rows
        .into_iter()
        .map(|row| Swept {
            part: row.part,
            place: place(row.queue, row.rank, row.run_at, row.id),
            visited: row.visited,
        })
        .collect();
    for queue in shared.marks.swept(&sweep, &swept) {
        shared.wake_line(&queue);
    }
    Ok(())
}

/// One statement; returns when the next job is due.
pub(super) async fn tick(
    shared: &Shared,
    connection: &mut PgConnection,
    looked: &mut Looked,
) -> Result<Option<Duration>, sqlx::Error> {
    let patterns: Vec<(i32, &str)> = (1..).zip(shared.patterns()).collect();
    let ranges = shared.marks.ranges(&patterns).columns;
    let asked = looked.to_ask(shared.marks.time_at(Instant::now()));
    let row = sqlx::query_file!(
        "src/sql/tick.sql",
        shared.worker(),
        shared.takes_steps(),
        looked.due_from,
        looked.claimed_from,
        &asked,
        &ranges.queues,
        &ranges.to_queues as &[Option<String>],
        &ranges.ranks,
        &ranges.times,
        &ranges.ids,
        &ranges.to_ranks,
    )
    .fetch_one(connection)
    .await?;
    shared.marks.heard(row.now);
    looked.due_from = row.due_from;
    looked.claimed_from = row.claimed_from;
    let leased = row.leased_ids.unwrap_or_default().into_iter();
    looked.saw(&asked, leased.zip(row.leased_until.unwrap_or_default()));
    let due = row.due_queues.unwrap_or_default().into_iter();
    for (queue, since) in due.zip(row.due_since.unwrap_or_default()) {
        if row.now - since > DUE_LATE {
            shared.announce_since(std::iter::once(queue), since);
        } else {
            shared.wake(&queue, since);
        }
    }
    if row.ready.unwrap_or(false) {
        shared.wake_all();
    }
    let lost = row
        .lost_ids
        .unwrap_or_default()
        .into_iter()
        .zip(row.lost_tokens.unwrap_or_default())
        .zip(row.lost_attempts.unwrap_or_default())
        .zip(row.lost_batches.unwrap_or_default())
        .zip(row.lost_queues.unwrap_or_default());
    for ((((id, token), attempt), batch), queue) in lost {
        // Our own attempts know of their lease themselves.
        if !shared.alive.lock().contains_key(&token) && shared.lost.lock().insert(token) {
            tracing::warn!(job.id = id, "a lease ran out; its job is taken over");
            shared.report(End {
                id,
                token,
                attempt,
                batch,
                queue: Some(Arc::from(queue)),
                verb: Verb::Lost,
                ran: None,
                halts: false,
                wait: Duration::ZERO,
                error: None,
                output: None,
                held_since: None,
                sent_before: false,
            });
        }
    }
    Ok(row
        .due_ms
        .and_then(|ms| u64::try_from(ms).ok())
        .map(Duration::from_millis))
}

/// Tells the other processes which queues got work and what else they must hear, in one statement outside of any
/// transaction that does the work: a notification serialises the commit it is part of.
async fn announce(shared: &Shared, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let (channels, texts): (Vec<String>, Vec<String>) = shared
        .news
        .lock()
        .drain()
        .map(|news| (news.channel.to_owned(), news.text))
        .unzip();
    if texts.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "select pg_notify(channel, news) from unnest($1::text[], $2::text[]) as told (channel, news)",
        &channels,
        &texts
    )
    .execute(connection)
    .await?;
    Ok(())
}

async fn farewell(shared: &Shared, link: &mut Link) {
    let outcome = async {
        let connection = link.try_get().await?;
        announce(shared, &mut *connection).await?;
        sqlx::query!(
            "update pipeline.workers set stopped_at = pipeline.now(), seen_at = pipeline.now()
             where id = $1",
            shared.worker()
        )
        .execute(connection)
        .await
    };
    if let Ok(Err(error)) = tokio::time::timeout(GOODBYE, outcome).await {
        tracing::debug!(%error, "the worker's row could not be closed");
    }
}
