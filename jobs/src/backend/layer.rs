//! The layer that ends attempts.
//!
//! apalis puts a backend's layer around all layers of the application, so this layer sees every end: a value, an
//! error, a panic, a timeout, a dropped future. Each job runs as its own task, and its [`Attempt`] lives inside that
//! task.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use apalis_core::error::{AbortError, BoxDynError, RetryAfterError};
use apalis_core::layers::{Layer, Service};
use apalis_core::task::Task;
use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio::task::coop::unconstrained;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::{Instrument as _, Level, Span};

use super::panics;
use crate::JobError;
use crate::attempt::{Attempt, AttemptEnd, Control, EndKind, Envelope, resolve_error};
use crate::engine::{BLOCKING_THRESHOLD, Hooks};
use crate::failure::Carried;
use crate::registry::Output;

/// The delay of a job if a layer of the application has failed.
const BROKEN_LAYER_SNOOZE: Duration = Duration::from_secs(5);

/// The layer that ends attempts.
#[derive(Debug, Clone)]
pub struct AttemptLayer {
    hooks: Arc<Hooks>,
}

impl AttemptLayer {
    pub(super) fn new(hooks: Arc<Hooks>) -> Self {
        Self { hooks }
    }
}

impl<S> Layer<S> for AttemptLayer {
    type Service = AttemptService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AttemptService {
            inner,
            hooks: Arc::clone(&self.hooks),
            broken: None,
        }
    }
}

/// Runs each job as its own task, and ends its attempt.
#[derive(Debug, Clone)]
pub struct AttemptService<S> {
    inner: S,
    hooks: Arc<Hooks>,
    /// The error of a layer of the application that is not ready any more. The worker continues and snoozes its jobs,
    /// which costs them no attempt.
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

    /// Returns no error and does not panic: either would end the worker.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxDynError>> {
        if self.broken.is_some() {
            return Poll::Ready(Ok(()));
        }
        let ready = || self.inner.poll_ready(cx);
        match panics::recorded(|| caught(ready)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Ok(()))) => {}
            Ok(Poll::Ready(Err(error))) => self.broken = Some(error.into().to_string()),
            Err(message) => self.broken = Some(message),
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, task: Task<Envelope>) -> Running {
        let envelope = task.args.clone();
        let known = envelope.is_known();
        let Some(attempt) = envelope.begin() else {
            return Running::Over(Some(Err(
                "the job has no claim, or was performed before".into()
            )));
        };
        if !known {
            attempt.end(|end| end.kind = EndKind::Unknown);
            return Running::Over(Some(
                Err("this worker cannot perform the job's type".into()),
            ));
        }
        if let Some(error) = &self.broken {
            tracing::error!(
                job.id = envelope.id().get(),
                error,
                "tower layer failed; its jobs are snoozed"
            );
            fail(attempt, &envelope, JobError::snooze(BROKEN_LAYER_SNOOZE));
            return Running::Over(Some(Err(error.clone().into())));
        }
        // A layer of the application may panic before it returns its future.
        let job = match panics::recorded(|| caught(|| self.inner.call(task))) {
            Ok(job) => job,
            Err(message) => {
                fail(attempt, &envelope, JobError::new("Panic", &message));
                return Running::Over(Some(Err(message.into())));
            }
        };
        let span = span(&self.hooks, &envelope);
        let control = Arc::clone(envelope.control());
        let job = Polled {
            job: Box::pin(run(job, attempt, envelope, Arc::clone(&self.hooks))),
            control: Arc::clone(&control),
        };
        let handle = tokio::spawn(job.instrument(span));
        control.runs_as(handle.abort_handle());
        Running::Task(AbortOnDrop(handle), Box::pin(control.abandoned()))
    }
}

/// Creates the span of a job, inside the span of its owner.
fn span(hooks: &Hooks, envelope: &Envelope) -> Span {
    let span = || {
        tracing::info_span!(
            "job",
            job.id = envelope.id().get(),
            job.type = envelope.job_type(),
            queue = envelope.queue(),
            attempt = envelope.attempt(),
        )
    };
    match envelope.owner() {
        Some(owner) if tracing::enabled!(Level::INFO) => {
            let owner = hooks.owner_span(Some(owner.id), Some(&owner.label));
            owner.in_scope(span)
        }
        _ => span(),
    }
}

/// Calls a layer of the application. Returns the message of a panic.
fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| panics::message(&*panic))
}

/// Performs the job and ends its attempt. If this future is dropped, the job is dropped first, and then the attempt,
/// which reports its end.
async fn run<F, E>(
    job: F,
    attempt: Attempt,
    envelope: Envelope,
    hooks: Arc<Hooks>,
) -> Result<(), BoxDynError>
where
    F: Future<Output = Result<Output, E>>,
    E: Into<BoxDynError>,
{
    hooks.before_attempt(&envelope).await;
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
        Ok(Ok(Err(error))) => job_error(error.into()),
        Ok(Err(panic)) => JobError::new("Panic", panics::message(&*panic)),
        Err(limit) => JobError::new(
            "Timeout",
            format!(
                "the attempt took longer than {limit:?}: give `{}` a longer timeout, or less to do",
                envelope.job_type()
            ),
        ),
    };
    let text = error.to_string();
    fail(attempt, &envelope, error);
    Err(text.into())
}

fn fail(attempt: Attempt, envelope: &Envelope, error: JobError) {
    let (kind, wait) = resolve_error(&error, envelope.retry_context());
    attempt.end(|end: &mut AttemptEnd| {
        end.kind = kind;
        end.wait = wait;
        if !matches!(kind, EndKind::Snooze | EndKind::HandBack) {
            end.set_error(error.class(), error.message());
        }
    });
}

/// Converts the error that the layers returned: the job's own error, or the error of a layer.
fn job_error(error: BoxDynError) -> JobError {
    let error = match error.downcast::<Carried>() {
        Ok(carried) => return carried.0,
        Err(error) => error,
    };
    if let Some(later) = error.downcast_ref::<RetryAfterError>() {
        return JobError::new("RetryAfter", &error).retry_after(later.get_duration());
    }
    if let Some(abort) = error.downcast_ref::<AbortError>() {
        // apalis's layer for panics returns this error; its type is in a crate that is not a dependency.
        let cause = std::error::Error::source(abort).map(|cause| format!("{cause:?}"));
        return match cause {
            Some(cause) if cause.starts_with("PanicError") => {
                JobError::new("Panic", panics::locate(error.to_string()))
            }
            _ => JobError::new("Abort", &error).discard(),
        };
    }
    JobError::from(error)
}

/// Records when each poll of a job begins and ends, so that the watchdog can log a job that blocks its thread.
struct Polled<F> {
    job: Pin<Box<F>>,
    control: Arc<Control>,
}

impl<F: Future> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let began = self.control.poll_begins();
        let polled = panics::recorded(|| self.job.as_mut().poll(cx));
        self.control.poll_ends();
        let blocked = began.elapsed();
        if blocked > BLOCKING_THRESHOLD {
            tracing::warn!(
                blocked_ms = u64::try_from(blocked.as_millis()).unwrap_or(u64::MAX),
                "job blocked a thread of the runtime and has yielded again"
            );
        }
        polled
    }
}

/// A job's task, which is aborted when this handle is dropped.
#[derive(Debug)]
pub struct AbortOnDrop(JoinHandle<Result<(), BoxDynError>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The future that apalis polls for each job.
#[derive(Debug)]
pub enum Running {
    #[doc(hidden)]
    Over(Option<Result<(), BoxDynError>>),
    #[doc(hidden)]
    Task(AbortOnDrop, Pin<Box<WaitForCancellationFutureOwned>>),
}

impl Future for Running {
    type Output = Result<(), BoxDynError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Over(result) => Poll::Ready(result.take().unwrap_or(Ok(()))),
            // Polled outside of tokio's budget: apalis polls all jobs in one set. Without budget, each job would
            // return pending and wake the set again, without end.
            Self::Task(task, abandoned) => {
                let joined = Pin::new(&mut unconstrained(&mut task.0)).poll(cx);
                if let Poll::Ready(joined) = joined {
                    // The attempt of an aborted task has reported its end.
                    return Poll::Ready(
                        joined.unwrap_or_else(|stopped| Err(stopped.to_string().into())),
                    );
                }
                // Shutdown does not wait for a job that blocks its thread.
                let abandoned = Pin::new(&mut unconstrained(abandoned)).poll(cx);
                abandoned.map(|()| Err("the job was handed back while it still ran".into()))
            }
        }
    }
}
