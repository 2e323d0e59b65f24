//! Batches: jobs that finish as one, with one job that is enqueued when they have.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::{PgConnection, PgPool};

use crate::enqueue::{Enqueued, IntoNewJob, NewJob, Pages, Target, not_encodable};
use crate::lock_limit::LimitedChange;
use crate::savepoint::Savepoint;
use crate::{Client, Error, Perform, Result};

/// What a batch's callback is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BatchEnded {
    /// The batch.
    pub batch: i64,
    /// How many jobs it had.
    pub total: u32,
    /// How many of them failed for good.
    pub failed: u32,
}

/// What a batch's callback may take: what it is told, or nothing.
#[diagnostic::on_unimplemented(
    message = "a job whose input is `{Self}` cannot be a batch's callback",
    label = "the batch has no such input to give",
    note = "a callback has `type Input = BatchEnded`, or `()`"
)]
pub trait BatchInput {}
impl BatchInput for BatchEnded {}
impl BatchInput for () {}

/// A batch to be: say what it does when it finishes, then give it its jobs.
#[derive(Clone)]
#[must_use = "a batch is created by `jobs` or `open`"]
pub struct NewBatch<'a, T = &'a PgPool> {
    client: &'a Client,
    target: T,
    callback: Option<NewJob>,
}

/// How a callback lies in its batch until it is enqueued.
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

    /// The job that is enqueued when the batch is sealed and its last job has ended: in the same
    /// transaction, exactly once.
    pub fn on_finish<J>(self, job: J) -> Self
    where
        J: Perform<Input: BatchInput>,
    {
        self.on_finish_with(job, |callback| callback)
    }

    /// Sets the job that is enqueued when the batch finishes, with options of its own:
    /// `|callback| callback.queue("reports")`. The job is due when the batch finishes: a delay or a unique
    /// key that is set here has no effect.
    pub fn on_finish_with<J>(mut self, job: J, options: impl FnOnce(NewJob) -> NewJob) -> Self
    where
        J: Perform<Input: BatchInput>,
    {
        self.callback = Some(options(NewJob::with_input(&job)));
        self
    }

    /// Creates the batch with these jobs and seals it. One without jobs finishes at once.
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
        self.client.look_for(pages.wanted());
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

    /// Creates the batch without jobs, open for some. It finishes no earlier than it is sealed. In a
    /// transaction of the caller, jobs can be added when that has committed.
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
) -> Result<i64, sqlx::Error> {
    sqlx::query_file_scalar!("src/sql/batch_create.sql", callback)
        .fetch_one(connection)
        .await
}

/// Creates a batch with its jobs, and seals it.
async fn fill_new(
    connection: &mut PgConnection,
    callback: Option<String>,
    pages: Pages,
) -> Result<i64> {
    let id = create(connection, callback).await?;
    let added = pages.insert(connection, Some(id)).await?;
    let finished = sqlx::query_file_scalar!("src/sql/batch_fill.sql", id, fresh(&added), true)
        .fetch_one(&mut *connection)
        .await?;
    wake(connection, finished).await?;
    Ok(id)
}

fn described(job: &NewJob) -> Result<String> {
    job.check()?;
    let args = match &job.args {
        Ok(args) => serde_json::from_str(args).map_err(|why| not_encodable(job.kind, why))?,
        Err(why) => return Err(not_encodable(job.kind, why)),
    };
    serde_json::to_string(&Callback {
        job_type: job.kind,
        queue: &job.queue,
        priority: job.priority,
        max_attempts: job.attempts,
        lease_ms: job.lease.as_millis(),
        args,
        options: &job.overrides,
    })
    .map_err(|why| not_encodable(job.kind, why))
}

fn pages<I>(client: &Client, jobs: I) -> Result<Pages>
where
    I: IntoIterator<Item: IntoNewJob>,
{
    let jobs = jobs.into_iter().map(IntoNewJob::into_new_job).collect();
    Pages::of(jobs, client.bytes())
}

/// One whose unique key was taken is another's, and not counted.
fn fresh(added: &[Enqueued]) -> i32 {
    i32::try_from(added.iter().filter(|job| job.is_fresh()).count()).unwrap_or(i32::MAX)
}

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

/// A batch that is there.
#[derive(Debug, Clone)]
pub struct Batch {
    id: i64,
    client: Client,
}

/// Where a batch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BatchState {
    /// How many jobs it has.
    pub total: i32,
    /// How many have ended for good.
    pub ended: i32,
    /// How many of them failed.
    pub failed: i32,
    /// Whether nothing can be added any more.
    pub sealed: bool,
    /// Whether it is over.
    pub finished: bool,
}

impl Batch {
    fn new(client: &Client, id: i64) -> Self {
        Self {
            id,
            client: client.clone(),
        }
    }

    /// Its id.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Adds jobs to an open batch.
    ///
    /// # Errors
    ///
    /// [`Error::BatchClosed`] where it is sealed or finished; the first mistake in any of the jobs;
    /// [`Error::Busy`] if another transaction held the batch's row for thirty seconds. Nothing is written then.
    pub async fn add<I>(&self, jobs: I) -> Result<Vec<Enqueued>>
    where
        I: IntoIterator<Item: IntoNewJob>,
    {
        let pages = pages(&self.client, jobs)?;
        self.client.look_for(pages.wanted());
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
        sqlx::query_file_scalar!("src/sql/batch_fill.sql", self.id, fresh(&added), false)
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

    /// Says that nothing more will be added. If all its jobs have ended, it finishes now. Sealing
    /// twice is fine.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if another transaction held the batch's row for thirty seconds; when the database
    /// refuses.
    pub async fn seal(&self) -> Result<()> {
        let mut connection = self.client.pool().acquire().await?;
        let mut savepoint = Savepoint::transaction(&mut connection).await?;
        let sealed = self.seal_on(savepoint.connection()).await;
        savepoint.finish(sealed).await
    }

    async fn seal_on(&self, connection: &mut PgConnection) -> Result<()> {
        self.lock(connection, self.change("sealed")).await?;
        let finished = sqlx::query_file_scalar!("src/sql/batch_fill.sql", self.id, 0, true)
            .fetch_one(&mut *connection)
            .await?;
        wake(connection, finished).await
    }

    /// Where it stands.
    ///
    /// # Errors
    ///
    /// When the database cannot be asked.
    pub async fn state(&self) -> Result<BatchState> {
        let row = sqlx::query_file_as!(BatchState, "src/sql/batch_state.sql", self.id)
            .fetch_optional(self.client.pool())
            .await?;
        row.ok_or(Error::NoBatch { batch: self.id })
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
        let row = sqlx::query_file_as!(BatchState, "src/sql/batch_lock.sql", self.id)
            .fetch_optional(connection)
            .await;
        let row = row.map_err(|error| change.error(error))?;
        row.ok_or(Error::NoBatch { batch: self.id })
    }
}
