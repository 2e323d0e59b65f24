//! Batches: jobs that finish as one, and a callback that is enqueued when they have finished.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::{PgConnection, PgPool};

use crate::enqueue::{Enqueued, IntoNewJob, NewJob, Pages, Target, not_encodable};
use crate::lock_limit::LimitedChange;
use crate::savepoint::Savepoint;
use crate::{BatchId, Client, Error, Perform, Result};

/// The input of a batch's callback: how the batch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BatchEnded {
    /// The id of the batch.
    pub batch: BatchId,
    /// How many jobs the batch had.
    pub total: u32,
    /// How many of the jobs failed.
    pub failed: u32,
}

/// The inputs that a batch's callback may have: [`BatchEnded`], or `()`.
#[diagnostic::on_unimplemented(
    message = "a job whose input is `{Self}` cannot be a batch's callback",
    label = "the batch has no such input to give",
    note = "a callback has `type Input = BatchEnded`, or `()`"
)]
pub trait BatchInput {}
impl BatchInput for BatchEnded {}
impl BatchInput for () {}

/// A batch to create: set its callback, then give it its jobs.
#[derive(Clone)]
#[must_use = "a batch is created by `jobs` or `open`"]
pub struct NewBatch<'a, T = &'a PgPool> {
    client: &'a Client,
    target: T,
    callback: Option<NewJob>,
}

/// A callback, as its batch stores it until it is enqueued.
#[derive(Serialize)]
struct Callback<'a> {
    job_type: &'a str,
    queue: &'a str,
    priority: i16,
    max_attempts: u16,
    lease_ms: u128,
    args: &'a RawValue,
    options: &'a crate::enqueue::Overrides,
}

impl<'a, T: Into<Target<'a>>> NewBatch<'a, T> {
    pub(crate) fn new(client: &'a Client, target: T) -> Self {
        Self {
            client,
            target,
            callback: None,
        }
    }

    /// Sets the job that is enqueued when the batch finishes: once it is sealed and its last job has ended, in the same
    /// transaction, exactly once.
    pub fn on_finish<J>(self, job: J) -> Self
    where
        J: Perform<Input: BatchInput>,
    {
        self.on_finish_with(job, |callback| callback)
    }

    /// Sets the job that is enqueued when the batch finishes, with options of its own:
    /// `|callback| callback.queue("reports")`. The job is due when the batch finishes: a delay or a key that is set here
    /// has no effect.
    pub fn on_finish_with<J>(mut self, job: J, options: impl FnOnce(NewJob) -> NewJob) -> Self
    where
        J: Perform<Input: BatchInput>,
    {
        self.callback = Some(options(NewJob::with_input(&job)));
        self
    }

    /// Creates the batch with these jobs and seals it. A batch without jobs finishes at once.
    ///
    /// # Errors
    ///
    /// The first mistake in any of the jobs, before anything is written.
    pub async fn jobs<I>(self, jobs: I) -> Result<Batch>
    where
        I: IntoIterator<Item: IntoNewJob>,
    {
        let callback = self.callback.as_ref().map(described).transpose()?;
        let pages = pages(self.client, jobs)?;
        self.client.warn_unroutable(pages.demands());
        let mut pooled;
        let mut savepoint = match self.target.into() {
            Target::Pool(pool) => {
                pooled = pool.acquire().await?;
                Savepoint::transaction(&mut pooled).await?
            }
            Target::Connection(connection) => Savepoint::begin(connection).await?,
        };
        let id = fill_new(savepoint.connection(), callback, pages).await;
        let id = savepoint.finish(id).await?;
        Ok(Batch::new(self.client, id))
    }

    /// Creates an open batch, to which jobs can be added until it is [sealed](Batch::seal). An open batch does not
    /// finish. If the batch is created in the caller's transaction, jobs can be added once that has committed.
    ///
    /// # Errors
    ///
    /// A mistake in the callback, before anything is written.
    pub async fn open(self) -> Result<Batch> {
        let callback = self.callback.as_ref().map(described).transpose()?;
        let id = match self.target.into() {
            Target::Pool(pool) => create(&mut *pool.acquire().await?, callback).await?,
            Target::Connection(connection) => create(connection, callback).await?,
        };
        Ok(Batch::new(self.client, id))
    }
}

impl<T> fmt::Debug for NewBatch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewBatch")
            .field("callback", &self.callback)
            .finish_non_exhaustive()
    }
}

async fn create(
    connection: &mut PgConnection,
    callback: Option<String>,
) -> Result<BatchId, sqlx::Error> {
    sqlx::query_file_scalar!("src/sql/batch_create.sql", callback)
        .fetch_one(connection)
        .await
        .map(BatchId::from)
}

/// Creates a batch with its jobs, and seals it.
async fn fill_new(
    connection: &mut PgConnection,
    callback: Option<String>,
    pages: Pages,
) -> Result<BatchId> {
    let id = create(connection, callback).await?;
    let added = pages.insert(connection, Some(id)).await?;
    let finished =
        sqlx::query_file_scalar!("src/sql/batch_fill.sql", id.get(), count_new(&added), true)
            .fetch_one(&mut *connection)
            .await?;
    wake(connection, finished).await?;
    Ok(id)
}

/// Returns a callback as JSON, as its batch stores it.
fn described(job: &NewJob) -> Result<String> {
    job.check()?;
    let args = match &job.args {
        Ok(args) => {
            serde_json::from_str(args).map_err(|reason| not_encodable(job.job_type, reason))?
        }
        Err(reason) => return Err(not_encodable(job.job_type, reason)),
    };
    serde_json::to_string(&Callback {
        job_type: job.job_type,
        queue: &job.queue,
        priority: job.priority,
        max_attempts: job.max_attempts,
        lease_ms: job.lease.as_millis(),
        args,
        options: &job.overrides,
    })
    .map_err(|reason| not_encodable(job.job_type, reason))
}

fn pages<I>(client: &Client, jobs: I) -> Result<Pages>
where
    I: IntoIterator<Item: IntoNewJob>,
{
    let jobs = jobs.into_iter().map(IntoNewJob::into_new_job).collect();
    Pages::of(jobs, client.bytes())
}

/// Counts the jobs that are new. A job that existed and has the key of one of the added jobs does not belong to the
/// batch.
fn count_new(added: &[Enqueued]) -> i32 {
    i32::try_from(added.iter().filter(|job| job.is_new()).count()).unwrap_or(i32::MAX)
}

/// Notifies workers of new jobs in these queues.
async fn wake(connection: &mut PgConnection, queues: Option<Vec<String>>) -> Result<()> {
    let queues = queues.unwrap_or_default();
    if !queues.is_empty() {
        sqlx::query!(
            "select pipeline.notify_queues_v1($1, pipeline.now() - interval '1 minute')",
            &queues
        )
        .execute(connection)
        .await?;
    }
    Ok(())
}

/// A handle to a batch that was created; it is cheap to clone.
#[derive(Debug, Clone)]
pub struct Batch {
    id: BatchId,
    client: Client,
}

/// The state of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BatchState {
    /// How many jobs the batch has.
    pub total: u32,
    /// How many of the jobs have ended.
    pub ended: u32,
    /// How many of the jobs failed.
    pub failed: u32,
    /// Whether the batch is sealed: no jobs can be added.
    pub sealed: bool,
    /// Whether the batch has finished.
    pub finished: bool,
}

/// A row of the queries `batch_state.sql` and `batch_lock.sql`.
struct StateRow {
    total: i32,
    ended: i32,
    failed: i32,
    sealed: bool,
    finished: bool,
}

impl From<StateRow> for BatchState {
    fn from(row: StateRow) -> Self {
        let count = |number: i32| u32::try_from(number).unwrap_or(0);
        Self {
            total: count(row.total),
            ended: count(row.ended),
            failed: count(row.failed),
            sealed: row.sealed,
            finished: row.finished,
        }
    }
}

impl Batch {
    fn new(client: &Client, id: BatchId) -> Self {
        Self {
            id,
            client: client.clone(),
        }
    }

    /// Returns the id of the batch.
    pub fn id(&self) -> BatchId {
        self.id
    }

    /// Adds jobs to an open batch.
    ///
    /// # Errors
    ///
    /// [`Error::BatchClosed`] if the batch is sealed or finished; the first mistake in any of the jobs;
    /// [`Error::Busy`] if another transaction held the batch's row for thirty seconds. Nothing is written then.
    pub async fn add<I>(&self, jobs: I) -> Result<Vec<Enqueued>>
    where
        I: IntoIterator<Item: IntoNewJob>,
    {
        let pages = pages(&self.client, jobs)?;
        self.client.warn_unroutable(pages.demands());
        self.open_for_more(&self.state().await?)?;
        let mut connection = self.client.pool().acquire().await?;
        let mut savepoint = Savepoint::transaction(&mut connection).await?;
        let change = self.change("filled");
        let added = self.insert(savepoint.connection(), pages, change).await;
        savepoint.finish(added).await
    }

    /// Inserts jobs and counts them. The batch's row is locked last, for as long as the count takes: while
    /// it is held, no worker can end a job of the batch.
    async fn insert(
        &self,
        connection: &mut PgConnection,
        pages: Pages,
        change: LimitedChange,
    ) -> Result<Vec<Enqueued>> {
        let added = pages.insert(connection, Some(self.id)).await?;
        self.open_for_more(&self.lock(connection, change).await?)?;
        sqlx::query_file_scalar!(
            "src/sql/batch_fill.sql",
            self.id.get(),
            count_new(&added),
            false
        )
        .fetch_one(connection)
        .await?;
        Ok(added)
    }

    fn open_for_more(&self, state: &BatchState) -> Result<()> {
        if !state.sealed {
            return Ok(());
        }
        Err(Error::BatchClosed {
            batch: self.id,
            state: if state.finished { "finished" } else { "sealed" },
        })
    }

    /// Seals the batch: no more jobs can be added, and the batch finishes when its last job has ended. Sealing a sealed
    /// batch has no effect.
    ///
    /// # Errors
    ///
    /// [`Error::NoBatch`] if the batch does not exist; [`Error::Busy`] if another transaction held the batch's row for
    /// thirty seconds.
    pub async fn seal(&self) -> Result<()> {
        let mut connection = self.client.pool().acquire().await?;
        let mut savepoint = Savepoint::transaction(&mut connection).await?;
        let sealed = self.seal_on(savepoint.connection()).await;
        savepoint.finish(sealed).await
    }

    async fn seal_on(&self, connection: &mut PgConnection) -> Result<()> {
        self.lock(connection, self.change("sealed")).await?;
        let finished = sqlx::query_file_scalar!("src/sql/batch_fill.sql", self.id.get(), 0, true)
            .fetch_one(&mut *connection)
            .await?;
        wake(connection, finished).await
    }

    /// Returns the state of the batch.
    ///
    /// # Errors
    ///
    /// [`Error::NoBatch`] if the batch does not exist.
    pub async fn state(&self) -> Result<BatchState> {
        let row = sqlx::query_file_as!(StateRow, "src/sql/batch_state.sql", self.id.get())
            .fetch_optional(self.client.pool())
            .await?;
        row.map(BatchState::from)
            .ok_or(Error::NoBatch { batch: self.id })
    }

    fn change(&self, asked: &'static str) -> LimitedChange {
        self.client.change(format!("batch {}", self.id), asked)
    }

    /// Locks the batch's row for a change, and returns its state.
    async fn lock(
        &self,
        connection: &mut PgConnection,
        change: LimitedChange,
    ) -> Result<BatchState> {
        change.begin(connection).await?;
        let row = sqlx::query_file_as!(StateRow, "src/sql/batch_lock.sql", self.id.get())
            .fetch_optional(connection)
            .await;
        let row = row.map_err(|error| change.error(error))?;
        row.map(BatchState::from)
            .ok_or(Error::NoBatch { batch: self.id })
    }
}
