//! The application's side: starts runs, and looks at them.

mod attempts;
mod canonical;
mod chain;
mod control;
mod events;
mod grouped;
mod hand_over;
mod health;
mod list;
pub(crate) mod local_waiters;
mod new_run;
mod output;
mod plan;
mod prune;
mod remembered;
mod rows;
mod run;
mod send;
mod start;
mod state;
mod wait;
mod waiters;

use std::sync::Arc;

use sqlx::{PgConnection, PgPool};

use crate::Result;

pub use attempts::Attempt;
pub use chain::{Chain, IntoStage, Stage};
pub use control::Reopen;
pub use events::{Event, EventStatus};
use grouped::Starts;
pub use health::Health;
pub use list::{BadCursor, Cursor, Page, RunFilter};
pub use new_run::{History, IntoRun, NewRun};
use remembered::Remembered;
pub use run::Run;
pub use start::Start;
use start::{Target, start};
pub use state::{NodeKind, RunInfo, RunState, StepState, Why};
pub use wait::Wait;
use waiters::Waiters;

/// The application's side: starts runs and looks at them, and enqueues jobs; all that
/// [`jobs::Client`] does, this does too.
///
/// Cheap to clone; clones share what they know.
#[derive(Debug, Clone)]
pub struct Client {
    jobs: jobs::Client,
    pub(crate) shared: Arc<Shared>,
}

/// What the clones of a client share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    remembered: Remembered,
    /// The starts that wait to be sent.
    starts: Starts,
    /// Who waits for the end of a run.
    waiters: Arc<Waiters>,
}

impl Client {
    /// A client on a pool of yours.
    pub fn new(pool: PgPool) -> Self {
        Self {
            jobs: jobs::Client::new(pool),
            shared: Arc::default(),
        }
    }

    /// A client on a pool of its own.
    ///
    /// # Errors
    ///
    /// When the database cannot be reached.
    pub async fn connect(url: &str) -> Result<Self> {
        Ok(Self::new(jobs::pool_options().connect(url).await?))
    }

    /// Sets how many bytes go into one statement and one call, so that a test need not send as many as the
    /// default allows.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn with_bytes(mut self, bytes: jobs::extension::limits::Bytes) -> Self {
        self.jobs = self.jobs.with_bytes(bytes);
        self
    }

    /// Sets how long a call waits for a row that another transaction holds, so that a test need not wait for
    /// as long as the default.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn with_lock_timeout(mut self, limit: std::time::Duration) -> Self {
        self.jobs = self.jobs.with_lock_timeout(limit);
        self
    }

    fn remembered(&self) -> &Remembered {
        &self.shared.remembered
    }

    /// Starts a run when awaited; what is different about it can be said before.
    ///
    /// The run, its steps and the jobs of the first ones appear together.
    pub fn start<R: IntoRun>(&self, run: R) -> Start<'_, R::Output> {
        Start::new(self, Target::Pool(self.pool()), run.into_run())
    }

    /// Starts a run in the caller's transaction: it becomes visible when that commits, and is discarded if it
    /// rolls back. A key that another open transaction has taken is waited for. On a connection that is in
    /// no transaction, the start is one of its own.
    pub fn start_in<'a, R: IntoRun>(
        &self,
        tx: &'a mut PgConnection,
        run: R,
    ) -> Start<'a, R::Output> {
        Start::new(self, Target::Connection(tx), run.into_run())
    }

    /// Starts many runs in one transaction, all of them or none.
    ///
    /// # Errors
    ///
    /// The first mistake in any of them, before anything is written.
    /// [`Error::TooMany`](crate::Error::TooMany) and [`Error::TooManyBytes`](crate::Error::TooManyBytes)
    /// for more than one call takes.
    pub async fn start_many<I, O>(&self, runs: I) -> Result<Vec<Run<O>>>
    where
        I: IntoIterator<Item: IntoRun<Output = O>>,
    {
        let runs = runs.into_iter().map(IntoRun::into_run).collect();
        start(self, Target::Pool(self.pool()), runs).await
    }

    /// Starts many runs in the caller's transaction, all of them or none.
    ///
    /// # Errors
    ///
    /// Those of [`start_many`](Self::start_many).
    pub async fn start_many_in<I, O>(&self, tx: &mut PgConnection, runs: I) -> Result<Vec<Run<O>>>
    where
        I: IntoIterator<Item: IntoRun<Output = O>>,
    {
        let runs = runs.into_iter().map(IntoRun::into_run).collect();
        start(self, Target::Connection(tx), runs).await
    }

    /// The run of this id, of which nothing is asked yet: whether it is there, the first question to
    /// it says. What it returns can be said with [`Run::returning`].
    pub fn run(&self, id: i64) -> Run {
        Run::new(self.clone(), id, false)
    }

    /// The run of this pipeline that was started with this key.
    ///
    /// # Errors
    ///
    /// When the database cannot be asked.
    pub async fn run_by_key(&self, pipeline: &str, key: &str) -> Result<Option<Run>> {
        let id = sqlx::query_scalar!(
            "select id from pipeline.runs where pipeline = $1 and key = $2",
            pipeline,
            key
        )
        .fetch_optional(self.pool())
        .await?;
        Ok(id.map(|id| self.run(id)))
    }
}

impl std::ops::Deref for Client {
    type Target = jobs::Client;

    fn deref(&self) -> &jobs::Client {
        &self.jobs
    }
}
