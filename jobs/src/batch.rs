//! Batches: jobs that finish as one, with one job that is enqueued when they have.

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use crate::enqueue::{Columns, Enqueued, IntoNewJob, NewJob, insert, not_encodable};
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
#[derive(Debug, Clone)]
#[must_use = "a batch is created by `jobs` or `open`"]
pub struct NewBatch<'a> {
    client: &'a Client,
    callback: Option<NewJob>,
}

/// How a callback lies in its batch until it is enqueued.
#[derive(Serialize)]
struct Callback<'a> {
    kind: &'a str,
    queue: &'a str,
    priority: i16,
    attempts: u16,
    lease_ms: u128,
    args: serde_json::Value,
    options: &'a crate::enqueue::Overrides,
}

impl<'a> NewBatch<'a> {
    pub(crate) fn new(client: &'a Client) -> Self {
        Self {
            client,
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

    /// The same, with what is different about this one: `|callback| callback.queue("reports")`. It is
    /// due when the batch finishes, whatever is said of its time, and has no unique key.
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
        let columns = columns(jobs)?;
        self.client.look_for(columns.wanted());
        let mut tx = self.client.pool().begin().await?;
        let batch = self.create(&mut tx).await?;
        let added = insert(&mut tx, columns, Some(batch.id)).await?;
        let finished =
            sqlx::query_file_scalar!("src/sql/batch_fill.sql", batch.id, fresh(&added), true,)
                .fetch_one(&mut *tx)
                .await?;
        wake(&mut tx, finished).await?;
        tx.commit().await?;
        Ok(batch)
    }

    /// Creates the batch without jobs, open for some. It finishes no earlier than it is sealed.
    ///
    /// # Errors
    ///
    /// A mistake in the callback, before anything is written.
    pub async fn open(self) -> Result<Batch> {
        let mut connection = self.client.pool().acquire().await?;
        self.create(&mut connection).await
    }

    async fn create(&self, connection: &mut PgConnection) -> Result<Batch> {
        let callback = match &self.callback {
            None => None,
            Some(job) => Some(described(job)?),
        };
        let id = sqlx::query_file_scalar!("src/sql/batch_create.sql", callback)
            .fetch_one(connection)
            .await?;
        Ok(Batch {
            id,
            client: self.client.clone(),
        })
    }
}

fn described(job: &NewJob) -> Result<serde_json::Value> {
    job.check()?;
    let args = match &job.args {
        Ok(args) => serde_json::from_str(args).map_err(|why| not_encodable(job.kind, why))?,
        Err(why) => return Err(not_encodable(job.kind, why)),
    };
    serde_json::to_value(Callback {
        kind: job.kind,
        queue: &job.queue,
        priority: job.priority,
        attempts: job.attempts,
        lease_ms: job.lease.as_millis(),
        args,
        options: &job.overrides,
    })
    .map_err(|why| not_encodable(job.kind, why))
}

fn columns<I>(jobs: I) -> Result<Columns>
where
    I: IntoIterator<Item: IntoNewJob>,
{
    Columns::of(jobs.into_iter().map(IntoNewJob::into_new_job).collect())
}

/// One whose unique key was taken is another's, and not counted.
fn fresh(added: &[Enqueued]) -> i32 {
    i32::try_from(added.iter().filter(|job| job.is_fresh()).count()).unwrap_or(i32::MAX)
}

async fn wake(connection: &mut PgConnection, queues: Option<Vec<String>>) -> Result<()> {
    let queues = queues.unwrap_or_default();
    if !queues.is_empty() {
        sqlx::query!(
            "select pg_notify($2, queue) from unnest($1::text[]) as queue",
            &queues,
            crate::channels::JOBS
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
    /// Its id.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Adds jobs to an open batch.
    ///
    /// # Errors
    ///
    /// [`Error::BatchClosed`] where it is sealed or finished; the first mistake in any of the jobs.
    /// Nothing is written then.
    pub async fn add<I>(&self, jobs: I) -> Result<Vec<Enqueued>>
    where
        I: IntoIterator<Item: IntoNewJob>,
    {
        let columns = columns(jobs)?;
        self.client.look_for(columns.wanted());
        let mut tx = self.client.pool().begin().await?;
        let state = self.lock(&mut tx).await?;
        if state.sealed {
            return Err(Error::BatchClosed {
                batch: self.id,
                state: if state.finished { "finished" } else { "sealed" },
            });
        }
        let added = insert(&mut tx, columns, Some(self.id)).await?;
        sqlx::query_file_scalar!("src/sql/batch_fill.sql", self.id, fresh(&added), false)
            .fetch_one(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(added)
    }

    /// Says that nothing more will be added. If all its jobs have ended, it finishes now. Sealing
    /// twice is fine.
    ///
    /// # Errors
    ///
    /// When the database refuses.
    pub async fn seal(&self) -> Result<()> {
        let mut tx = self.client.pool().begin().await?;
        self.lock(&mut tx).await?;
        let finished = sqlx::query_file_scalar!("src/sql/batch_fill.sql", self.id, 0, true)
            .fetch_one(&mut *tx)
            .await?;
        wake(&mut tx, finished).await?;
        tx.commit().await?;
        Ok(())
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

    async fn lock(&self, connection: &mut PgConnection) -> Result<BatchState> {
        let row = sqlx::query_file_as!(BatchState, "src/sql/batch_lock.sql", self.id)
            .fetch_optional(connection)
            .await?;
        row.ok_or(Error::NoBatch { batch: self.id })
    }
}
