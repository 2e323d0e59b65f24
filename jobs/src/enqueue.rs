//! Enqueueing: alone, in the caller's transaction, in bulk; from the same types in each case.

mod pages;

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};

use crate::known::Known;
use crate::savepoint::Savepoint;
use crate::{Backoff, Error, NoInput, Perform, Result, limits};

pub(crate) use pages::Pages;

/// A job on its way into the queue, and what is different about it.
#[derive(Clone)]
pub struct NewJob {
    pub(crate) kind: &'static str,
    /// Its data as JSON, or why there is none.
    pub(crate) args: Result<String, String>,
    pub(crate) queue: String,
    pub(crate) priority: i16,
    pub(crate) attempts: u16,
    pub(crate) lease: Duration,
    pub(crate) overrides: Overrides,
    pub(crate) unique_key: Option<String>,
    pub(crate) due: Due,
}

/// When it may run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Due {
    After(Duration),
    At(DateTime<Utc>),
}

/// What is stored of a job's options: the version of its data, where that is not the first, and what one
/// enqueueing changed of the options that a worker otherwise takes from the job's type.
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
    /// A job with the options of its type.
    pub fn new<J: Perform<Input: NoInput>>(job: &J) -> Self {
        Self::with_input(job)
    }

    /// The same for a job that will get its input from elsewhere.
    pub(crate) fn with_input<J: Perform>(job: &J) -> Self {
        Self {
            kind: J::NAME,
            args: crate::encode::to_string(job).map_err(|error| error.to_string()),
            queue: J::OPTIONS.queue.to_owned(),
            priority: J::OPTIONS.priority,
            attempts: J::OPTIONS.attempts,
            lease: J::OPTIONS.lease,
            overrides: Overrides {
                version: (J::VERSION > 1).then_some(J::VERSION),
                ..Overrides::default()
            },
            unique_key: None,
            due: Due::After(Duration::ZERO),
        }
    }

    /// In another queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// With another priority; higher runs first.
    #[must_use]
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// With another number of attempts.
    #[must_use]
    pub fn attempts(mut self, attempts: u16) -> Self {
        self.attempts = attempts;
        self
    }

    /// With another backoff.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.overrides.backoff = Some(backoff);
        self
    }

    /// With another timeout.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let ms = timeout.as_nanos().div_ceil(1_000_000);
        self.overrides.timeout_ms = Some(u64::try_from(ms).unwrap_or(u64::MAX));
        self
    }

    /// With another lease.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Not before this time has passed.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.due = Due::After(delay);
        self
    }

    /// Not before this moment. One that has passed means now.
    #[must_use]
    pub fn at(mut self, moment: DateTime<Utc>) -> Self {
        // Dates begin earlier here than in Postgres.
        self.due = Due::At(moment.max(DateTime::UNIX_EPOCH));
        self
    }

    /// At most one live job of this type with this key: while there is one, enqueueing returns it.
    #[must_use]
    pub fn unique_key(mut self, key: impl Into<String>) -> Self {
        self.unique_key = Some(key.into());
        self
    }

    /// How many bytes of a statement it takes; the numbers, the times and the options have a share of
    /// their own.
    pub(crate) fn size(&self) -> usize {
        let texts = [
            Some(self.kind),
            Some(&self.queue),
            self.unique_key.as_deref(),
        ];
        let texts: usize = texts.into_iter().flatten().map(str::len).sum();
        128 + texts + self.args.as_ref().map_or(0, String::len)
    }

    /// Everything that can be wrong with it, before anything is written.
    pub(crate) fn check(&self) -> Result<()> {
        let kind = self.kind;
        limits::name("job type", kind)?;
        limits::name("queue", &self.queue)?;
        if self.attempts == 0 || i16::try_from(self.attempts).is_err() {
            return Err(Error::AttemptsOutOfRange {
                kind,
                attempts: self.attempts,
            });
        }
        let range = |what, given, ok, remedy| {
            if ok {
                return Ok(());
            }
            Err(Error::DurationOutOfRange {
                kind,
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
                delay <= limits::LONGEST,
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
        if let Some(backoff) = &self.overrides.backoff
            && !(0.0..=1.0).contains(&backoff.jitter)
        {
            return Err(Error::JitterOutOfRange {
                kind,
                given: backoff.jitter,
            });
        }
        if let Some(key) = &self.unique_key {
            limits::key(kind, key)?;
        }
        if let Ok(args) = &self.args {
            limits::data(kind, "arguments", args)?;
        }
        Ok(())
    }
}

impl fmt::Debug for NewJob {
    /// Without the job's data: a log line is no place for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args = self
            .args
            .as_ref()
            .ok()
            .map(|args| crate::redact::Redacted(args.len()));
        f.debug_struct("NewJob")
            .field("kind", &self.kind)
            .field("args", &args)
            .field("queue", &self.queue)
            .field("priority", &self.priority)
            .field("attempts", &self.attempts)
            .field("lease", &self.lease)
            .field("overrides", &self.overrides)
            .field("unique_key", &self.unique_key)
            .field("due", &self.due)
            .finish()
    }
}

pub(crate) fn not_encodable(kind: &'static str, why: impl std::fmt::Display) -> Error {
    Error::NotEncodable {
        kind,
        source: serde::ser::Error::custom(why),
    }
}

/// What can be enqueued: a job, or a [`NewJob`] that says more about it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job that can be enqueued",
    label = "neither a job nor a `NewJob`",
    note = "derive `Job` for it, and implement `Perform` with `type Input = ()`"
)]
pub trait IntoNewJob {
    /// The job with its options.
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

/// A job that is in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enqueued {
    /// Its id.
    pub id: i64,
    fresh: bool,
}

impl Enqueued {
    /// Whether this call put it there; `false` where its unique key was taken by a live job, which
    /// is then the one returned.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    pub(crate) fn new(id: i64, fresh: bool) -> Self {
        Self { id, fresh }
    }
}

/// Where the statements run.
#[derive(Debug)]
pub enum Target<'a> {
    /// On a connection of the pool, in a transaction of their own.
    Pool(&'a PgPool),
    /// On the caller's connection, in its transaction if it is in one.
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

/// Puts one job into the queue when awaited.
#[must_use = "a job is enqueued when this is awaited"]
pub struct Enqueue<'a> {
    pub(crate) target: Target<'a>,
    pub(crate) known: Arc<Known>,
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
    /// In another queue.
    queue(queue: impl Into<String>);
    /// With another priority; higher runs first.
    priority(priority: i16);
    /// With another number of attempts.
    attempts(attempts: u16);
    /// With another backoff.
    backoff(backoff: Backoff);
    /// With another timeout.
    timeout(timeout: Duration);
    /// With another lease.
    lease(lease: Duration);
    /// Not before this time has passed.
    delay(delay: Duration);
    /// Not before this moment. One that has passed means now.
    at(moment: DateTime<Utc>);
    /// At most one live job of this type with this key: while there is one, it is returned.
    unique_key(key: impl Into<String>);
}

impl<'a> IntoFuture for Enqueue<'a> {
    type Output = Result<Enqueued>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let bytes = limits::Bytes::default();
            let enqueued = insert_into(self.target, &self.known, vec![self.job], bytes).await?;
            enqueued
                .first()
                .copied()
                .ok_or_else(|| sqlx::Error::RowNotFound.into())
        })
    }
}

pub(crate) async fn insert_into(
    target: Target<'_>,
    known: &Arc<Known>,
    jobs: Vec<NewJob>,
    bytes: limits::Bytes,
) -> Result<Vec<Enqueued>> {
    let pages = Pages::of(jobs, bytes)?;
    known.look_for(pages.wanted());
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
