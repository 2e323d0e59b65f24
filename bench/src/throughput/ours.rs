//! Our own jobs.

use std::time::{Duration, Instant};

use jobs::{Client, Context, Job, JobError, Perform, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

use super::PERFORMED;
use crate::frame::Result;

#[derive(Serialize, Deserialize, Job)]
struct Noop {
    n: u64,
}

impl Perform for Noop {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        PERFORMED.add(self.n);
        Ok(())
    }
}

const CHUNK: u64 = 10_000;

pub(super) fn settings(numbers: &[usize]) -> String {
    format!("{} slots, enqueued {CHUNK} at a time", slots(numbers))
}

fn slots(numbers: &[usize]) -> u32 {
    numbers
        .first()
        .and_then(|slots| u32::try_from(*slots).ok())
        .unwrap_or(1_000)
}

pub(super) async fn prepare(pool: &PgPool) -> Result<Duration> {
    let start = Instant::now();
    jobs::migrate(pool).await?;
    Ok(start.elapsed())
}

pub(super) async fn enqueue(pool: &PgPool, jobs: u64) -> Result<Duration> {
    let client = Client::new(pool.clone());
    let start = Instant::now();
    for first in (0..jobs).step_by(CHUNK as usize) {
        let chunk = first..jobs.min(first + CHUNK);
        client.enqueue_many(chunk.map(|n| Noop { n })).await?;
    }
    Ok(start.elapsed())
}

pub(super) async fn run(pool: &PgPool, jobs: u64, numbers: &[usize]) -> Result<Duration> {
    let worker = Worker::new(pool.clone())
        .register::<Noop>()
        .queue("default", slots(numbers));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let start = Instant::now();
    let running = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    PERFORMED
        .until_ended(
            pool,
            jobs,
            "select $1::bigint > 0 and not exists (select from pipeline.jobs)",
        )
        .await?;
    let took = start.elapsed();
    let _ = stop.send(());
    running.await??;
    Ok(took)
}
