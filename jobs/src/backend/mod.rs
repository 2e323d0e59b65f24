//! The queue as an apalis backend.
//!
//! The backend never returns an error and never ends: either would end the worker. While the database cannot be
//! reached, the engine retries.

mod expose;
mod layer;
mod panics;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use apalis_core::backend::finalize::FinalizeBackend;
use apalis_core::backend::future::BoxSyncFuture;
use apalis_core::backend::queue::Queue;
use apalis_core::backend::{Backend, BackendConfig};
use apalis_core::task::Task;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::task::task_id::TaskId;
use apalis_core::worker::context::WorkerContext;

use crate::attempt::Envelope;
use crate::engine::{Engine, Phase};

use layer::AttemptLayer;

/// The queue as an apalis backend.
pub struct JobsBackend {
    pub(crate) engine: Arc<Engine>,
    codec: expose::EnvelopeCodec,
    polled: bool,
    closing: Option<BoxSyncFuture<()>>,
}

/// Tells apalis to use the backend without a codec around it.
#[derive(Debug, Clone, Copy, Default)]
pub struct WithoutCodec;

impl FinalizeBackend<JobsBackend, Envelope> for WithoutCodec {
    type Backend = JobsBackend;

    fn finalize(current: JobsBackend) -> JobsBackend {
        current
    }
}

impl JobsBackend {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            codec: expose::EnvelopeCodec,
            polled: false,
            closing: None,
        }
    }

    fn task(envelope: Envelope) -> Task<Envelope> {
        let token = envelope.token().cast_unsigned();
        let before = usize::from(envelope.attempt().saturating_sub(1));
        let queue = Queue::from(envelope.queue());
        TaskBuilder::new(envelope)
            // The token is new at each claim: apalis takes no two tasks of one id at a time.
            .task_id(TaskId::from_int(token))
            // apalis adds one when it first polls the job.
            .attempt(before)
            .queue(queue)
            .build()
    }
}

impl std::fmt::Debug for JobsBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobsBackend")
            .field("worker", &self.engine.config.name)
            .finish()
    }
}

impl Clone for JobsBackend {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.engine))
    }
}

impl Backend for JobsBackend {
    type Task = Task<Envelope>;
    type Error = Infallible;

    fn poll_ready(
        &mut self,
        _: &mut Context<'_>,
        worker: &WorkerContext,
    ) -> Poll<Result<(), Infallible>> {
        self.polled = true;
        self.engine.start(worker);
        Poll::Ready(Ok(()))
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        _: &WorkerContext,
    ) -> Poll<Option<Result<Self::Task, Infallible>>> {
        // apalis takes tasks in a loop that never yields: tokio's budget makes this call yield.
        let progress = std::task::ready!(tokio::task::coop::poll_proceed(cx));
        self.engine.inbox.poll(cx).map(|envelope| {
            progress.made_progress();
            Some(Ok(Self::task(envelope)))
        })
    }

    /// Waits until every end is committed. apalis polls this when the worker stops and no job is left.
    fn poll_close(
        &mut self,
        cx: &mut Context<'_>,
        _: &WorkerContext,
    ) -> Poll<Result<(), Infallible>> {
        self.engine.stop();
        let lifecycle = &self.engine.lifecycle;
        if !lifecycle.was_started() {
            return Poll::Ready(Ok(()));
        }
        self.closing
            .get_or_insert_with(|| {
                BoxSyncFuture::new(Box::pin(lifecycle.reached_owned(Phase::Stopped)))
            })
            .poll_unpin(cx)
            .map(Ok)
    }
}

impl Drop for JobsBackend {
    /// Stops the worker if this backend belongs to one: apalis-board uses clones that apalis never polls.
    fn drop(&mut self) {
        if self.polled {
            self.engine.stop();
        }
    }
}

impl BackendConfig for JobsBackend {
    type Args = Envelope;
    type Id = u64;
    type Kind = WithoutCodec;
    type Config = ();
    type Layer = AttemptLayer;

    fn config(&self) -> &() {
        &()
    }

    fn middleware(&mut self, _: &mut WorkerContext) -> AttemptLayer {
        panics::install_hook();
        AttemptLayer::new(Arc::clone(&self.engine.hooks))
    }
}
