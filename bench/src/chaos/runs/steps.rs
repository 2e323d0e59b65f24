//! The steps and callbacks, and the process that they run in. Each says that it runs, before all else.

use std::time::Duration;

use jobs::{Context, Job, JobError, Perform};
use pipeline::{RunEnded, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::io::AsyncReadExt as _;

use crate::frame::{ChildArguments, Result};

/// What the workers of this arena are called.
pub(in super::super) const RUNS: &str = "runs";
pub(super) const SLOTS: u32 = 8;

pub(super) async fn prepare(pool: &PgPool) -> Result<()> {
    sqlx::raw_sql(
        "create table executed (job bigint not null, token bigint not null, attempt int not null,
                                at timestamptz not null);
         create table told (job bigint not null, run bigint not null, round int not null,
                            status text not null)",
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Writes down that it runs, and takes a few milliseconds.
async fn execute(cx: &Context) -> Result<(), JobError> {
    sqlx::query("insert into executed values ($1, $2, $3, clock_timestamp())")
        .bind(cx.id())
        .bind(cx.token())
        .bind(i32::from(cx.attempt()))
        .execute(cx.data::<PgPool>()?)
        .await?;
    tokio::time::sleep(Duration::from_millis(fastrand::u64(3..12))).await;
    Ok(())
}

/// The first of a diamond: gives its number.
#[derive(Serialize, Deserialize, Job)]
#[job(
    name = "chaos.source",
    lease = "2s",
    attempts = 1000,
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
    attempts = 1000,
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
    attempts = 1000,
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
    attempts = 1000,
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

/// A callback: writes down what it is told.
#[derive(Serialize, Deserialize, Job)]
#[job(
    name = "chaos.told",
    lease = "2s",
    attempts = 1000,
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
    let pool = PgPoolOptions::new()
        .max_connections(SLOTS)
        .connect_lazy(&child.url)?;
    Worker::new(pool.clone())
        .register::<(Source, Side, Join, Act, Told)>()
        .queue("default", SLOTS)
        // The rows of callbacks stay, and can be counted. Steps have theirs in any case.
        .keep_succeeded(true)
        .data(pool)
        .run_until(async {
            let _ = tokio::io::stdin().read(&mut [0]).await;
        })
        .await?;
    Ok(())
}
