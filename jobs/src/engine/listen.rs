//! Hears of new work. What it misses, the tick finds.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::Notify;

use super::Shared;
use super::link::Link;

pub(crate) const CHANNEL: &str = "pipeline_jobs";

pub(crate) async fn run(shared: Arc<Shared>, pool: PgPool) {
    let mut backoff = Link::new(pool.clone());
    while !shared.stopping.is_cancelled() {
        let outcome = tokio::select! {
            outcome = listen(&shared, &pool, &mut backoff) => outcome,
            () = shared.stopping.cancelled() => return,
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "not listening for new work; the poll goes on");
        }
        backoff.bad(&shared.stopping).await;
    }
}

async fn listen(shared: &Shared, pool: &PgPool, backoff: &mut Link) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    for channel in shared.calls.keys() {
        listener.listen(channel).await?;
    }
    backoff.good();
    loop {
        // What came before we listened, or while we did not, is asked for.
        shared.sweep_now();
        shared.calls.values().for_each(Notify::notify_one);
        while let Some(notification) = listener.try_recv().await? {
            if let Some(call) = shared.calls.get(notification.channel()) {
                call.notify_one();
                continue;
            }
            match parse(notification.payload()) {
                Some((queue, since)) => shared.wake(queue, since),
                None => shared.sweep_now(),
            }
        }
    }
}

/// What is told of a queue in which rows became ready whose `run_at` is this or later. As
/// `pipeline.announce_v1` has it, rounded down to 100 ms: what is equal is told once.
pub(crate) fn payload(queue: &str, since: DateTime<Utc>) -> String {
    format!("{queue} {}", since.timestamp_millis().div_euclid(100) * 100)
}

/// The queue and the time; `None` for `*` and all else, which may concern any queue and any time.
fn parse(payload: &str) -> Option<(&str, DateTime<Utc>)> {
    let (queue, since) = payload.split_once(' ')?;
    Some((queue, DateTime::from_timestamp_millis(since.parse().ok()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_says_the_queue_and_a_time_that_is_not_later() {
        let since = DateTime::from_timestamp_millis(1_700_000_000_199).unwrap_or_default();
        let told = payload("media.hd", since);
        assert_eq!(told, "media.hd 1700000000100");
        let heard = DateTime::from_timestamp_millis(1_700_000_000_100).unwrap_or_default();
        assert_eq!(parse(&told), Some(("media.hd", heard)));
        assert_eq!(parse("*"), None);
        assert_eq!(parse("media"), None);
        assert_eq!(parse("not a time"), None);
    }
}
