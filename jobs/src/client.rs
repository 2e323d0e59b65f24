//! The client: what an application calls to enqueue jobs and to operate on them.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{PgConnection, PgPool};

use crate::batch::NewBatch;
use crate::enqueue::{Enqueue, Enqueued, IntoNewJob, Target, insert_into};
use crate::lock_limit::{LOCK_TIMEOUT, LimitedChange};
use crate::routing::{Demand, RoutingCheck};
use crate::{Result, limits};

/// Enqueues jobs and batches, and operates on those that exist. Clones are cheap and share their connections.
///
/// ```no_run
/// # use jobs::{Client, Job, Perform, Context, JobError};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize, Job)]
/// # struct Welcome { user: i64 }
/// # impl Perform for Welcome {
/// #     type Input = ();
/// #     type Output = ();
/// #     async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> { Ok(()) }
/// # }
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("postgres://localhost/shop").await?;
/// client.migrate().await?;
/// client.enqueue(Welcome { user: 7 }).delay(std::time::Duration::from_secs(300)).await?;
///
/// // In the transaction that inserts the user: both or neither.
/// let mut tx = client.pool().begin().await?;
/// // .. insert the user ..
/// client.enqueue_in(&mut tx, Welcome { user: 8 }).await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    pool: PgPool,
    routing: Arc<RoutingCheck>,
    bytes: limits::Bytes,
    lock_timeout: Duration,
}

impl Client {
    /// Creates a client that uses this pool.
    pub fn new(pool: PgPool) -> Self {
        let routing = RoutingCheck::new(pool.clone());
        Self {
            pool,
            routing,
            bytes: limits::Bytes::default(),
            lock_timeout: LOCK_TIMEOUT,
        }
    }

    /// Connects to a database and creates a client with a pool of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database) if the database cannot be reached.
    pub async fn connect(url: &str) -> Result<Self> {
        Ok(Self::new(crate::connect_pool(url).await?))
    }

    /// Returns the pool of the client.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Applies the migrations that the database lacks: see [`migrate`](fn@crate::migrate).
    ///
    /// # Errors
    ///
    /// Those of [`migrate`](fn@crate::migrate).
    pub async fn migrate(&self) -> Result<()> {
        crate::migrate(&self.pool).await
    }

    /// Enqueues a job when the returned value is awaited. Its methods override options of the job's type.
    pub fn enqueue(&self, job: impl IntoNewJob) -> Enqueue<'_> {
        Enqueue {
            target: Target::Pool(&self.pool),
            routing: Arc::clone(&self.routing),
            job: job.into_new_job(),
        }
    }

    /// Enqueues a job in the caller's transaction: the job becomes visible when the transaction commits, and does not
    /// exist if it rolls back. If another open transaction has taken the job's key, the call waits for its end.
    pub fn enqueue_in<'a>(&self, tx: &'a mut PgConnection, job: impl IntoNewJob) -> Enqueue<'a> {
        Enqueue {
            target: Target::Connection(tx),
            routing: Arc::clone(&self.routing),
            job: job.into_new_job(),
        }
    }

    /// Enqueues many jobs in one transaction, all of them or none.
    ///
    /// # Errors
    ///
    /// The first mistake in any of the jobs, before anything is written;
    /// [`Error::TooMany`](crate::Error::TooMany) and [`Error::TooManyBytes`](crate::Error::TooManyBytes)
    /// if the jobs exceed the limits of one call.
    pub async fn enqueue_many<I>(&self, jobs: I) -> Result<Vec<Enqueued>>
    where
        I: IntoIterator<Item: IntoNewJob>,
    {
        let jobs = jobs.into_iter().map(IntoNewJob::into_new_job).collect();
        insert_into(Target::Pool(&self.pool), &self.routing, jobs, self.bytes).await
    }

    /// Enqueues many jobs in the caller's transaction, all of them or none.
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_many`](Self::enqueue_many).
    pub async fn enqueue_many_in<I>(&self, tx: &mut PgConnection, jobs: I) -> Result<Vec<Enqueued>>
    where
        I: IntoIterator<Item: IntoNewJob>,
    {
        let jobs = jobs.into_iter().map(IntoNewJob::into_new_job).collect();
        insert_into(Target::Connection(tx), &self.routing, jobs, self.bytes).await
    }

    /// Creates a batch of jobs that finish as one.
    pub fn batch(&self) -> NewBatch<'_> {
        NewBatch::new(self, &self.pool)
    }

    /// Creates a batch in the caller's transaction: the batch and its jobs become visible when the transaction commits,
    /// and do not exist if it rolls back.
    ///
    /// ```no_run
    /// # use jobs::{Client, Context, Job, JobError, Perform};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, Job)]
    /// # struct Thumbnail { photo: i64 }
    /// # impl Perform for Thumbnail {
    /// #     type Input = ();
    /// #     type Output = ();
    /// #     async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> { Ok(()) }
    /// # }
    /// # async fn example(client: Client, photos: Vec<i64>) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = client.pool().begin().await?;
    /// // .. insert the album ..
    /// let thumbnails = photos.into_iter().map(|photo| Thumbnail { photo });
    /// client.batch_in(&mut tx).jobs(thumbnails).await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch_in<'a>(&'a self, tx: &'a mut PgConnection) -> NewBatch<'a, &'a mut PgConnection> {
        NewBatch::new(self, tx)
    }

    /// Sets how many bytes go into one statement and one call, so that a test need not send as many as the
    /// default allows.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn with_bytes(mut self, bytes: limits::Bytes) -> Self {
        self.bytes = bytes;
        self
    }

    /// Returns how many bytes go into one statement and one call.
    #[doc(hidden)]
    pub fn bytes(&self) -> limits::Bytes {
        self.bytes
    }

    /// Sets how long a call waits for a row that another transaction holds, so that a test need not wait for
    /// as long as the default.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn with_lock_timeout(mut self, limit: Duration) -> Self {
        self.lock_timeout = limit;
        self
    }

    /// Returns how long a call waits for a row that another transaction holds.
    #[doc(hidden)]
    pub fn lock_timeout(&self) -> Duration {
        self.lock_timeout
    }

    /// Describes a change that may have to wait for a row.
    pub(crate) fn change(&self, what: String, asked: &'static str) -> LimitedChange {
        LimitedChange {
            what,
            asked,
            limit: self.lock_timeout,
        }
    }

    /// Logs a warning, within seconds, for each demand that no live worker meets.
    #[doc(hidden)]
    pub fn warn_unroutable<'k>(&self, demands: impl IntoIterator<Item = Demand<'k>>) {
        self.routing.warn_unroutable(demands);
    }
}
