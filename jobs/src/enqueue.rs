//! Enqueueing jobs: one or many, in a transaction of their own or in the caller's.

mod pages;

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};

use crate::redact::Redacted;
use crate::routing::RoutingCheck;
use crate::savepoint::Savepoint;
use crate::{Backoff, Error, JobId, NoInput, Perform, Result, limits};

pub(crate) use pages::Pages;

/// A job to enqueue, with options that override those of its type.
#[derive(Clone)]
pub struct NewJob {
    pub(crate) job_type: &'static str,
    /// The job's data as JSON, or the reason why it cannot be encoded.
    pub(crate) args: Result<String, String>,
    pub(crate) queue: String,
    pub(crate) priority: i16,
    pub(crate) max_attempts: u16,
    pub(crate) lease: Duration,
    pub(crate) overrides: Overrides,
    pub(crate) key: Option<String>,
    pub(crate) due: Due,
}

/// The time at which a job becomes due.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Due {
    After(Duration),
    At(DateTime<Utc>),
}

/// The options that are stored with a job: the version of its data, unless it is the first one, and the options that
/// override those of the job's type, which a worker knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Overrides {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) backoff: Option<Backoff>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) version: Option<u32>,
    /// Whether the end of an attempt may be lost if the database server crashes.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) asynchronous_commit: bool,
}

impl Overrides {
    /// Decodes the options that are stored with a job; the default where they cannot be decoded.
    pub(crate) fn decode(options: Option<&str>) -> Self {
        options
            .and_then(|json| serde_json::from_str(json).ok())
            .unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Option<String> {
        (*self != Self::default())
            .then(|| serde_json::to_string(self).ok())
            .flatten()
    }
}

impl NewJob {
    /// Creates a job with the options of its type.
    pub fn new<J: Perform<Input: NoInput>>(job: &J) -> Self {
        Self::with_input(job)
    }

    /// Creates a job that gets an input when it is performed.
    pub(crate) fn with_input<J: Perform>(job: &J) -> Self {
        Self {
            job_type: J::NAME,
            args: crate::encode::to_string(job).map_err(|error| error.to_string()),
            queue: J::OPTIONS.queue.to_owned(),
            priority: J::OPTIONS.priority,
            max_attempts: J::OPTIONS.max_attempts,
            lease: J::OPTIONS.lease,
            overrides: Overrides {
                version: (J::VERSION > 1).then_some(J::VERSION),
                ..Overrides::default()
            },
            key: None,
            due: Due::After(Duration::ZERO),
        }
    }

    /// Sets the queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Sets the priority; jobs with a higher one are performed first.
    #[must_use]
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the maximum number of attempts.
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u16) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// Sets the backoff between attempts.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.overrides.backoff = Some(backoff);
        self
    }

    /// Sets how long one attempt may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let ms = timeout.as_nanos().div_ceil(1_000_000);
        self.overrides.timeout_ms = Some(u64::try_from(ms).unwrap_or(u64::MAX));
        self
    }

    /// Sets the lease: after this time without a renewal, another worker takes the job over.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Delays the job: no worker performs it before this time has passed.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.due = Due::After(delay);
        self
    }

    /// Schedules the job for a moment: no worker performs it earlier. A moment in the past means now.
    #[must_use]
    pub fn at(mut self, moment: DateTime<Utc>) -> Self {
        // chrono has dates that are too early for Postgres.
        self.due = Due::At(moment.max(DateTime::UNIX_EPOCH));
        self
    }

    /// Sets a key, of which each job type has at most one live job: while there is one, enqueueing returns that job
    /// instead of a new one.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Returns about how many bytes the job takes in a statement: its texts, and a fixed number for all else.
    pub(crate) fn size(&self) -> usize {
        let texts = [Some(self.job_type), Some(&self.queue), self.key.as_deref()];
        let texts: usize = texts.into_iter().flatten().map(str::len).sum();
        128 + texts + self.args.as_ref().map_or(0, String::len)
    }

    /// Checks everything that can be wrong with the job, before anything is written.
    pub(crate) fn check(&self) -> Result<()> {
        let job_type = self.job_type;
        limits::name("job type", job_type)?;
        limits::name("queue", &self.queue)?;
        if self.max_attempts == 0 || i16::try_from(self.max_attempts).is_err() {
            return Err(Error::AttemptsOutOfRange {
                job_type,
                attempts: self.max_attempts,
            });
        }
        let range = |what, given, ok, remedy| {
            if ok {
                return Ok(());
            }
            Err(Error::DurationOutOfRange {
                job_type,
                what,
                given,
                remedy,
            })
        };
        let day = Duration::from_secs(86_400);
        range(
            "lease",
            self.lease,
            self.lease >= Duration::from_secs(1) && self.lease <= day,
            "use from 1 s (to be renewed in time) to 1 day",
        )?;
        if let Due::After(delay) = self.due {
            range(
                "delay",
                delay,
                delay <= limits::MAX_DURATION,
                "use at most 100 years",
            )?;
        }
        if let Some(ms) = self.overrides.timeout_ms {
            range(
                "timeout",
                Duration::from_millis(ms),
                ms > 0,
                "use at least 1 ms, or leave it out",
            )?;
        }
        if let Some(backoff) = &self.overrides.backoff {
            backoff.check(job_type)?;
        }
        if let Some(key) = &self.key {
            limits::key(job_type, key)?;
        }
        if let Ok(args) = &self.args {
            limits::data(job_type, "arguments", args)?;
        }
        Ok(())
    }
}

impl fmt::Debug for NewJob {
    /// Omits the job's data, which must not appear in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args = self.args.as_ref().ok().map(|args| Redacted(args.len()));
        f.debug_struct("NewJob")
            .field("job_type", &self.job_type)
            .field("args", &args)
            .field("queue", &self.queue)
            .field("priority", &self.priority)
            .field("max_attempts", &self.max_attempts)
            .field("lease", &self.lease)
            .field("overrides", &self.overrides)
            .field("key", &self.key)
            .field("due", &self.due)
            .finish()
    }
}

pub(crate) fn not_encodable(job_type: &'static str, reason: impl std::fmt::Display) -> Error {
    Error::NotEncodable {
        job_type,
        source: serde::ser::Error::custom(reason),
    }
}

/// Converts into a job to enqueue: implemented by jobs without input, and by [`NewJob`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job that can be enqueued",
    label = "neither a job nor a `NewJob`",
    note = "derive `Job` for it, and implement `Perform` with `type Input = ()`"
)]
pub trait IntoNewJob {
    /// Returns the job with its options.
    fn into_new_job(self) -> NewJob;
}

impl IntoNewJob for NewJob {
    fn into_new_job(self) -> NewJob {
        self
    }
}

impl<J: Perform<Input: NoInput>> IntoNewJob for J {
    fn into_new_job(self) -> NewJob {
        NewJob::new(&self)
    }
}

/// The result of enqueueing a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enqueued {
    /// The id of the job.
    pub id: JobId,
    is_new: bool,
    has_other_data: bool,
}

impl Enqueued {
    /// Returns whether this call enqueued the job; `false` if a live job has the key, which is then the job returned.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns whether the live job that has the key was enqueued with other data than this call's. Such a call also
    /// logs a warning.
    pub fn has_other_data(&self) -> bool {
        self.has_other_data
    }
}

/// The connection that statements run on.
#[derive(Debug)]
pub enum Target<'a> {
    /// A connection of the pool, in a transaction of its own.
    Pool(&'a PgPool),
    /// The caller's connection, in its transaction if it is in one.
    Connection(&'a mut PgConnection),
}

impl<'a> From<&'a PgPool> for Target<'a> {
    fn from(pool: &'a PgPool) -> Self {
        Self::Pool(pool)
    }
}

impl<'a> From<&'a mut PgConnection> for Target<'a> {
    fn from(connection: &'a mut PgConnection) -> Self {
        Self::Connection(connection)
    }
}

/// Enqueues one job when it is awaited; made by [`Client::enqueue`](crate::Client::enqueue).
#[must_use = "a job is enqueued when this is awaited"]
pub struct Enqueue<'a> {
    pub(crate) target: Target<'a>,
    pub(crate) routing: Arc<RoutingCheck>,
    pub(crate) job: NewJob,
}

macro_rules! options {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*);)*) => {
        impl Enqueue<'_> {
            $($(#[$doc])*
            pub fn $name(mut self, $($arg: $type),*) -> Self {
                self.job = self.job.$name($($arg),*);
                self
            })*
        }
    };
}

options! {
    /// Sets the queue.
    queue(queue: impl Into<String>);
    /// Sets the priority; jobs with a higher one are performed first.
    priority(priority: i16);
    /// Sets the maximum number of attempts.
    max_attempts(max_attempts: u16);
    /// Sets the backoff between attempts.
    backoff(backoff: Backoff);
    /// Sets how long one attempt may take.
    timeout(timeout: Duration);
    /// Sets the lease: after this time without a renewal, another worker takes the job over.
    lease(lease: Duration);
    /// Delays the job: no worker performs it before this time has passed.
    delay(delay: Duration);
    /// Schedules the job for a moment: no worker performs it earlier. A moment in the past means now.
    at(moment: DateTime<Utc>);
    /// Sets a key, of which each job type has at most one live job: while there is one, enqueueing returns that job
    /// instead of a new one.
    key(key: impl Into<String>);
}

impl<'a> IntoFuture for Enqueue<'a> {
    type Output = Result<Enqueued>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let bytes = limits::Bytes::default();
            let enqueued = insert_into(self.target, &self.routing, vec![self.job], bytes).await?;
            enqueued
                .first()
                .copied()
                .ok_or_else(|| sqlx::Error::RowNotFound.into())
        })
    }
}

/// Checks jobs and inserts them, all of them or none.
pub(crate) async fn insert_into(
    target: Target<'_>,
    routing: &Arc<RoutingCheck>,
    jobs: Vec<NewJob>,
    bytes: limits::Bytes,
) -> Result<Vec<Enqueued>> {
    let pages = Pages::of(jobs, bytes)?;
    routing.warn_unroutable(pages.demands());
    let mut pooled;
    let mut savepoint = match target {
        Target::Pool(pool) => {
            pooled = pool.acquire().await?;
            if pages.is_one() {
                return pages.insert(&mut pooled, None).await;
            }
            Savepoint::transaction(&mut pooled).await?
        }
        Target::Connection(connection) if pages.is_one() => {
            return pages.insert(connection, None).await;
        }
        Target::Connection(connection) => Savepoint::begin(connection).await?,
    };
    let enqueued = pages.insert(savepoint.connection(), None).await;
    savepoint.finish(enqueued).await
}
