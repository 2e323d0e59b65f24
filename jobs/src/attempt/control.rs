//! The control of a running attempt: asks it to stop, or aborts it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// The reason why an attempt was stopped from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum StopReason {
    /// The worker was dropped.
    Dropped = 0,
    /// The worker shuts down and the grace period is over.
    Shutdown = 1,
    /// The lease is lost: the attempt no longer has the right to end the job.
    LeaseLost = 2,
}

/// The switch that asks an attempt to stop, or stops it.
#[derive(Debug, Default)]
pub(crate) struct Control {
    stop_requested: CancellationToken,
    /// Set when shutdown no longer waits for this attempt.
    abandoned: CancellationToken,
    /// Whether the job asked its owner to end early.
    ends_owner: AtomicBool,
    abort: OnceLock<AbortHandle>,
    reason: AtomicU8,
    /// The start of the current poll, in milliseconds since [`process_start`]; 0 between polls.
    polling_since: AtomicU64,
}

impl Control {
    /// Completes when the attempt is asked to stop.
    pub(crate) async fn asked_to_stop(&self) {
        self.stop_requested.cancelled().await;
    }

    pub(crate) fn is_asked_to_stop(&self) -> bool {
        self.stop_requested.is_cancelled()
    }

    pub(crate) fn ask_to_stop(&self) {
        self.stop_requested.cancel();
    }

    /// Notes that the job asks its owner to end early.
    pub(crate) fn end_owner(&self) {
        self.ends_owner.store(true, Ordering::Release);
    }

    pub(super) fn ends_owner(&self) -> bool {
        self.ends_owner.load(Ordering::Acquire)
    }

    /// Aborts the job's task at its next await point. Returns whether this reason is a new one.
    pub(crate) fn kill(&self, reason: StopReason) -> bool {
        self.stop_requested.cancel();
        let before = self.reason.swap(reason as u8, Ordering::AcqRel);
        if let Some(handle) = self.abort.get() {
            handle.abort();
        }
        before != reason as u8
    }

    /// Records the task that performs the job. If the attempt was killed before, aborts the task now.
    pub(crate) fn runs_as(&self, handle: AbortHandle) {
        let handle = self.abort.get_or_init(|| handle);
        if self.reason() != StopReason::Dropped {
            handle.abort();
        }
    }

    /// Returns whether this task performs the job.
    pub(super) fn runs_in(&self, task: tokio::task::Id) -> bool {
        self.abort.get().is_some_and(|handle| handle.id() == task)
    }

    pub(super) fn reason(&self) -> StopReason {
        match self.reason.load(Ordering::Acquire) {
            1 => StopReason::Shutdown,
            2 => StopReason::LeaseLost,
            _ => StopReason::Dropped,
        }
    }

    /// Tells apalis not to wait for this attempt any more.
    pub(super) fn abandon(&self) {
        self.abandoned.cancel();
    }

    /// Completes when shutdown has stopped waiting for this attempt.
    pub(crate) fn abandoned(&self) -> tokio_util::sync::WaitForCancellationFutureOwned {
        self.abandoned.clone().cancelled_owned()
    }

    /// Notes that a poll of the job begins. Returns the start of the poll.
    pub(crate) fn poll_begins(&self) -> Instant {
        let now = Instant::now();
        let since = now.duration_since(process_start()).as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX).max(1);
        self.polling_since.store(since, Ordering::Relaxed);
        now
    }

    pub(crate) fn poll_ends(&self) {
        self.polling_since.store(0, Ordering::Relaxed);
    }

    /// Returns how long the current poll has taken; `None` between polls.
    pub(super) fn in_poll_for(&self) -> Option<Duration> {
        let since = match self.polling_since.load(Ordering::Relaxed) {
            0 => return None,
            since => Duration::from_millis(since),
        };
        Some(process_start().elapsed().saturating_sub(since))
    }
}

/// Returns a fixed instant, from which the starts of polls are counted.
fn process_start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}
