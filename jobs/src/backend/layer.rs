//! The one place where an attempt ends.
//!
//! apalis puts a backend's layer outside of all that the application adds, so it sees the end of
//! everything: a value, an error, a panic, a timeout, a future that was dropped. Each job runs as a
//! task of its own, and its [`Attempt`] lives inside that task.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use apalis_core::error::{AbortError, BoxDynError, RetryAfterError};
use apalis_core::layers::{Layer, Service};
use apalis_core::task::Task;
use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio::task::coop::unconstrained;
use tracing::Instrument as _;

use super::Envelope;
use super::envelope::Attempt;
use crate::JobError;
use crate::engine::{End, Verb, judge, storable};
use crate::failure::Carried;
use crate::registry::Output;

/// How long a job is put off when the application's layers serve none.
const PUT_OFF: Duration = Duration::from_secs(5);

/// Ends attempts.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttemptLayer(());

impl<S> Layer<S> for AttemptLayer {
    type Service = AttemptService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AttemptService {
            inner,
            broken: None,
        }
    }
}

/// Runs each job as a task of its own, and ends its attempt.
#[derive(Debug, Clone)]
pub struct AttemptService<S> {
    inner: S,
    /// A layer of the application's has said that it can serve no more. The worker lives on; its jobs
    /// are put off, at no cost to them.
    broken: Option<String>,
}

impl<S> Service<Task<Envelope>> for AttemptService<S>
where
    S: Service<Task<Envelope>, Response = Output>,
    S::Future: Send + 'static,
    S::Error: Into<BoxDynError> + 'static,
{
    type Response = ();
    type Error = BoxDynError;
    type Future = Running;

    /// Never an error, and never a panic: either would end the worker.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxDynError>> {
        if self.broken.is_some() {
            return Poll::Ready(Ok(()));
        }
        match catch_unwind(AssertUnwindSafe(|| self.inner.poll_ready(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Ok(()))) => {}
            Ok(Poll::Ready(Err(error))) => self.broken = Some(error.into().to_string()),
            Err(panic) => self.broken = Some(panic_text(&*panic)),
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, task: Task<Envelope>) -> Running {
        let envelope = task.args.clone();
        let known = envelope.is_known();
        let Some(attempt) = envelope.begin() else {
            return Running::Over(Some(Err("this job has not been claimed".into())));
        };
        if !known {
            attempt.end(|end| end.verb = Verb::Unknown);
            return Running::Over(Some(Err("this worker does not know the job's type".into())));
        }
        if let Some(why) = &self.broken {
            tracing::error!(
                job.id = envelope.id(),
                why,
                "a layer serves no more; jobs are put off"
            );
            fail(attempt, &envelope, JobError::snooze(PUT_OFF));
            return Running::Over(Some(Err(why.clone().into())));
        }
        // A layer may panic here already.
        let job = match catch_unwind(AssertUnwindSafe(|| self.inner.call(task))) {
            Ok(job) => job,
            Err(panic) => {
                let text = panic_text(&*panic);
                fail(attempt, &envelope, JobError::new("Panic", &text));
                return Running::Over(Some(Err(text.into())));
            }
        };
        let span = tracing::info_span!(
            "job",
            job.id = envelope.id(),
            job.kind = envelope.kind(),
            queue = envelope.queue(),
            attempt = envelope.attempt(),
            run.id = envelope.of_run().map(|of| of.run),
            step.key = envelope.of_run().map(|of| of.step.as_str()),
        );
        let handle = tokio::spawn(run(job, attempt, envelope.clone()).instrument(span));
        envelope.control().runs_as(handle.abort_handle());
        Running::Task(AbortOnDrop(handle))
    }
}

/// Performs the job and ends its attempt. When this is dropped, user code goes first, and then the
/// attempt, which reports it.
async fn run<F, E>(job: F, attempt: Attempt, envelope: Envelope) -> Result<(), BoxDynError>
where
    F: Future<Output = Result<Output, E>>,
    E: Into<BoxDynError>,
{
    let guarded = AssertUnwindSafe(job).catch_unwind();
    let outcome = match envelope.timeout() {
        None => Ok(guarded.await),
        Some(limit) => tokio::time::timeout(limit, guarded)
            .await
            .map_err(|_| limit),
    };
    let error = match outcome {
        Ok(Ok(Ok(output))) => {
            attempt.end(|end| end.output = Some(output.0));
            return Ok(());
        }
        Ok(Ok(Err(error))) => understood(error.into()),
        Ok(Err(panic)) => JobError::new("Panic", panic_text(&*panic)),
        Err(limit) => JobError::new(
            "Timeout",
            format!(
                "the attempt took longer than {limit:?}: give `{}` a longer timeout, or less to do",
                envelope.kind()
            ),
        ),
    };
    let text = error.to_string();
    fail(attempt, &envelope, error);
    Err(text.into())
}

fn fail(attempt: Attempt, envelope: &Envelope, error: JobError) {
    let (verb, wait) = judge(&error, envelope.chances());
    let (id, class) = (envelope.id(), error.class());
    match verb {
        // Its message is with the job: it may say what a log is not to hold.
        Verb::Fail | Verb::Discard => tracing::warn!(
            job.id = id,
            job.kind = envelope.kind(),
            run.id = envelope.of_run().map(|of| of.run),
            step.key = envelope.of_run().map(|of| of.step.as_str()),
            attempt = envelope.attempt(),
            class,
            "a job failed for good"
        ),
        _ => tracing::debug!(job.id = id, class, ?verb, "an attempt failed"),
    }
    attempt.end(|end: &mut End| {
        end.verb = verb;
        end.wait = wait;
        if !matches!(verb, Verb::Snooze | Verb::HandBack) {
            end.error = Some(storable(error.class(), error.message()));
        }
    });
}

/// What came up through the layers: the job's own error, or one that a layer made.
fn understood(error: BoxDynError) -> JobError {
    let error = match error.downcast::<Carried>() {
        Ok(carried) => return carried.0,
        Err(error) => error,
    };
    if let Some(later) = error.downcast_ref::<RetryAfterError>() {
        return JobError::new("RetryAfter", &error).retry_after(later.get_duration());
    }
    if let Some(abort) = error.downcast_ref::<AbortError>() {
        // apalis's own layer for panics makes one of these; its type is in a crate we do not need.
        let cause = std::error::Error::source(abort).map(|cause| format!("{cause:?}"));
        return match cause {
            Some(cause) if cause.starts_with("PanicError") => JobError::new("Panic", &error),
            _ => JobError::new("Abort", &error).discard(),
        };
    }
    JobError::from(error)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// A job's task, which is stopped when nobody waits for it any more.
#[derive(Debug)]
pub struct AbortOnDrop(JoinHandle<Result<(), BoxDynError>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What apalis polls for each job.
#[derive(Debug)]
pub enum Running {
    #[doc(hidden)]
    Over(Option<Result<(), BoxDynError>>),
    #[doc(hidden)]
    Task(AbortOnDrop),
}

impl Future for Running {
    type Output = Result<(), BoxDynError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Over(result) => Poll::Ready(result.take().unwrap_or(Ok(()))),
            // Outside of tokio's budget: apalis polls all of these in one set, and with the budget
            // spent each would be "pending, and woken": the set would be walked over and over.
            Self::Task(task) => Pin::new(&mut unconstrained(&mut task.0))
                .poll(cx)
                .map(|joined| {
                    // A task that was stopped has reported from its attempt.
                    joined.unwrap_or_else(|stopped| Err(stopped.to_string().into()))
                }),
        }
    }
}
