//! The worker: performs the jobs of queues.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use apalis_core::layers::Layer;
use apalis_core::worker::builder::WorkerBuilder;
use sqlx::PgPool;

use crate::attempt::{Envelope, GroupLimits};
use crate::backend::JobsBackend;
use crate::batch_hook::BatchHook;
use crate::context::Data;
use crate::engine::{ClaimHook, Config, EndHook, Engine, Hooks, MaintenanceTask, Phase, covers};
use crate::on_error::ErrorReporter;
use crate::registry::{Jobs, PerformService, Performer, Registering, Registry};
#[cfg(feature = "testing")]
use crate::testing::{Fake, ManualEngine, Probe};
use crate::{Error, FailedAttempt, Result, limits};

/// Performs the jobs of the queues that it serves. Any number of workers can run, in one process or in many.
///
/// ```no_run
/// # use jobs::{Client, Job, Perform, Context, JobError, Worker, shutdown_signal};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize, Job)]
/// # struct Welcome { user: i64 }
/// # impl Perform for Welcome {
/// #     type Input = ();
/// #     type Output = ();
/// #     async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> { Ok(()) }
/// # }
/// # async fn example(pool: sqlx::PgPool) -> Result<(), jobs::Error> {
/// Worker::new(pool)
///     .register::<Welcome>()
///     .queue("media", 8)
///     .queue("default", 32)
///     .run_until(shutdown_signal())
///     .await
/// # }
/// ```
///
/// A worker opens a few connections besides those of the pool, so that jobs that use all connections of the pool cannot
/// keep it from renewing leases and committing the ends of attempts.
#[derive(Debug)]
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    pool: PgPool,
    name: Option<String>,
    queues: Vec<(String, u32)>,
    job_types: Vec<String>,
    registry: Registry,
    data: Data,
    keep_succeeded: bool,
    grace: Duration,
    poll: Duration,
    unknown_job_timeout: Duration,
    hooks: Hooks,
    limits: GroupLimits,
    claim_bytes: usize,
    held_warning: Duration,
    layers: Layers,
    /// The first mistake of the setup, returned when the worker is built.
    mistake: Option<Error>,
}

impl Worker {
    /// Creates a worker on the pool's database. It serves no queue and knows no job type yet.
    pub fn new(pool: PgPool) -> Self {
        Self {
            pool,
            name: None,
            queues: Vec::new(),
            job_types: Vec::new(),
            registry: Registry::default(),
            data: Data::default(),
            keep_succeeded: false,
            grace: Duration::from_secs(25),
            poll: Duration::from_secs(1),
            unknown_job_timeout: Duration::from_secs(600),
            hooks: Hooks {
                end: vec![Arc::new(BatchHook)],
                ..Hooks::default()
            },
            limits: GroupLimits {
                count: 5_000,
                bytes: 16 << 20,
            },
            claim_bytes: 16 << 20,
            held_warning: Duration::from_secs(10),
            layers: Layers::default(),
            mistake: None,
        }
    }

    /// Registers the job types that the worker can perform: one type, or a tuple of types, of which each may be a tuple
    /// itself; see [`Jobs`].
    pub fn register<J: Jobs>(mut self) -> Self {
        let outcome = J::register(&mut Registering(&mut self.registry));
        self.note(outcome);
        self
    }

    /// Serves a queue with this many slots: the worker performs at most so many of its jobs at a time. `media.*` stands
    /// for all queues whose names begin with `media.`, which share the slots. A queue belongs to the most specific
    /// pattern: after `.queue("media.hd", 2)`, `media.*` no longer takes jobs of `media.hd`.
    pub fn queue(mut self, pattern: impl Into<String>, slots: u32) -> Self {
        self.queues.push((pattern.into(), slots));
        self
    }

    /// Restricts the worker to jobs of this type, or of all types whose names begin with the same characters
    /// (`billing.*`). Several calls allow the types of each of them. By default, the worker performs every type that it
    /// knows.
    pub fn job_types(mut self, pattern: impl Into<String>) -> Self {
        let pattern = pattern.into();
        let outcome = limits::pattern("job type", &pattern);
        self.note(outcome);
        self.job_types.push(pattern);
        self
    }

    /// Gives a value to the jobs, which [`Context::data`](crate::Context::data) returns.
    pub fn data<T: Send + Sync + 'static>(self, value: T) -> Self {
        self.insert_data(Arc::new(value))
    }

    fn insert_data<T: Send + Sync + 'static>(mut self, value: Arc<T>) -> Self {
        self.data.insert(value);
        self
    }

    /// Gives jobs a value that the caller shares.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn shared_data<T: Send + Sync + 'static>(self, value: Arc<T>) -> Self {
        self.insert_data(value)
    }

    /// Registers this job type, and calls the fake instead of performing it.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn fake<J: crate::Perform>(self, fake: Fake<J>) -> Self {
        self.register::<J>().data(fake)
    }

    /// Returns the names of the registered job types.
    #[doc(hidden)]
    pub fn registered_types(&self) -> Vec<String> {
        self.registry.names()
    }

    /// Sets the name under which the worker is listed. By default, it consists of the name of the host and the process
    /// id. Workers may have equal names.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        let outcome = limits::name("worker", &name);
        self.note(outcome);
        self.name = Some(name);
        self
    }

    /// Sets whether jobs that have succeeded are kept. By default, they are deleted when they succeed.
    pub fn keep_succeeded(mut self, keep: bool) -> Self {
        self.keep_succeeded = keep;
        self
    }

    /// Sets how long a shutdown waits for running jobs (25 s by default). Then the jobs are handed back, which costs them
    /// no attempt.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the interval at which the worker looks for jobs of which it got no notification (1 s by default). It must be
    /// from 10 ms to 10 s, because the worker writes its heartbeat at the same interval.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// Sets after how long a job fails whose type no live worker knows (10 minutes by default).
    pub fn unknown_job_timeout(mut self, timeout: Duration) -> Self {
        self.unknown_job_timeout = timeout;
        self
    }

    /// Wraps each attempt in a tower layer. Of several layers, the one that was added first is the outermost, as in
    /// tower's `ServiceBuilder`.
    ///
    /// The layer sees the claimed job as an [`Envelope`], and its result as an [`Output`](crate::Output) or an error. It
    /// runs inside the job's tracing span and timeout. An error or a panic of the layer fails the attempt.
    ///
    /// ```no_run
    /// # fn example(worker: jobs::Worker) -> jobs::Worker {
    /// // At most ten jobs at a time, over all queues of this worker.
    /// worker.layer(tower::limit::GlobalConcurrencyLimitLayer::new(10))
    /// # }
    /// ```
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<Performer, Service: PerformService> + Send + Sync + 'static,
    {
        let wrap = move |performer: Performer| performer.layered(&layer);
        self.layers.0.push(Box::new(wrap));
        self
    }

    /// Sets a handler that is called after each failed attempt, for example to send the error to an error tracker.
    ///
    /// The handler is called once the end of the attempt is committed, in a task of its own that calls it for one
    /// attempt after the other. It cannot hold up the worker: if more than 1,000 failed attempts wait for it, further
    /// ones are dropped, counted and logged. A call that panics, or takes longer than 30 seconds, is logged.
    ///
    /// ```no_run
    /// # async fn send(_: String) {}
    /// # fn example(worker: jobs::Worker) -> jobs::Worker {
    /// worker.on_error(|failed| async move {
    ///     if failed.is_final {
    ///         send(format!("job {}: {}", failed.job, failed.error_message)).await;
    ///     }
    /// })
    /// # }
    /// ```
    pub fn on_error<F>(
        mut self,
        handler: impl Fn(FailedAttempt) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.hooks.error_reporter = Some(Arc::new(ErrorReporter::new(handler)));
        self
    }

    /// Adds a hook to the transaction that ends attempts.
    #[doc(hidden)]
    pub fn end_hook(mut self, hook: Arc<dyn EndHook>) -> Self {
        self.hooks.end.push(hook);
        self
    }

    /// Adds a hook to the transaction that claims jobs.
    #[doc(hidden)]
    pub fn claim_hook(mut self, hook: Arc<dyn ClaimHook>) -> Self {
        self.hooks.claim.push(hook);
        self
    }

    /// Adds a periodic task.
    #[doc(hidden)]
    pub fn maintenance(mut self, task: Arc<dyn MaintenanceTask>) -> Self {
        self.hooks.maintenance.push(task);
        self
    }

    /// Sets the most ends in one transaction (5,000 by default).
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn group(mut self, ends: usize) -> Self {
        self.limits.count = ends.max(1);
        self
    }

    /// Sets the most bytes of outputs and errors in one transaction (16 MiB by default).
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn group_bytes(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes.max(1);
        self
    }

    /// Sets the most bytes of large arguments that one claim takes for a queue (16 MiB by default); one job
    /// is always taken.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn claim_bytes(mut self, bytes: usize) -> Self {
        self.claim_bytes = bytes;
        self
    }

    /// Sets how long another session may hold a row that ends wait for before the worker warns (10 s by
    /// default).
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn held_warning(mut self, after: Duration) -> Self {
        self.held_warning = after;
        self
    }

    /// Observes moments of the engine.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn probe(mut self, probe: Arc<dyn Probe>) -> Self {
        self.hooks.probe = Some(probe);
        self
    }

    fn note(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.mistake.get_or_insert(error);
        }
    }

    /// Runs the worker until the future completes, then shuts it down: the worker claims no more jobs, waits for running
    /// ones until the [grace period](Self::grace) is over, hands the rest back, and returns when all ends are committed.
    ///
    /// # Errors
    ///
    /// A mistake in the setup of the worker, before it runs, such as [`Error::NothingRegistered`];
    /// [`Error::NotMigrated`]. If the database cannot be reached, the worker waits for it.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        let (name, backend, performer) = self.into_working_backend()?;
        let engine = Arc::clone(&backend.engine);
        let worker = WorkerBuilder::new(name.as_str())
            .backend(backend)
            .build(performer);
        let failed = engine.lifecycle.failed();
        let stopped = {
            let engine = Arc::clone(&engine);
            async move {
                tokio::select! {
                    () = stop => {}
                    () = failed => {}
                }
                engine.stop();
                Ok::<(), std::io::Error>(())
            }
        };
        // apalis waits for every job to be dropped; one that blocks its thread cannot be, and the engine has
        // handed it back by then.
        let ended = tokio::select! {
            biased;
            ended = worker.run_until(stopped) => ended,
            () = engine.lifecycle.reached_owned(Phase::Stopped) => Ok(()),
        };
        if let Some(reporter) = engine.error_reporter() {
            reporter.flush().await;
        }
        if let Some(failure) = engine.lifecycle.take_failure() {
            return Err(failure);
        }
        ended.map_err(|source| Error::WorkerEnded {
            worker: name,
            source,
        })
    }

    /// Runs the worker until the process ends.
    ///
    /// # Errors
    ///
    /// Those of [`run_until`](Self::run_until).
    pub async fn run(self) -> Result<()> {
        self.run_until(std::future::pending()).await
    }

    /// Returns the worker as an apalis builder, to which event listeners and layers can be added, and the service to build
    /// it with.
    ///
    /// ```no_run
    /// # async fn example(worker: jobs::Worker) -> Result<(), Box<dyn std::error::Error>> {
    /// use apalis_core::worker::ext::event_listener::EventListenerExt;
    ///
    /// let (builder, performer) = worker.into_parts()?;
    /// builder
    ///     .on_event(|_, event| println!("{event}"))
    ///     .build(performer)
    ///     .run()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// For apalis's `Monitor`, whose factory may be called more than once, clone what
    /// [`into_backend`](Self::into_backend) returns: `monitor.register(move |_| ..backend.clone()..)`. All
    /// clones are one worker: once it has stopped, it stays stopped. The backend has no error that would make a monitor
    /// restart it; to run again after a stop, create a new [`Worker`].
    ///
    /// # Errors
    ///
    /// A mistake in the setup of the worker.
    pub fn into_parts(
        self,
    ) -> Result<(
        WorkerBuilder<Envelope, JobsBackend, apalis_core::layers::Identity>,
        Performer,
    )> {
        let (name, backend, performer) = self.into_working_backend()?;
        Ok((
            WorkerBuilder::new(name.as_str()).backend(backend),
            performer,
        ))
    }

    /// Returns the worker's name, its apalis backend and its service, from which an apalis worker can be built.
    ///
    /// # Errors
    ///
    /// A mistake in the setup of the worker.
    pub fn into_backend(self) -> Result<(String, JobsBackend, Performer)> {
        let (engine, performer) = self.into_engine()?;
        let name = engine.config.name.clone();
        Ok((name, JobsBackend::new(Arc::new(engine)), performer))
    }

    /// Returns the backend of a worker that performs jobs. A backend that only lists jobs needs no job type.
    fn into_working_backend(self) -> Result<(String, JobsBackend, Performer)> {
        let has_no_type = self.mistake.is_none() && self.registry.names().is_empty();
        let (name, backend, performer) = self.into_backend()?;
        if has_no_type {
            return Err(Error::NothingRegistered { worker: name });
        }
        Ok((name, backend, performer))
    }

    /// Returns the worker's engine without its tasks: a test runs its transactions one by one.
    ///
    /// # Errors
    ///
    /// A mistake in the setup of the worker; [`Error::Database`] if the database cannot be reached.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub async fn manual(self) -> Result<ManualEngine> {
        let (engine, _) = self.into_engine()?;
        ManualEngine::new(engine).await
    }

    fn into_engine(self) -> Result<(Engine, Performer)> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        let host = host();
        let name = self
            .name
            .unwrap_or_else(|| format!("{host}:{}", std::process::id()));
        let known = self.registry.names();
        let matches_none = |pattern: &&String| !known.iter().any(|name| covers(pattern, name));
        if let Some(pattern) = self.job_types.iter().find(matches_none) {
            return Err(Error::NoMatchingJobType {
                worker: name,
                pattern: pattern.clone(),
                known,
            });
        }
        if !(limits::MIN_POLL_INTERVAL..=limits::MAX_POLL_INTERVAL).contains(&self.poll) {
            return Err(Error::PollOutOfRange {
                worker: name,
                given: self.poll,
            });
        }
        let registry = Arc::new(self.registry);
        let is_performed = |name: &String| {
            let covers_name = |pattern: &String| covers(pattern, name);
            self.job_types.is_empty() || self.job_types.iter().any(covers_name)
        };
        let config = Config {
            pool: self.pool,
            name,
            host,
            only: (!self.job_types.is_empty())
                .then(|| self.job_types.iter().map(|pattern| like(pattern)).collect()),
            keep_succeeded: self.keep_succeeded,
            grace: self.grace,
            poll: self.poll,
            unknown_job_timeout: self.unknown_job_timeout,
            held_warning: self.held_warning,
            claim_bytes: i64::try_from(self.claim_bytes).unwrap_or(i64::MAX),
            job_types: registry.names().into_iter().filter(is_performed).collect(),
            registry: Arc::clone(&registry),
            id: OnceLock::new(),
        };
        let engine = Engine::new(config, self.queues, self.hooks, self.limits)?;
        let performer = Performer::new(registry, Arc::new(self.data));
        // The first layer is the outermost, so that it is applied last.
        let layers = self.layers.0.into_iter().rev();
        let performer = layers.fold(performer, |performer, wrap| wrap(performer));
        Ok((engine, performer))
    }
}

/// The layers of a worker, in the order in which they were added.
#[derive(Default)]
struct Layers(Vec<Box<dyn FnOnce(Performer) -> Performer + Send + Sync>>);

impl std::fmt::Debug for Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Layers").field(&self.0.len()).finish()
    }
}

/// Converts a pattern of names to a pattern of SQL's LIKE.
fn like(pattern: &str) -> String {
    let escaped = pattern.replace('_', "\\_");
    match escaped.strip_suffix('*') {
        Some(beginning) => format!("{beginning}%"),
        None => escaped,
    }
}

/// Returns the name of this host, by which the row of a worker can be told from others.
fn host() -> String {
    let kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let names = [
        cfg!(target_os = "linux").then(kernel).flatten(),
        std::env::var("HOSTNAME").ok(),
        std::env::var("COMPUTERNAME").ok(),
    ];
    let names = names.iter().flatten().map(|name| name.trim());
    let mut names = names.filter(|name| !name.is_empty());
    names.next().unwrap_or("localhost").to_owned()
}

/// Completes when the process is asked to stop: by SIGTERM or SIGINT (Ctrl-C) on Unix, by Ctrl-C elsewhere.
pub async fn shutdown_signal() {
    if let Err(error) = stop_requested().await {
        tracing::error!(
            error = error.to_string(),
            "process cannot listen for stop signals; it runs until it is killed"
        );
        std::future::pending().await
    }
}

#[cfg(unix)]
async fn stop_requested() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(not(unix))]
async fn stop_requested() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}

#[cfg(test)]
mod tests {
    use super::like;

    #[test]
    fn a_pattern_matches_what_it_says_in_sql_too() {
        assert_eq!(like("billing.*"), "billing.%");
        assert_eq!(like("send_mail"), "send\\_mail");
        assert_eq!(like("*"), "%");
    }
}
