//! For your own tests: runs pipelines in the test's process, against a real database.
//!
//! A [`Harness`] runs what there is to do until nothing is left, moves the clock instead of waiting, does
//! what the test says in place of a job, and looks at what came of a run.
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
//! It needs the feature `testing`, and a database of its own for each test: all of its clock, its queues
//! and its runs are the test's.

mod assert;
mod clock;
mod fake;
mod idle;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jobs::Jobs;
use sqlx::PgPool;

use crate::{Client, Result, Worker};

pub use assert::{RunAssert, StepAssert};
pub use clock::Clock;
pub use idle::{Idle, Waiting};

/// How long a test waits for its jobs, by the process's own clock, unless it says otherwise.
const LIMIT: Duration = Duration::from_secs(60);
/// So many jobs run at a time.
const SLOTS: u32 = 16;

type Change = Arc<dyn Fn(Worker) -> Worker + Send + Sync>;

/// What a harness is to know. Made by [`Harness::on`].
#[must_use = "a harness does nothing until it is built"]
pub struct Setup {
    pool: PgPool,
    any_database: bool,
    limit: Duration,
    slots: u32,
    /// A worker is made anew each time that something is to be run.
    changes: Vec<Change>,
    /// What is done in place of job types, by type.
    fakes: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

impl Setup {
    fn change(mut self, change: impl Fn(Worker) -> Worker + Send + Sync + 'static) -> Self {
        self.changes.push(Arc::new(change));
        self
    }

    /// Knows how to perform this job type, or each of a tuple of them: as
    /// [`Worker::register`].
    pub fn register<J: Jobs + 'static>(self) -> Self {
        self.change(Worker::register::<J>)
    }

    /// Gives jobs this value: as [`Worker::data`].
    pub fn data<T: Send + Sync + 'static>(self, value: T) -> Self {
        let value = Arc::new(value);
        self.change(move |worker| worker.with(|jobs| jobs.shared_data(Arc::clone(&value))))
    }

    /// So many jobs run at a time (16 by default). With one, they run one after the other.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// How long [`Harness::run_until_idle`] waits, by the process's own clock, before it says what is
    /// still going on (60 s by default).
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Takes a database whose name has no word `test`. Its clock is replaced for everybody who uses it:
    /// be sure that it is yours.
    pub fn allow_any_database(mut self) -> Self {
        self.any_database = true;
        self
    }

    /// Migrates the database, and stops its clock: time passes when the test says so.
    ///
    /// # Errors
    ///
    /// [`Error::NotForTests`](crate::Error::NotForTests) for a database that may not be one for tests; what
    /// was wrong with the set-up.
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
        };
        // What is wrong is said here, not when something is run.
        harness.worker().into_backend()?;
        Ok(harness)
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("limit", &self.limit).finish()
    }
}

/// Runs what there is to do in a test's database, in the test's own process.
///
/// Nothing runs except while [`run_until_idle`](Self::run_until_idle) or
/// [`skip_waits`](Self::skip_waits) is awaited, and no time passes in the database except when the test
/// says so: a retry that is to come in a second comes when the test wants it, however slow the machine.
/// What is counted inside the process is not stopped: a job's timeout, and its own sleeps.
pub struct Harness {
    clock: Clock,
    client: Client,
    limit: Duration,
    slots: u32,
    changes: Vec<Change>,
}

impl Harness {
    /// A harness on the pool's database, which should be the test's own.
    pub fn on(pool: PgPool) -> Setup {
        Setup {
            pool,
            any_database: false,
            limit: LIMIT,
            slots: SLOTS,
            changes: Vec::new(),
            fakes: HashMap::new(),
        }
    }

    /// A client on the same pool.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The database's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Lets time pass: see [`Clock::advance`].
    ///
    /// # Errors
    ///
    /// When the database cannot be reached.
    pub async fn advance(&self, by: Duration) -> Result<()> {
        self.clock.advance(by).await
    }

    /// Gives the database its own clock back: see [`Clock::restore`].
    ///
    /// # Errors
    ///
    /// When the database cannot be reached.
    pub async fn restore(self) -> Result<()> {
        self.clock.restore().await
    }

    /// A worker that knows all that the harness was told, and serves all queues.
    fn worker(&self) -> Worker {
        let worker = Worker::new(self.client.pool().clone())
            .name("test")
            .queue("*", self.slots)
            .poll(Duration::from_millis(20))
            .grace(Duration::ZERO);
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
