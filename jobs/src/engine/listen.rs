//! Listens for notifications of new work. Ticks find work whose notification was lost.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use sqlx::PgPool;
use sqlx::postgres::{PgListener, PgPoolOptions};

use super::connection::{CONNECT_TIMEOUT, EngineConnection, connect_options, session_name};
use super::hooks::MaintenanceCalls;
use super::lifecycle::{Lifecycle, Phase};
use super::schedule::Schedule;
use super::slots::Slots;
use crate::channels;

/// The listener, with the parts of the engine that it uses.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) pool: PgPool,
    pub(crate) slots: Arc<Slots>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) calls: Arc<MaintenanceCalls>,
    pub(crate) lifecycle: Arc<Lifecycle>,
}

impl Listener {
    /// Listens until the worker is stopped.
    pub(crate) async fn run(self) {
        // This connection is never opened: only its backoff and its log lines are used, because PgListener opens its own.
        let mut backoff = EngineConnection::new("notifications", &self.pool);
        while !self.lifecycle.has_reached(Phase::Draining) {
            let outcome = tokio::select! {
                outcome = self.listen(&mut backoff) => outcome,
                () = self.lifecycle.reached(Phase::Draining) => return,
            };
            if let Err(error) = outcome {
                backoff.failed(&error);
            }
            backoff.back_off(&self.lifecycle, Phase::Draining).await;
        }
    }

    /// Listens until the connection is lost.
    async fn listen(&self, backoff: &mut EngineConnection) -> Result<(), sqlx::Error> {
        // The pool retries a refused connection (53300) without a log line until this timeout.
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(CONNECT_TIMEOUT)
            .connect_lazy_with(connect_options(&self.pool, &session_name("notifications")));
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        listener.listen(channels::JOBS).await?;
        for channel in self.calls.channels() {
            listener.listen(channel).await?;
        }
        backoff.succeeded();
        // Notifications that were sent before LISTEN are lost: sweep for their jobs.
        self.wake_and_sweep();
        self.calls.call_all();
        while let Some(notification) = listener.try_recv().await? {
            if self.calls.call(notification.channel()) {
                continue;
            }
            match parse(notification.payload()) {
                Some((queue, since)) => self.slots.wake(queue, since),
                None => self.wake_and_sweep(),
            }
        }
        Ok(())
    }

    fn wake_and_sweep(&self) {
        self.slots.wake_all();
        self.schedule.sweep_now();
    }
}

/// Returns the payload that announces ready rows of a queue with a `run_at` of `since` or later. The format
/// is that of `pipeline.notify_queues_v1`: the time is rounded down to 100 ms, so that equal payloads are sent once.
pub(crate) fn payload(queue: &str, since: DateTime<Utc>) -> String {
    format!("{queue} {}", since.timestamp_millis().div_euclid(100) * 100)
}

/// Returns the queue and the time of a payload. `None` (for `*` and for unknown formats) means any queue and
/// any time.
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
        let sent = payload("media.hd", since);
        assert_eq!(sent, "media.hd 1700000000100");
        let heard = DateTime::from_timestamp_millis(1_700_000_000_100).unwrap_or_default();
        assert_eq!(parse(&sent), Some(("media.hd", heard)));
        assert_eq!(parse("*"), None);
        assert_eq!(parse("media"), None);
        assert_eq!(parse("not a time"), None);
    }
}
