//! A process that runs jobs.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use apalis_core::worker::builder::WorkerBuilder;
use sqlx::PgPool;

use crate::attempt::{Envelope, GroupLimits};
use crate::backend::JobsBackend;
use crate::batch_hook::BatchHook;
use crate::context::Data;
use crate::engine::{ClaimHook, Config, EndHook, Engine, Hooks, MaintenanceTask, Phase, covers};
use crate::registry::{Jobs, Performer, Registering, Registry};
#[cfg(feature = "testing")]
use crate::testing::{Fake, ManualEngine, Probe};
use crate::{Error, Result, limits};

/// A process that runs jobs; run as many as you like.
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
/// It takes a few connections of its own beside those of the pool, so that no job can keep it from
/// renewing leases and writing down ends.
#[derive(Debug)]
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    pool: PgPool,
    name: Option<String>,
    queues: Vec<(String, u32)>,
    only: Vec<String>,
    registry: Registry,
    data: Data,
    keep_succeeded: bool,
    grace: Duration,
    poll: Duration,
    unknown_after: Duration,
    hooks: Hooks,
    limits: GroupLimits,
    claim_bytes: usize,
    held_warning: Duration,
    /// The first mistake, told when it is built.
    mistake: Option<Error>,
}

impl Worker {
    /// A worker on the pool's database. It serves no queue yet and knows no job type.
    pub fn new(pool: PgPool) -> Self {
        Self {
            pool,
            name: None,
            queues: Vec::new(),
            only: Vec::new(),
            registry: Registry::default(),
            data: Data::default(),
            keep_succeeded: false,
            grace: Duration::from_secs(25),
            poll: Duration::from_secs(1),
            unknown_after: Duration::from_secs(600),
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
            mistake: None,
        }
    }

    /// Knows how to perform this job type, or each of a tuple of them.
    pub fn register<J: Jobs>(mut self) -> Self {
        let outcome = J::register(&mut Registering(&mut self.registry));
        self.note(outcome);
        self
    }

    /// Serves a queue with this many slots: so many of its jobs run here at a time. `media.*` stands
    /// for all queues whose names begin so, which share the slots. A queue belongs to the most
    /// specific pattern: after `.queue("media.hd", 2)`, `media.*` no longer takes jobs of `media.hd`.
    pub fn queue(mut self, pattern: impl Into<String>, slots: u32) -> Self {
        self.queues.push((pattern.into(), slots));
        self
    }

    /// Takes only jobs of this type, or of types whose names begin so (`billing.*`). Said several
    /// times, takes any of them.
    pub fn only(mut self, pattern: impl Into<String>) -> Self {
        let pattern = pattern.into();
        let outcome = limits::pattern("job type", &pattern);
        self.note(outcome);
        self.only.push(pattern);
        self
    }

    /// Gives jobs this value: [`Context::data`](crate::Context::data) returns it.
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

    /// The names of the job types it knows.
    #[doc(hidden)]
    pub fn kinds(&self) -> Vec<String> {
        self.registry.names()
    }

    /// The name it is listed under. By default the host's name and the process's number; two
    /// workers of one name are two workers.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        let outcome = limits::name("worker", &name);
        self.note(outcome);
        self.name = Some(name);
        self
    }

    /// Keeps jobs that have succeeded; by default they are deleted with their end.
    pub fn keep_succeeded(mut self, keep: bool) -> Self {
        self.keep_succeeded = keep;
        self
    }

    /// How long running jobs have when the worker is to stop (25 s by default). Then they are handed
    /// back, which costs them no attempt.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How often to look for work that no notification told of (every second by default); from 10 ms to
    /// 10 s, because signs of life are given with it.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// After how long a job whose type no live worker knows has failed (10 minutes by default).
    pub fn unknown_after(mut self, wait: Duration) -> Self {
        self.unknown_after = wait;
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

    /// Adds work that is done from time to time.
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

    /// Runs until the future ends; then stops claiming, gives running jobs their grace, hands the
    /// rest back, and returns when all of that is written down.
    ///
    /// # Errors
    ///
    /// What was wrong with how it was set up, before it runs; [`Error::NotMigrated`]. A database that
    /// cannot be reached is no error: the worker waits for it.
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
        if let Some(failure) = engine.lifecycle.take_failure() {
            return Err(failure);
        }
        ended.map_err(|source| Error::WorkerEnded {
            worker: name,
            source,
        })
    }

    /// Runs for ever.
    ///
    /// # Errors
    ///
    /// See [`run_until`](Self::run_until).
    pub async fn run(self) -> Result<()> {
        self.run_until(std::future::pending()).await
    }

    /// The worker as apalis has it: the builder, to which layers can be added, and the service to
    /// build it with.
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
    /// clones are one worker: once it has stopped it stays stopped. Our backend has no error that would
    /// make a monitor restart it; to run again after a stop, make a new [`Worker`].
    ///
    /// # Errors
    ///
    /// What was wrong with how it was set up.
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

    /// The worker's name, its apalis backend and its service, for whoever builds apalis workers
    /// themselves.
    ///
    /// # Errors
    ///
    /// What was wrong with how it was set up.
    pub fn into_backend(self) -> Result<(String, JobsBackend, Performer)> {
        let (engine, performer) = self.into_engine()?;
        let name = engine.config.name.clone();
        Ok((name, JobsBackend::new(Arc::new(engine)), performer))
    }

    /// Returns the backend of a worker that performs jobs. A backend that only shows them needs no job type.
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
    /// What was wrong with how it was set up, or when the database cannot be reached.
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
        let matches_none = |pattern: &&String| !known.iter().any(|kind| covers(pattern, kind));
        if let Some(pattern) = self.only.iter().find(matches_none) {
            return Err(Error::OnlyMatchesNothing {
                worker: name,
                pattern: pattern.clone(),
                known: known.join(", "),
            });
        }
        if !(limits::MIN_POLL_INTERVAL..=limits::MAX_POLL_INTERVAL).contains(&self.poll) {
            return Err(Error::PollOutOfRange {
                worker: name,
                given: self.poll,
            });
        }
        let registry = Arc::new(self.registry);
        let taken = |kind: &String| {
            self.only.is_empty() || self.only.iter().any(|pattern| covers(pattern, kind))
        };
        let config = Config {
            pool: self.pool,
            name,
            host,
            only: (!self.only.is_empty())
                .then(|| self.only.iter().map(|pattern| like(pattern)).collect()),
            keep_succeeded: self.keep_succeeded,
            grace: self.grace,
            poll: self.poll,
            unknown_after: self.unknown_after,
            held_warning: self.held_warning,
            claim_bytes: i64::try_from(self.claim_bytes).unwrap_or(i64::MAX),
            job_types: registry.names().into_iter().filter(taken).collect(),
            registry: Arc::clone(&registry),
            id: OnceLock::new(),
        };
        let engine = Engine::new(config, self.queues, self.hooks, self.limits)?;
        let performer = Performer {
            registry,
            data: Arc::new(self.data),
        };
        Ok((engine, performer))
    }
}

/// A pattern of ours as one of SQL's LIKE.
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
