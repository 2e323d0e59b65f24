//! Leases: renewed while their jobs run, and kept by our own clock when the database is silent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;
use super::link::{Link, limited};
use crate::backend::Why;

/// How often we look whether one is due; a lease is at least a second long.
const LOOK: Duration = Duration::from_millis(100);

/// Before anything is claimed: the shortest lease leaves little time to connect.
pub(crate) async fn connect(link: &mut Link) {
    if let Err(error) = limited(renew(link, &[])).await {
        tracing::warn!(%error, "no connection to renew leases yet");
        link.forget();
    }
}

pub(crate) async fn run(shared: Arc<Shared>, mut link: Link) {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = look.tick() => {}
            () = shared.drained.cancelled() => return,
        }
        let lapse = stop_lapsed(&shared);
        let due = due(&shared);
        if due.is_empty() {
            continue;
        }
        // Not longer than the first of them has: then we must stop it.
        let sent = Instant::now();
        match tokio::time::timeout(lapse, renew(&mut link, &due)).await {
            Ok(Ok(answer)) => {
                link.good();
                renewed(&shared, &due, &answer, sent);
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, count = due.len(), "leases could not be renewed; trying again");
                link.forget();
            }
            Err(_) => {
                tracing::warn!(
                    count = due.len(),
                    "the database did not answer in time to renew leases"
                );
                link.forget();
            }
        }
    }
}

/// Those whose lease has used up a third.
fn due(shared: &Shared) -> Vec<(i64, i64)> {
    shared
        .alive
        .lock()
        .iter()
        .filter(|(_, alive)| alive.renewed.elapsed() >= alive.lease / 3)
        .map(|(token, alive)| (alive.id, *token))
        .collect()
}

/// The tokens whose leases were not renewed: no row bears the one any more, somebody else holds the
/// row of the other.
struct Answer {
    lost: Vec<i64>,
    held: Vec<i64>,
}

async fn renew(link: &mut Link, due: &[(i64, i64)]) -> Result<Answer, sqlx::Error> {
    let (ids, tokens): (Vec<i64>, Vec<i64>) = due.iter().copied().unzip();
    let connection = link.try_get().await?;
    let row = sqlx::query!(
        "select lost, held from pipeline.renew_v1($1, $2)",
        &ids,
        &tokens
    )
    .fetch_one(connection)
    .await?;
    Ok(Answer {
        lost: row.lost.unwrap_or_default(),
        held: row.held.unwrap_or_default(),
    })
}

/// A lease counts from before it was asked for: the database's cannot end earlier. One whose row was
/// held counts from when it last was renewed, and is asked for again.
fn renewed(shared: &Shared, due: &[(i64, i64)], answer: &Answer, sent: Instant) {
    let mut alive = shared.alive.lock();
    for (_, token) in due {
        if let Some(entry) = alive.get_mut(token) {
            if answer.lost.contains(token) {
                tracing::warn!(job.id = entry.id, "the lease was lost; the job is stopped");
                entry.control.kill(Why::Lease);
            } else if !answer.held.contains(token) {
                entry.renewed = sent;
            }
        }
    }
}

/// Stops the jobs whose lease we could not renew for five sixths of its length: by the time it has
/// run out, they are no more. Returns how long the next one has.
fn stop_lapsed(shared: &Shared) -> Duration {
    let mut shortest = Duration::from_secs(30);
    for entry in shared.alive.lock().values() {
        let left = (entry.lease * 5 / 6).saturating_sub(entry.renewed.elapsed());
        if left.is_zero() {
            tracing::warn!(
                job.id = entry.id,
                "the lease could not be renewed; the job is stopped"
            );
            entry.control.kill(Why::Lease);
        } else {
            shortest = shortest.min(left);
        }
    }
    shortest
}
