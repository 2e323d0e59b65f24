//! The application's side: starts runs, and reads and changes existing ones.

mod attempts;
mod canonical;
mod chains;
mod control;
mod events;
mod grouped;
mod hand_over;
mod id_cache;
mod insert;
mod list;
pub(crate) mod local_waiters;
mod new_run;
mod output;
mod prune;
mod reconciler_stats;
mod rerun;
mod rows;
mod run;
mod send;
mod stage;
mod start;
mod start_plan;
mod state;
mod wait;
mod waiters;

use std::sync::Arc;

use sqlx::{PgConnection, PgPool};

use crate::{Result, RunId};

pub use control::Reopen;
pub use events::{Event, EventStatus};
use grouped::Starts;
use id_cache::IdCache;
pub use list::RunFilter;
pub use new_run::{EventLevel, IntoRun, NewRun};
pub use reconciler_stats::ReconcilerStats;
pub use run::Run;
pub use stage::{IntoStage, Stage, Started, StartedRuns};
pub use start::Start;
use start::Target;
pub use state::{NodeKind, RunInfo, RunState, StepReason, StepState};
pub use wait::Wait;
use waiters::Waiters;

/// Starts runs, enqueues jobs, and reads and changes both.
///
/// A client is cheap to clone, and its clones share its caches and the connection that waits for runs.
///
/// Everything that concerns jobs, batches, queues and workers comes from [`jobs::Client`], which this client
/// dereferences to: `client.enqueue(..)`, `client.job(id)`, `client.pause(queue)`. Those methods return
/// [`jobs::Error`], which `?` converts to [`Error::Jobs`](crate::Error::Jobs).
#[derive(Debug, Clone)]
pub struct Client {
    jobs: jobs::Client,
    pub(crate) shared: Arc<Shared>,
}

/// The state that the clones of a client share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    id_cache: IdCache,
    /// The starts that wait to be sent.
    starts: Starts,
    /// The callers that wait for the end of a run.
    waiters: Arc<Waiters>,
}

impl Client {
    /// Creates a client on a pool of the application.
    pub fn new(pool: PgPool) -> Self {
        Self {
            jobs: jobs::Client::new(pool),
            shared: Arc::default(),
        }
    }

    /// Connects to a database and creates a client with a pool of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database) if the database cannot be reached.
    pub async fn connect(url: &str) -> Result<Self> {
        Ok(Self::new(jobs::connect_pool(url).await?))
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

    fn id_cache(&self) -> &IdCache {
        &self.shared.id_cache
    }

    /// Starts one run, or several runs together, when awaited. Takes a pipeline, or a tuple, an array or a `Vec` of
    /// pipelines, and returns the run, a tuple of runs or a `Vec` of runs.
    ///
    /// Each run appears with its steps and the jobs of its first steps. Several runs appear together, or none of
    /// them: they are written in one transaction, and those of one graph in few statements.
    ///
    /// ```no_run
    /// # use pipeline::{Client, Pipeline, Run};
    /// # async fn example(client: Client, video: Pipeline<u64>, check: Pipeline, many: Vec<Pipeline<u64>>) -> pipeline::Result<()> {
    /// let run: Run<u64> = client.start(video.clone()).key("video-7").tag("nightly").await?;
    /// let (video, check) = client.start((video, check)).await?;
    /// let runs: Vec<Run<u64>> = client.start(many).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The first mistake in any of the runs, before anything is written;
    /// [`Error::TooMany`](crate::Error::TooMany) and [`Error::TooManyBytes`](crate::Error::TooManyBytes) for more
    /// than one call takes.
    pub fn start<S: IntoStage>(&self, stage: S) -> Start<'_, S::Runs> {
        Start::new(self, Target::Pool(self.pool()), stage)
    }

    /// Starts runs in the caller's transaction: the runs become visible when it commits, and do not exist if it rolls
    /// back. If another open transaction has taken the key of a run, the start waits for that transaction. On a
    /// connection that is in no transaction, the start is a transaction of its own.
    pub fn start_in<'a, S: IntoStage>(
        &self,
        tx: &'a mut PgConnection,
        stage: S,
    ) -> Start<'a, S::Runs> {
        Start::new(self, Target::Connection(tx), stage)
    }

    /// Returns a handle to the run with this id, without a query: the first call on the handle fails if the run does
    /// not exist. [`Run::returning`] sets the type of its output.
    pub fn run(&self, id: RunId) -> Run {
        Run::new(self.clone(), id, false)
    }

    /// Returns the run of this pipeline that was started with this key, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database) if the query fails.
    pub async fn run_by_key(&self, pipeline: &str, key: &str) -> Result<Option<Run>> {
        let id = sqlx::query_scalar!(
            "select id from pipeline.runs where pipeline = $1 and key = $2",
            pipeline,
            key
        )
        .fetch_optional(self.pool())
        .await?;
        Ok(id.map(|id| self.run(id.into())))
    }
}

impl std::ops::Deref for Client {
    type Target = jobs::Client;

    fn deref(&self) -> &jobs::Client {
        &self.jobs
    }
}
