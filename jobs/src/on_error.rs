//! Reports failed attempts to the application: see [`Worker::on_error`](crate::Worker::on_error).

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::JobId;

/// The maximum number of failed attempts that wait for the handler; further ones are dropped.
const QUEUE_CAPACITY: usize = 1_000;
/// How long one call of the handler may take.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long shutdown waits for the calls that are still queued.
const SHUTDOWN_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// A failed attempt of a job, as the handler of [`Worker::on_error`](crate::Worker::on_error) receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedAttempt {
    /// The id of the job.
    pub job: JobId,
    /// The name of the job's type; `None` if the worker that began the attempt died and the job is retried.
    pub job_type: Option<String>,
    /// The attempt's number; the first is 1.
    pub attempt: u16,
    /// The id of the job's owner: for a step, the id of its run.
    pub owner_id: Option<i64>,
    /// The name of the job inside its owner: for a step, its key.
    pub owner_label: Option<String>,
    /// The class of the error: `Panic` for a panic, `Timeout` for a timeout, `WorkerDied` if the worker died.
    pub error_class: String,
    /// The message of the error.
    pub error_message: String,
    /// Whether the job failed for good: no further attempt follows. The engine does not know whether the owner of a job
    /// is being cancelled: then no attempt follows although the value is `false`.
    pub is_final: bool,
}

impl FailedAttempt {
    /// Returns whether the attempt panicked.
    pub fn is_panic(&self) -> bool {
        self.error_class == "Panic"
    }
}

type Handler = dyn Fn(FailedAttempt) -> BoxFuture<'static, ()> + Send + Sync;

/// The handler of failed attempts, with a bounded queue and a task of its own: reporting neither waits nor fails.
pub(crate) struct ErrorReporter {
    handler: Arc<Handler>,
    capacity: usize,
    task: Mutex<State>,
    dropped: Arc<AtomicU64>,
}

enum State {
    Idle,
    Started(mpsc::Sender<FailedAttempt>, JoinHandle<()>),
    Closed,
}

impl ErrorReporter {
    pub(crate) fn new<F>(handler: impl Fn(FailedAttempt) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self {
            handler: Arc::new(move |failed| handler(failed).boxed()),
            capacity: QUEUE_CAPACITY,
            task: Mutex::new(State::Idle),
            dropped: Arc::default(),
        }
    }

    /// Queues a failed attempt for the handler, or counts it as dropped if the queue is full.
    pub(crate) fn report(&self, failed: FailedAttempt) {
        let mut state = self.task.lock();
        if matches!(*state, State::Idle) {
            let (sender, queue) = mpsc::channel(self.capacity);
            let calls = call_all(Arc::clone(&self.handler), queue, Arc::clone(&self.dropped));
            *state = State::Started(sender, tokio::spawn(calls));
        }
        let is_queued = match &*state {
            State::Started(sender, _) => sender.try_send(failed).is_ok(),
            State::Idle | State::Closed => false,
        };
        if !is_queued {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits, for a limited time, until the handler has been called for everything that is queued.
    pub(crate) async fn flush(&self) {
        let state = std::mem::replace(&mut *self.task.lock(), State::Closed);
        if let State::Started(sender, task) = state {
            drop(sender);
            let abort = task.abort_handle();
            if tokio::time::timeout(SHUTDOWN_FLUSH_TIMEOUT, task)
                .await
                .is_err()
            {
                abort.abort();
                tracing::warn!("shutdown did not wait for all calls of the error handler");
            }
        }
        warn_dropped(&self.dropped);
    }
}

impl fmt::Debug for ErrorReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErrorReporter").finish_non_exhaustive()
    }
}

async fn call_all(
    handler: Arc<Handler>,
    mut queue: mpsc::Receiver<FailedAttempt>,
    dropped: Arc<AtomicU64>,
) {
    while let Some(failed) = queue.recv().await {
        let job = failed.job.get();
        let call = AssertUnwindSafe(async { handler(failed).await }).catch_unwind();
        match tokio::time::timeout(HANDLER_TIMEOUT, call).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::error!(job.id = job, "error handler panicked"),
            Err(_) => tracing::warn!(job.id = job, "error handler timed out"),
        }
        warn_dropped(&dropped);
    }
}

fn warn_dropped(dropped: &AtomicU64) {
    let count = dropped.swap(0, Ordering::Relaxed);
    if count > 0 {
        tracing::warn!(
            count,
            "error handler is too slow; failed attempts were not reported to it"
        );
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    fn failed(id: i64) -> FailedAttempt {
        FailedAttempt {
            job: id.into(),
            job_type: Some("mail".to_owned()),
            attempt: 1,
            owner_id: None,
            owner_label: None,
            error_class: "Panic".to_owned(),
            error_message: String::new(),
            is_final: false,
        }
    }

    #[tokio::test]
    async fn reporting_does_not_wait_for_a_slow_handler_and_counts_what_is_dropped() {
        let gate = Arc::new(Semaphore::new(0));
        let seen = Arc::<Mutex<Vec<i64>>>::default();
        let (open, list) = (Arc::clone(&gate), Arc::clone(&seen));
        let mut reporter = ErrorReporter::new(move |failed| {
            let (gate, seen) = (Arc::clone(&gate), Arc::clone(&seen));
            async move {
                if let Ok(permit) = gate.acquire().await {
                    permit.forget();
                }
                seen.lock().push(failed.job.get());
            }
        });
        reporter.capacity = 2;
        for id in 0..5 {
            reporter.report(failed(id));
        }
        assert_eq!(reporter.dropped.load(Ordering::Relaxed), 3);
        open.add_permits(10);
        reporter.flush().await;
        assert_eq!(*list.lock(), [0, 1]);
        assert_eq!(reporter.dropped.load(Ordering::Relaxed), 0, "logged");
    }

    #[tokio::test]
    async fn a_panic_of_the_handler_ends_only_that_call() {
        let seen = Arc::<Mutex<Vec<i64>>>::default();
        let list = Arc::clone(&seen);
        let reporter = ErrorReporter::new(move |failed| {
            assert!(failed.job.get() != 1, "before the handler's future");
            let seen = Arc::clone(&seen);
            async move {
                assert!(failed.job.get() != 2, "inside of it");
                seen.lock().push(failed.job.get());
            }
        });
        for id in 1..4 {
            reporter.report(failed(id));
        }
        reporter.flush().await;
        assert_eq!(*list.lock(), [3]);
    }
}
