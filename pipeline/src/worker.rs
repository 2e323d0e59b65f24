//! The worker: runs jobs and steps, and advances runs.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use apalis_core::layers::Identity;
use apalis_core::worker::builder::WorkerBuilder;
use jobs::extension::{Layer, PerformService, limits};
use jobs::{Envelope, FailedAttempt, Jobs, JobsBackend, Performer};
use sqlx::PgPool;

use crate::Result;
use crate::coordinator::{
    Coordinator, InputLimits, RECONCILE_INTERVAL, ReconcilerTask, RequestTask,
};

/// Runs jobs and the steps of runs, and advances runs. Any number of processes may run workers on one database.
///
/// A worker is a [`jobs::Worker`] with the coordinator of runs.
///
/// ```no_run
/// # use pipeline::prelude::*;
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize, Job)]
/// # struct Download { video: i64 }
/// # impl Perform for Download {
/// #     type Input = ();
/// #     type Output = ();
/// #     async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> { Ok(()) }
/// # }
/// # async fn example(pool: sqlx::PgPool) -> pipeline::Result<()> {
/// Worker::new(pool)
///     .register::<Download>()
///     .queue("default", 32)
///     .run_until(shutdown_signal())
///     .await
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    jobs: jobs::Worker,
    reconcile_every: Duration,
    input_limits: InputLimits,
}

macro_rules! forward {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*);)*) => {
        $($(#[$doc])*
        pub fn $name(self, $($arg: $type),*) -> Self {
            self.with(|jobs| jobs.$name($($arg),*))
        })*
    };
}

impl Worker {
    /// Creates a worker on the pool's database that serves no queue and knows no job type yet.
    pub fn new(pool: PgPool) -> Self {
        Self {
            jobs: jobs::Worker::new(pool).maintenance(Arc::new(RequestTask)),
            reconcile_every: RECONCILE_INTERVAL,
            input_limits: InputLimits::default(),
        }
    }

    pub(crate) fn with(self, change: impl FnOnce(jobs::Worker) -> jobs::Worker) -> Self {
        Self {
            jobs: change(self.jobs),
            ..self
        }
    }

    /// Registers a job type, so that the worker performs its jobs; or a tuple of job types, also nested.
    pub fn register<J: Jobs>(self) -> Self {
        self.with(jobs::Worker::register::<J>)
    }

    /// Adds a value that jobs read with [`Context::data`](jobs::Context::data).
    pub fn data<T: Send + Sync + 'static>(self, value: T) -> Self {
        self.with(|jobs| jobs.data(value))
    }

    /// Wraps each attempt in a tower layer: see [`jobs::Worker::layer`].
    pub fn layer<L>(self, layer: L) -> Self
    where
        L: Layer<Performer, Service: PerformService> + Send + Sync + 'static,
    {
        self.with(|jobs| jobs.layer(layer))
    }

    /// Sets a handler that is called after each failed attempt: see [`jobs::Worker::on_error`].
    pub fn on_error<F>(self, handler: impl Fn(FailedAttempt) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.with(|jobs| jobs.on_error(handler))
    }

    forward! {
        /// Serves a queue with this many slots: the number of its jobs that run in this worker at a time. `media.*`
        /// serves all queues whose names begin with `media.`, which share the slots. A queue belongs to the most
        /// specific pattern: after `.queue("media.hd", 2)`, `media.*` no longer takes jobs of `media.hd`.
        queue(pattern: impl Into<String>, slots: u32);
        /// Restricts the worker to jobs of this type, or of all types whose names begin with the same characters
        /// (`billing.*`). Several calls allow the types of each of them.
        job_types(pattern: impl Into<String>);
        /// Sets the name under which the worker is listed; by default the host name and the process id.
        name(name: impl Into<String>);
        /// Keeps the rows of succeeded jobs, which are deleted by default. The outputs of steps are kept with their
        /// runs in any case.
        keep_succeeded(keep: bool);
        /// Sets the grace period of running jobs when the worker stops (25 s by default). After it they are handed
        /// back to the queue, which costs them no attempt.
        grace(grace: Duration);
        /// Sets how often the worker polls for work that no notification announced (1 s by default). From 10 ms to
        /// 10 s: each poll is also the worker's heartbeat.
        poll(poll: Duration);
        /// Sets after how long a job fails whose type no live worker knows (10 minutes by default).
        unknown_job_timeout(timeout: Duration);
        /// Sets the maximum number of ends in one transaction (5,000 by default).
        #[cfg(feature = "testing")]
        #[doc(hidden)]
        group(ends: usize);
        /// Sets the maximum size of large args that one claim takes for a queue, in bytes (16 MiB by default).
        #[cfg(feature = "testing")]
        #[doc(hidden)]
        claim_bytes(bytes: usize);
        /// Sets how long another session may hold a row that ends wait for before the worker warns (10 s by
        /// default).
        #[cfg(feature = "testing")]
        #[doc(hidden)]
        held_warning(after: Duration);
        /// Observes moments of the engine.
        #[cfg(feature = "testing")]
        #[doc(hidden)]
        probe(probe: Arc<dyn jobs::testing::Probe>);
    }

    /// Sets the interval of the reconciler (10 s by default), which repairs runs whose rows were changed from outside:
    /// see [`ReconcilerStats`](crate::ReconcilerStats). Only one worker of a database reconciles at a time.
    pub fn reconcile_every(mut self, every: Duration) -> Self {
        self.reconcile_every = every;
        self
    }

    /// Sets the maximum size of the input of a step, and of the large inputs that one claim loads, in bytes (16 MiB
    /// each by default).
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn input_limits(mut self, step: usize, together: usize) -> Self {
        let bytes = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.input_limits = InputLimits {
            step: bytes(step),
            together: bytes(together),
        };
        self
    }

    /// Runs the worker until the future completes. Then the worker stops claiming, waits for running jobs up to their
    /// [grace period](Self::grace), hands the other jobs back, and returns when all ends are committed.
    ///
    /// # Errors
    ///
    /// The first mistake in the worker's settings, before it runs;
    /// [`Error::NotMigrated`](crate::Error::NotMigrated). If the database cannot be reached, the worker waits for it.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        Ok(self.into_jobs().run_until(stop).await?)
    }

    /// Runs the worker until its process ends.
    ///
    /// # Errors
    ///
    /// See [`run_until`](Self::run_until).
    pub async fn run(self) -> Result<()> {
        Ok(self.into_jobs().run().await?)
    }

    /// Returns the apalis builder of the worker, to which layers can be added, and the service to build it with: see
    /// [`jobs::Worker::into_parts`].
    ///
    /// # Errors
    ///
    /// The first mistake in the worker's settings.
    pub fn into_parts(self) -> Result<(WorkerBuilder<Envelope, JobsBackend, Identity>, Performer)> {
        Ok(self.into_jobs().into_parts()?)
    }

    /// Returns the worker's name, its apalis backend and its service: see [`jobs::Worker::into_backend`].
    ///
    /// # Errors
    ///
    /// The first mistake in the worker's settings.
    pub fn into_backend(self) -> Result<(String, JobsBackend, Performer)> {
        Ok(self.into_jobs().into_backend()?)
    }

    /// Returns the worker as a worker of the `jobs` crate, with the coordinator.
    pub fn into_jobs(self) -> jobs::Worker {
        let every = self
            .reconcile_every
            .clamp(Duration::from_millis(1), limits::MAX_DURATION);
        let coordinator = Arc::new(Coordinator {
            limits: self.input_limits,
            tell: crate::client::local_waiters::ended,
        });
        self.jobs
            .end_hook(coordinator.clone())
            .claim_hook(coordinator)
            .maintenance(Arc::new(ReconcilerTask { every }))
    }
}
