//! The one place where an attempt ends.
//!
//! apalis puts a backend's layer outside of all that the application adds, so it sees the end of
//! everything: a value, an error, a panic, a timeout, a future that was dropped. Each job runs as a
//! task of its own, and its [`Attempt`] lives inside that task.

use std::any::Any;
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
use tracing::Instrument as _;

use crate::JobError;
use crate::attempt::{Attempt, AttemptEnd, Control, EndKind, Envelope, resolve_error};
use crate::engine::BLOCKING_LIMIT;
use crate::failure::Carried;
use crate::registry::Output;

/// How long a job is snoozed when the application's layers are not ready to serve jobs.
const BROKEN_LAYER_SNOOZE: Duration = Duration::from_secs(5);

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
            attempt.end(|end| end.kind = EndKind::Unknown);
            return Running::Over(Some(
                Err("this worker cannot perform the job's type".into()),
            ));
        }
        if let Some(why) = &self.broken {
            tracing::error!(
                job.id = envelope.id().get(),
                why,
                "a layer serves no more; jobs are put off"
            );
            fail(attempt, &envelope, JobError::snooze(BROKEN_LAYER_SNOOZE));
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
            job.id = envelope.id().get(),
            job.kind = envelope.kind(),
            queue = envelope.queue(),
            attempt = envelope.attempt(),
            run.id = envelope.of_run().map(|of| of.run),
            step.key = envelope.of_run().map(|of| of.step.as_str()),
        );
        let control = Arc::clone(envelope.control());
        let job = Polled {
            job: Box::pin(run(job, attempt, envelope)),
            control: Arc::clone(&control),
        };
        let handle = tokio::spawn(job.instrument(span));
        control.runs_as(handle.abort_handle());
        Running::Task(AbortOnDrop(handle), Box::pin(control.abandoned()))
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
    let (kind, wait) = resolve_error(&error, envelope.retry_context());
    attempt.end(|end: &mut AttemptEnd| {
        end.kind = kind;
        end.wait = wait;
        if !matches!(kind, EndKind::Snooze | EndKind::HandBack) {
            end.set_error(error.class(), error.message());
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

/// Notes when each poll of a job begins and ends, so that the watchdog can name a job that blocks its thread.
struct Polled<F> {
    job: Pin<Box<F>>,
    control: Arc<Control>,
}

impl<F: Future> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let began = self.control.poll_begins();
        let polled = self.job.as_mut().poll(cx);
        self.control.poll_ends();
        let blocked = began.elapsed();
        if blocked > BLOCKING_LIMIT {
            tracing::warn!(
                blocked_ms = u64::try_from(blocked.as_millis()).unwrap_or(u64::MAX),
                "job blocked a thread of the runtime and has yielded again"
            );
        }
        polled
    }
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
    Task(AbortOnDrop, Pin<Box<WaitForCancellationFutureOwned>>),
}

impl Future for Running {
    type Output = Result<(), BoxDynError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Over(result) => Poll::Ready(result.take().unwrap_or(Ok(()))),
            // Outside of tokio's budget: apalis polls all of these in one set, and with the budget
            // spent each would be "pending, and woken": the set would be walked over and over.
            Self::Task(task, abandoned) => {
                let joined = Pin::new(&mut unconstrained(&mut task.0)).poll(cx);
                if let Poll::Ready(joined) = joined {
                    // A task that was stopped has reported from its attempt.
                    return Poll::Ready(
                        joined.unwrap_or_else(|stopped| Err(stopped.to_string().into())),
                    );
                }
                // Shutdown waits no longer for a job that blocks its thread.
                let abandoned = Pin::new(&mut unconstrained(abandoned)).poll(cx);
                abandoned.map(|()| Err("the job was handed back while it still ran".into()))
            }
        }
    }
}
