//! A kit for the tests of applications: runs pipelines in the test's process, against a real database.
//!
//! A [`Harness`] runs jobs until nothing is left to do, moves the clock instead of waiting, replaces jobs by fakes,
//! and checks the state of runs, jobs and batches.
//!
//! ```no_run
//! # use pipeline::jobs::{self, Context, Job, JobError, Perform};
//! # use pipeline::{Invalid, Pipeline, testing::Harness};
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Serialize, Deserialize, Job)]
//! # struct Download { video: u64 }
//! # impl Perform for Download {
//! #     type Input = ();
//! #     type Output = String;
//! #     async fn perform(self, (): (), _: &Context) -> Result<String, JobError> { Ok(self.video.to_string()) }
//! # }
//! # #[derive(Serialize, Deserialize, Job)]
//! # struct Publish;
//! # impl Perform for Publish {
//! #     type Input = String;
//! #     type Output = ();
//! #     async fn perform(self, _: String, _: &Context) -> Result<(), JobError> { Ok(()) }
//! # }
//! # fn video() -> Result<Pipeline, Invalid> {
//! #     Pipeline::configure("video", |p| { p.step("download", Download { video: 1 }).then("publish", Publish); })
//! # }
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let harness = Harness::on(pool)
//!     .register::<Publish>()
//!     .fake(|job: Download, ()| Ok(format!("{}.mkv", job.video)))
//!     .build()
//!     .await?;
//! let run = harness.client().start(video()?).await?;
//! harness.run_until_idle().await?;
//! harness
//!     .assert(&run)
//!     .await?
//!     .succeeded()
//!     .step("download")
//!     .returned("1.mkv".to_owned());
//! # Ok(())
//! # }
//! ```
//!
//! The module needs the feature `testing`. Each test needs a database of its own, because the harness replaces the
//! database's clock and runs all of its jobs.

mod assert;
mod assert_jobs;
mod clock;
mod fake;
mod hold;
mod idle;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jobs::Jobs;
use sqlx::PgPool;

use crate::{Client, Result, Worker};

use fake::Declared;
use hold::Holds;

pub use assert::{RunAssert, StepAssert};
pub use assert_jobs::{BatchAssert, JobAssert, JobsAssert};
pub use clock::Clock;
pub use hold::HeldStep;
pub use idle::{Idle, Waiting};

/// How long the harness waits for the jobs of a test by default, by the process's own clock.
const DEFAULT_LIMIT: Duration = Duration::from_secs(60);
/// How many jobs run at a time by default.
const DEFAULT_SLOTS: u32 = 16;
/// How often the harness's worker looks for jobs.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The name of the worker that runs the jobs of a test.
const WORKER_NAME: &str = "test";

type Change = Arc<dyn Fn(Worker) -> Worker + Send + Sync>;

/// The settings of a [`Harness`]. Created by [`Harness::on`].
#[must_use = "a harness does nothing until it is built"]
pub struct Setup {
    pool: PgPool,
    any_database: bool,
    limit: Duration,
    slots: u32,
    /// The changes that the test makes to the worker. A new worker is built for each run.
    changes: Vec<Change>,
    /// The fakes of each job type.
    fakes: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
    /// All fakes, as the test declared them.
    declared: Vec<Arc<Declared>>,
    allows_unused_fakes: bool,
}

impl Setup {
    fn change(mut self, change: impl Fn(Worker) -> Worker + Send + Sync + 'static) -> Self {
        self.changes.push(Arc::new(change));
        self
    }

    /// Registers a job type, or each of a tuple of them, like [`Worker::register`].
    pub fn register<J: Jobs + 'static>(self) -> Self {
        self.change(Worker::register::<J>)
    }

    /// Gives jobs a value that they read with [`Context::data`](jobs::Context::data), like [`Worker::data`].
    pub fn data<T: Send + Sync + 'static>(self, value: T) -> Self {
        let value = Arc::new(value);
        self.change(move |worker| worker.with(|jobs| jobs.shared_data(Arc::clone(&value))))
    }

    /// Sets how many jobs run at a time (16 by default). With one slot, jobs run one after the other.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// Sets how long [`Harness::run_until_idle`] waits by the process's own clock (60 s by default). After that it
    /// returns [`Error::NotIdle`](crate::Error::NotIdle).
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Accepts a database whose name does not contain the word `test`. The clock is replaced for all who use the
    /// database: be sure that it is yours.
    pub fn allow_any_database(mut self) -> Self {
        self.any_database = true;
        self
    }

    /// Migrates the database, stops its clock, and registers the harness as a live worker, so that `run.reopen()`
    /// needs no `.force()`.
    ///
    /// # Errors
    ///
    /// [`Error::NotForTests`](crate::Error::NotForTests) and [`Error::DatabaseInUse`](crate::Error::DatabaseInUse)
    /// for a database that may not be one for tests; the first mistake in the settings.
    pub async fn build(self) -> Result<Harness> {
        if !self.any_database {
            clock::has_test_name(&self.pool).await?;
        }
        jobs::migrate(&self.pool).await?;
        let clock = Clock::install_anywhere(self.pool.clone()).await?;
        clock.stop().await?;
        let harness = Harness {
            clock,
            client: Client::new(self.pool.clone()),
            limit: self.limit,
            slots: self.slots,
            changes: self.changes,
            declared: self.declared,
            allows_unused_fakes: self.allows_unused_fakes,
            holds: Holds::new(),
        };
        // Registers the harness as a worker, and returns mistakes in the settings here instead of in each run.
        let registered = harness.worker().name(clock::HARNESS_NAME).into_jobs();
        registered.manual().await?;
        Ok(harness)
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("limit", &self.limit).finish()
    }
}

/// Runs the jobs of a test's database in the test's own process.
///
/// Jobs run only while [`run_until_idle`](Self::run_until_idle) or [`skip_waits`](Self::skip_waits) is awaited, and
/// time passes in the database only when the test [advances](Self::advance) the clock: a retry runs when the test
/// wants it, however slow the machine is. Timeouts and sleeps of jobs pass by the process's own clock.
///
/// Jobs that have succeeded are kept, so that a test can check them.
pub struct Harness {
    clock: Clock,
    client: Client,
    limit: Duration,
    slots: u32,
    changes: Vec<Change>,
    declared: Vec<Arc<Declared>>,
    allows_unused_fakes: bool,
    holds: Arc<Holds>,
}

impl Harness {
    /// Begins the settings of a harness on the pool's database, which should be the test's own.
    pub fn on(pool: PgPool) -> Setup {
        Setup {
            pool,
            any_database: false,
            limit: DEFAULT_LIMIT,
            slots: DEFAULT_SLOTS,
            changes: Vec::new(),
            fakes: HashMap::new(),
            declared: Vec::new(),
            allows_unused_fakes: false,
        }
    }

    /// Returns a client on the same pool.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the database's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Moves the clock forward: see [`Clock::advance`].
    ///
    /// # Errors
    ///
    /// When the database cannot be reached.
    pub async fn advance(&self, by: Duration) -> Result<()> {
        self.clock.advance(by).await
    }

    /// Restores the database's own clock: see [`Clock::restore`].
    ///
    /// # Errors
    ///
    /// When the database cannot be reached.
    pub async fn restore(self) -> Result<()> {
        self.clock.restore().await
    }

    /// Returns a worker with the settings of the harness, which serves all queues.
    fn worker(&self) -> Worker {
        let mut worker = Worker::new(self.client.pool().clone())
            .name(WORKER_NAME)
            .queue("*", self.slots)
            .poll(POLL_INTERVAL)
            .grace(Duration::ZERO)
            .keep_succeeded(true);
        if !self.holds.all().is_empty() {
            worker = worker.probe(self.holds.clone());
        }
        self.changes
            .iter()
            .fold(worker, |worker, change| change(worker))
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness")
            .field("clock", &self.clock)
            .finish()
    }
}
