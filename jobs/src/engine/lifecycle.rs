//! The phases of a worker, which its tasks await.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use apalis_core::worker::context::WorkerContext;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::Error;

/// The time in which a stopping worker writes its last ends, counted from the end of the grace period.
const SHUTDOWN_FLUSH_TIMEOUT: Duration = Duration::from_secs(6);

/// The phase of a worker. Phases follow in this order; a worker never returns to an earlier phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The worker is built; its tasks have not been started.
    Starting,
    /// The worker claims and performs jobs.
    Running,
    /// The worker claims no jobs; running jobs have their grace period.
    Draining,
    /// No job runs; the last ends are being written.
    Flushing,
    /// All tasks have ended, except the task that marks the worker's row as stopped.
    Closing,
    /// All tasks have ended.
    Stopped,
}

/// The current phase of a worker, and the error of a worker that failed.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    phase: watch::Sender<Phase>,
    started: OnceLock<()>,
    flushing_since: OnceLock<Instant>,
    /// apalis's context of the worker, in which the worker can be paused.
    context: OnceLock<WorkerContext>,
    failure: Mutex<Option<Error>>,
    failed: watch::Sender<bool>,
}

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Self {
            phase: watch::Sender::new(Phase::Starting),
            started: OnceLock::new(),
            flushing_since: OnceLock::new(),
            context: OnceLock::new(),
            failure: Mutex::default(),
            failed: watch::Sender::new(false),
        }
    }

    /// Starts the worker. Returns `false` if the worker was started before.
    pub(crate) fn start(&self, context: &WorkerContext) -> bool {
        let _ = self.context.set(context.clone());
        self.started.set(()).is_ok() && {
            self.advance(Phase::Running);
            true
        }
    }

    /// Returns whether the worker was ever started. A worker that was stopped first is never started.
    pub(crate) fn was_started(&self) -> bool {
        self.started.get().is_some()
    }

    /// Enters a later phase. Returns `false` if the worker has already reached the phase.
    pub(crate) fn advance(&self, phase: Phase) -> bool {
        if phase == Phase::Flushing {
            let _ = self.flushing_since.set(Instant::now());
        }
        self.phase.send_if_modified(|current| {
            let is_later = *current < phase;
            if is_later {
                *current = phase;
            }
            is_later
        })
    }

    pub(crate) fn has_reached(&self, phase: Phase) -> bool {
        *self.phase.borrow() >= phase
    }

    /// Completes when the worker is in this phase or a later one.
    pub(crate) async fn reached(&self, phase: Phase) {
        // The sender lives as long as `self`.
        let _ = self
            .phase
            .subscribe()
            .wait_for(|current| *current >= phase)
            .await;
    }

    /// Returns a future that completes in this phase or a later one, without borrowing the lifecycle.
    pub(crate) fn reached_owned(&self, phase: Phase) -> impl Future<Output = ()> + use<> {
        let mut phases = self.phase.subscribe();
        async move {
            let _ = phases.wait_for(|current| *current >= phase).await;
        }
    }

    /// Returns whether the worker must not claim jobs, because it stops or is paused.
    pub(crate) fn is_closed_to_work(&self) -> bool {
        self.has_reached(Phase::Draining)
            || self.context.get().is_some_and(WorkerContext::is_paused)
    }

    /// Returns whether the flush has timed out, so that other workers have to take over the jobs of unwritten ends.
    pub(crate) fn gives_up(&self) -> bool {
        self.flushing_since
            .get()
            .is_some_and(|since| since.elapsed() >= SHUTDOWN_FLUSH_TIMEOUT)
    }

    /// Completes when [`gives_up`](Self::gives_up) becomes true.
    pub(crate) async fn flush_timeout(&self) {
        self.reached(Phase::Flushing).await;
        let since = self.flushing_since.get().copied();
        let passed = since.map_or(Duration::ZERO, |since| since.elapsed());
        tokio::time::sleep(SHUTDOWN_FLUSH_TIMEOUT.saturating_sub(passed)).await;
    }

    /// Records the error that stops the worker. Returns `false` if another error was recorded before, which is kept.
    pub(crate) fn fail(&self, error: Error) -> bool {
        let mut failure = self.failure.lock();
        let is_first = failure.is_none();
        if is_first {
            *failure = Some(error);
            drop(failure);
            self.failed.send_replace(true);
        }
        is_first
    }

    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.failure.lock().take()
    }

    /// Completes when an error has stopped the worker.
    pub(crate) fn failed(&self) -> impl Future<Output = ()> + use<> {
        let mut failed = self.failed.subscribe();
        async move {
            let _ = failed.wait_for(|failed| *failed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn phases_only_go_forward_and_can_be_awaited() {
        let life = Lifecycle::new();
        assert!(life.advance(Phase::Draining));
        assert!(!life.advance(Phase::Running), "it would go back");
        life.reached(Phase::Running).await;
        life.reached(Phase::Draining).await;
        assert!(!life.has_reached(Phase::Flushing));
        assert!(life.is_closed_to_work());
    }

    fn failure(task: &'static str) -> Error {
        let worker = "w".to_owned();
        Error::EngineTaskFailed { worker, task }
    }

    #[test]
    fn the_first_failure_counts() {
        let life = Lifecycle::new();
        assert!(life.fail(failure("first")));
        assert!(!life.fail(failure("second")));
        let kept = life.take_failure();
        assert!(matches!(
            kept,
            Some(Error::EngineTaskFailed { task: "first", .. })
        ));
    }
}
