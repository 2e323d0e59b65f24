//! The steps and callbacks, and the process that they run in. Each writes a line to the process's log when
//! it begins and when it has done its work (see [`log`](super::super::log)).

use std::time::Duration;

use jobs::{Context, Job, JobError, Perform};
use pipeline::{RunEnded, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::io::AsyncReadExt as _;

use super::super::log::{Log, Moment};
use super::super::worker::{AfterBatch, Nap};
use crate::frame::{ChildArguments, Result};

/// The system name of workers that know all steps, callbacks and plain jobs.
pub(in super::super) const RUNS: &str = "runs";
pub(in super::super) const SLOTS: u32 = 8;
/// How long jobs have when such a worker is asked to stop.
pub(in super::super) const GRACE: Duration = Duration::from_secs(5);

pub(super) async fn prepare(pool: &PgPool) -> Result<()> {
    sqlx::raw_sql(
        "create table told (job bigint not null, run bigint not null, round int not null,
                            status text not null)",
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Takes a few milliseconds between a line for its begin and one for its end. The log is a file, so
/// that a step does not depend on a database that is being crashed.
async fn execute(cx: &Context) -> Result<(), JobError> {
    let log = cx.data::<Log>()?;
    log.write(Moment::Begin, cx)?;
    tokio::time::sleep(Duration::from_millis(fastrand::u64(3..12))).await;
    log.write(Moment::End, cx)?;
    Ok(())
}

/// The first of a diamond: gives its number.
#[derive(Serialize, Deserialize, Job)]
#[job(
    name = "chaos.source",
    lease = "2s",
    max_attempts = 1000,
    backoff = "fixed(1ms)"
)]
pub(super) struct Source(pub(super) i64);

impl Perform for Source {
    type Input = ();
    type Output = i64;

    async fn perform(self, (): (), cx: &Context) -> Result<i64, JobError> {
        execute(cx).await?;
        Ok(self.0)
    }
}

/// One of those side by side: adds its own.
#[derive(Serialize, Deserialize, Job)]
#[job(
    name = "chaos.side",
    lease = "2s",
    max_attempts = 1000,
    backoff = "fixed(1ms)"
)]
pub(super) struct Side(pub(super) i64);

impl Perform for Side {
    type Input = i64;
    type Output = i64;

    async fn perform(self, one: i64, cx: &Context) -> Result<i64, JobError> {
        execute(cx).await?;
        Ok(one + self.0)
    }
}

/// Adds them all up.
#[derive(Serialize, Deserialize, Job)]
#[job(
    name = "chaos.join",
    lease = "2s",
    max_attempts = 1000,
    backoff = "fixed(1ms)"
)]
pub(super) struct Join;

impl Perform for Join {
    type Input = Vec<i64>;
    type Output = i64;

    async fn perform(self, all: Vec<i64>, cx: &Context) -> Result<i64, JobError> {
        execute(cx).await?;
        Ok(all.iter().sum())
    }
}

/// A step of a run in a chain: does what was drawn for it.
#[derive(Serialize, Deserialize, Job)]
#[job(
    name = "chaos.act",
    lease = "2s",
    max_attempts = 1000,
    backoff = "fixed(1ms)"
)]
pub(super) struct Act {
    /// For good.
    pub(super) fails: bool,
    /// At its first attempt.
    pub(super) stumbles: bool,
}

impl Perform for Act {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        execute(cx).await?;
        if self.fails {
            return Err(JobError::new("Drawn", "it was drawn to fail").discard());
        }
        if self.stumbles && cx.attempt() == 1 {
            return Err(JobError::new("Stumbled", "it tries again"));
        }
        Ok(())
    }
}

/// A callback: stores what it is told. While the database is away its attempts fail, and it is tried again.
#[derive(Serialize, Deserialize, Job)]
#[job(
    name = "chaos.told",
    lease = "2s",
    max_attempts = 1000,
    backoff = "fixed(1ms)"
)]
pub(super) struct Told;

impl Perform for Told {
    type Input = RunEnded;
    type Output = ();

    async fn perform(self, ended: RunEnded, cx: &Context) -> Result<(), JobError> {
        execute(cx).await?;
        sqlx::query("insert into told values ($1, $2, $3, $4)")
            .bind(cx.id())
            .bind(ended.run)
            .bind(i32::try_from(ended.round)?)
            .bind(ended.status.as_str())
            .execute(cx.data::<PgPool>()?)
            .await?;
        Ok(())
    }
}

/// In the child: works until its input ends, because its parent let go of it or is no more.
pub(in super::super) async fn work(child: &ChildArguments) -> Result<()> {
    let log = Log::open(child.log.as_deref().ok_or("a worker needs a log")?)?;
    let pool = PgPoolOptions::new()
        .max_connections(SLOTS)
        .connect_lazy(&child.url)?;
    Worker::new(pool.clone())
        .register::<(Source, Side, Join, Act, Told, Nap, AfterBatch)>()
        .queue("default", SLOTS)
        // The rows of callbacks stay, and can be counted. Steps have theirs in any case.
        .keep_succeeded(true)
        .grace(GRACE)
        .data(log)
        .data(pool)
        .run_until(async {
            let _ = tokio::io::stdin().read(&mut [0]).await;
        })
        .await?;
    Ok(())
}
