//! When the next tick is due.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// When the next job that this process knows of becomes due, and calls for a tick ahead of time.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    next_due: Mutex<Option<Instant>>,
    /// The next job is due earlier than the tick thinks.
    changed: Notify,
    now: Notify,
}

impl Schedule {
    /// Notes that a job becomes due after this time.
    pub(crate) fn due_in(&self, wait: Option<Duration>) {
        let Some(at) = wait.and_then(|wait| Instant::now().checked_add(wait)) else {
            return;
        };
        let mut next = self.next_due.lock();
        if next.is_none_or(|known| at < known) {
            *next = Some(at);
            drop(next);
            self.changed.notify_one();
        }
    }

    /// Asks for a tick now.
    pub(crate) fn tick_now(&self) {
        self.now.notify_one();
    }

    /// Completes when a tick is due, at the latest at `at`.
    pub(crate) async fn due(&self, at: Instant) {
        loop {
            let until = self.next_due.lock().map_or(at, |local| local.min(at));
            let pause = until.saturating_duration_since(Instant::now());
            tokio::select! {
                () = tokio::time::sleep(pause.max(Duration::from_millis(1))) => break,
                () = self.now.notified() => break,
                () = self.changed.notified() => {}
            }
        }
        // A job that is due later is found by the tick that follows.
        self.next_due.lock().take();
    }
}
