//! A worker of plain jobs that chaos is done to, in a process of its own.

use std::time::Duration;

use jobs::{BatchEnded, Context, Job, JobError, Perform, Worker};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use tokio::io::AsyncReadExt as _;

use super::log::{Log, Moment};
use crate::frame::{ChildArguments, Result};

/// The system name of workers that know plain jobs only.
pub(super) const JOBS: &str = "jobs";
pub(super) const SLOTS: u32 = 4;
/// How long the usual job takes.
pub(super) const NAP: Nap = Nap(20);

/// Takes as many milliseconds as it says. It has attempts enough: none is to fail for good.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, Job)]
#[job(name = "chaos.nap", lease = "2s", max_attempts = 1000)]
pub(super) struct Nap(pub(super) u64);

impl Perform for Nap {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        let log = cx.data::<Log>()?;
        log.write(Moment::Begin, cx)?;
        tokio::time::sleep(Duration::from_millis(self.0)).await;
        log.write(Moment::End, cx)?;
        Ok(())
    }
}

/// The callback of a batch of naps.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, Job)]
#[job(
    name = "chaos.batch_ended",
    lease = "2s",
    max_attempts = 1000,
    backoff = "fixed(1ms)"
)]
pub(super) struct AfterBatch;

impl Perform for AfterBatch {
    type Input = BatchEnded;
    type Output = ();

    async fn perform(self, _: BatchEnded, cx: &Context) -> Result<(), JobError> {
        let log = cx.data::<Log>()?;
        log.write(Moment::Begin, cx)?;
        log.write(Moment::End, cx)?;
        Ok(())
    }
}

/// In the child: works until its input ends, because its parent let go of it or is no more.
pub(super) async fn work(child: &ChildArguments) -> Result<()> {
    let log = Log::open(child.log.as_deref().ok_or("a worker needs a log")?)?;
    let pool = PgPoolOptions::new().connect_lazy(&child.url)?;
    Worker::new(pool)
        .register::<Nap>()
        .queue("default", SLOTS)
        .keep_succeeded(true)
        .data(log)
        .run_until(async {
            let _ = tokio::io::stdin().read(&mut [0]).await;
        })
        .await?;
    Ok(())
}
