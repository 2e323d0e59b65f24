//! A process that runs jobs and steps.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jobs::extension::{is_owned, limits};
use jobs::{Envelope, Jobs, JobsBackend, Performer};
use sqlx::PgPool;

use crate::Result;
use crate::coordinator::{Coordinator, EVERY, Errands, InputLimits, Reconciler};

/// A process that runs jobs and the steps of runs, and moves runs on; run as many as you like.
///
/// It is a [`jobs::Worker`] that carries the coordinator.
///
/// ```no_run
/// # use pipeline::{Worker, jobs::{self, Job, Perform, Context, JobError, shutdown_signal}};
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

macro_rules! same {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*);)*) => {
        $($(#[$doc])*
        pub fn $name(self, $($arg: $type),*) -> Self {
            self.with(|jobs| jobs.$name($($arg),*))
        })*
    };
}

impl Worker {
    /// A worker on the pool's database. It serves no queue yet and knows no job type.
    pub fn new(pool: PgPool) -> Self {
        Self {
            jobs: jobs::Worker::new(pool).maintenance(Arc::new(Errands)),
            reconcile_every: EVERY,
            input_limits: InputLimits::default(),
        }
    }

    pub(crate) fn with(self, change: impl FnOnce(jobs::Worker) -> jobs::Worker) -> Self {
        Self {
            jobs: change(self.jobs),
            ..self
        }
    }

    /// Knows how to perform this job type, or each of a tuple of them.
    pub fn register<J: Jobs>(self) -> Self {
        self.with(jobs::Worker::register::<J>)
    }

    /// Gives jobs this value: [`Context::data`](jobs::Context::data) returns it.
    pub fn data<T: Send + Sync + 'static>(self, value: T) -> Self {
        self.with(|jobs| jobs.data(value))
    }

    same! {
        /// Serves a queue with this many slots: so many of its jobs run here at a time. `media.*`
        /// stands for all queues whose names begin so, which share the slots. A queue belongs to the
        /// most specific pattern: after `.queue("media.hd", 2)`, `media.*` no longer takes its jobs.
        queue(pattern: impl Into<String>, slots: u32);
        /// Takes only jobs of this type, or of types whose names begin so (`billing.*`). Said several
        /// times, takes any of them.
        only(pattern: impl Into<String>);
        /// The name it is listed under. By default the host's name and the process's number.
        name(name: impl Into<String>);
        /// Keeps jobs that have succeeded; by default they are deleted with their end. What steps
        /// returned is kept with their runs in any case.
        keep_succeeded(keep: bool);
        /// How long running jobs have when the worker is to stop (25 s by default). Then they are
        /// handed back, which costs them no attempt.
        grace(grace: Duration);
        /// How often to look for work that no notification told of (every second by default); from 10 ms
        /// to 10 s, because signs of life are given with it.
        poll(poll: Duration);
        /// After how long a job whose type no live worker knows has failed (10 minutes by default).
        unknown_after(wait: Duration);
        /// The most ends in one transaction (5,000 by default).
        #[cfg(feature = "testing")]
        #[doc(hidden)]
        group(ends: usize);
        /// The most bytes of large args that one claim takes for a queue (16 MiB by default).
        #[cfg(feature = "testing")]
        #[doc(hidden)]
        claim_bytes(bytes: usize);
        /// How long another session may hold a row that ends wait for before the worker warns (10 s by
        /// default).
        #[cfg(feature = "testing")]
        #[doc(hidden)]
        held_warning(after: Duration);
        /// Observes moments of the engine.
        #[cfg(feature = "testing")]
        #[doc(hidden)]
        probe(probe: Arc<dyn jobs::testing::Probe>);
    }

    /// How often to look for steps that somebody's hands have stopped (every 10 seconds by default):
    /// see [`Health`](crate::Health). Of all workers, one looks at a time.
    pub fn reconcile_every(mut self, every: Duration) -> Self {
        self.reconcile_every = every;
        self
    }

    /// How many bytes a step may be given, and how many the large ones of one claim may come to
    /// (16 MiB each by default).
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

    /// Runs until the future ends; then stops claiming, gives running jobs their grace, hands the
    /// rest back, and returns when all of that is written down.
    ///
    /// # Errors
    ///
    /// What was wrong with how it was set up, before it runs;
    /// [`Error::NotMigrated`](crate::Error::NotMigrated). A database that cannot be reached is no error:
    /// the worker waits for it.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        Ok(self.into_jobs().run_until(stop).await?)
    }

    /// Runs for ever.
    ///
    /// # Errors
    ///
    /// See [`run_until`](Self::run_until).
    pub async fn run(self) -> Result<()> {
        Ok(self.into_jobs().run().await?)
    }

    /// The worker's name, its apalis backend and its service: see
    /// [`jobs::Worker::into_backend`].
    ///
    /// # Errors
    ///
    /// What was wrong with how it was set up.
    pub fn into_backend(self) -> Result<(String, JobsBackend, Performer)> {
        Ok(self.into_jobs().into_backend()?)
    }

    /// The same worker as the layer of jobs has it: see [`jobs::Worker::into_parts`].
    pub fn into_jobs(self) -> jobs::Worker {
        let every = self
            .reconcile_every
            .clamp(Duration::from_millis(1), limits::LONGEST);
        let coordinator = Arc::new(Coordinator {
            limits: self.input_limits,
            tell: crate::client::local_waiters::ended,
        });
        self.jobs
            .end_hook(coordinator.clone())
            .claim_hook(coordinator)
            .maintenance(Arc::new(Reconciler { every }))
    }
}

/// Adds to a job's [`Context`](jobs::Context) what a step knows of its run, and how a step ends its run.
pub trait StepContext {
    /// Returns the run that this job is a step of; `None` for a job that is not a step.
    fn run(&self) -> Option<i64>;

    /// Returns the key of the step; `None` for a job that is not a step.
    fn step(&self) -> Option<&str>;

    /// Returns the round of the run: 1, and one more for each time that the run was reopened.
    fn round(&self) -> Option<u32>;

    /// Ends the run early once this attempt has succeeded: steps that have not started are skipped, and the run
    /// succeeds if no step failed.
    ///
    /// The request belongs to the attempt: if the attempt fails, the request is dropped. In a job that is not a step,
    /// the call has no effect.
    fn end_run(&self);
}

macro_rules! step_context {
    ($($type:ty)*) => {
        $(impl StepContext for $type {
            fn run(&self) -> Option<i64> {
                step(self.id())
            }

            fn step(&self) -> Option<&str> {
                self.owner().map(|owner| owner.label.as_str())
            }

            fn round(&self) -> Option<u32> {
                self.owner().map(|owner| owner.generation)
            }

            fn end_run(&self) {
                self.end_owner();
            }
        })*
    };
}

step_context!(jobs::Context Envelope);

fn step(job: i64) -> Option<i64> {
    is_owned(job).then(|| crate::coordinator::run_of(job))
}
