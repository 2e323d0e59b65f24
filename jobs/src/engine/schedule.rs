//! The time of the next tick.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The time at which the next known job becomes due, and requests for a tick before the poll interval is over.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    next_due: Mutex<Option<Instant>>,
    /// Wakes the ticker when the next job is due earlier than known before.
    changed: Notify,
    now: Notify,
    sweep: AtomicBool,
}

impl Schedule {
    /// Notes that a job becomes due after this duration.
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

    /// Asks for a tick now that also sweeps the index ranges which claims skip.
    pub(crate) fn sweep_now(&self) {
        self.sweep.store(true, Ordering::Release);
        self.tick_now();
    }

    /// Returns whether a sweep was asked for since the last call.
    pub(crate) fn take_sweep(&self) -> bool {
        self.sweep.swap(false, Ordering::AcqRel)
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
        // The tick that follows finds the next due job.
        self.next_due.lock().take();
    }
}
