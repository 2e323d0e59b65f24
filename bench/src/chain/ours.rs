//! Our own runs, in one process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Client, Invalid, Pipeline, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

use super::STEPS;
use crate::frame::{Measured, Result};

#[derive(Serialize, Deserialize, Job)]
struct Noop;

impl Perform for Noop {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        PERFORMED.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// How many steps were performed: nobody asks the server whether all is over before that many were.
static PERFORMED: AtomicU64 = AtomicU64::new(0);

const SLOTS: u32 = 1_000;
const CHUNK: usize = 200;
/// Between two looks at whether something is so.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) fn settings() -> String {
    format!(
        "one process with {SLOTS} slots, runs started {CHUNK} at a time while it works; the engine's \
         own connections beside those of the pool; events of every step"
    )
}

pub(super) async fn prepare(pool: &PgPool) -> Result<Measured> {
    jobs::migrate(pool).await?;
    Ok(Measured::default())
}

fn chain() -> Result<Pipeline, Invalid> {
    Pipeline::configure("chain", |p| {
        let mut last = p.step("0", Noop);
        for step in 1..STEPS {
            last = p.following(&last).step(&step.to_string(), Noop);
        }
    })
}

pub(super) async fn run(pool: &PgPool, runs: u64) -> Result<Measured> {
    let client = Client::new(pool.clone());
    let worker = Worker::new(pool.clone())
        .register::<Noop>()
        .queue("default", SLOTS);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    // As with the reference, what is connected before anything starts is not timed.
    until(pool, "select exists (select from pipeline.workers)").await?;
    let runs = usize::try_from(runs)?;
    let start = Instant::now();
    let mut left = runs;
    while left > 0 {
        let chunk = left.min(CHUNK);
        let pipelines = (0..chunk).map(|_| chain()).collect::<Result<Vec<_>, _>>()?;
        client.start(pipelines).await?;
        left -= chunk;
    }
    let items = (runs as u64) * u64::from(STEPS);
    while PERFORMED.load(Ordering::Relaxed) < items {
        tokio::time::sleep(PAUSE).await;
    }
    until(
        pool,
        "select not exists (select from pipeline.runs where status = 'running')",
    )
    .await?;
    let seconds = start.elapsed().as_secs_f64();
    let _ = stop.send(());
    running.await??;
    let succeeded: i64 = sqlx::query_scalar(
        "select count(*) from pipeline.steps s join pipeline.runs r on r.id = s.run
         where s.status = 'succeeded' and r.status = 'succeeded'",
    )
    .fetch_one(pool)
    .await?;
    if u64::try_from(succeeded)? != items {
        return Err(format!("{succeeded} of {items} steps succeeded").into());
    }
    Ok(Measured {
        items,
        seconds,
        ..Measured::default()
    })
}

async fn until(pool: &PgPool, true_of_it: &'static str) -> Result<()> {
    while !sqlx::query_scalar(true_of_it).fetch_one(pool).await? {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
