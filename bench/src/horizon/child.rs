//! The worker process of the bench, and the client that keeps a bounded backlog ahead of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jobs::{Client, Context, Job, JobError, Perform, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

use super::PARTS;
use crate::frame::{ChildArguments, Measured, Result};

const SLOTS: u32 = 1_000;
/// How many jobs one enqueueing has.
const PAGE: u64 = 5_000;
/// How many jobs are enqueued and not yet performed, at most.
const BACKLOG: u64 = 20_000;
/// How long one round may take; what has not ended then is reported.
const ROUND_TIMEOUT: Duration = Duration::from_secs(1_500);
const CONNECTIONS: u32 = 4;

static PERFORMED: AtomicU64 = AtomicU64::new(0);

#[derive(Serialize, Deserialize, Job)]
#[job(name = "horizon.noop")]
struct Noop;

impl Perform for Noop {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        PERFORMED.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// In the child: one phase of a round. The system's name is the size of a part.
pub(crate) async fn measure(child: &ChildArguments) -> Result<Measured> {
    let pool = child.pool(CONNECTIONS).await?;
    let measured = match child.phase.as_str() {
        "prepare" => {
            jobs::migrate(&pool).await?;
            Measured::default()
        }
        "enqueue" => {
            let client = Client::new(pool.clone());
            enqueue(&client, 0, child.items).await?;
            Measured::default()
        }
        "run" => run(&pool, child.items, child.system.parse()?).await?,
        other => return Err(format!("horizon has no phase `{other}`").into()),
    };
    pool.close().await;
    Ok(measured)
}

/// Enqueues the jobs between two numbers, page by page.
async fn enqueue(client: &Client, from: u64, to: u64) -> Result<()> {
    for first in (from..to).step_by(PAGE as usize) {
        let page = first..to.min(first + PAGE);
        client.enqueue_many(page.map(|_| Noop)).await?;
    }
    Ok(())
}

/// Runs all jobs, and notes the moment at which each part of them has been performed.
async fn run(pool: &PgPool, jobs: u64, part: u64) -> Result<Measured> {
    let client = Client::new(pool.clone());
    let mut enqueued = enqueued(pool).await?;
    if enqueued < jobs {
        enqueued += BACKLOG.min(jobs);
        enqueue(&client, 0, enqueued).await?;
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(pool.clone())
        .register::<Noop>()
        .queue("default", SLOTS);
    let worker = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    let ahead = tokio::spawn(keep_ahead(client, enqueued, jobs));
    let began = Instant::now();
    let moments = moments(began, jobs, part).await;
    let ended = until_ended(pool, began, jobs).await?;
    let seconds = began.elapsed().as_secs_f64();
    ahead.abort();
    let _ = stop.send(());
    worker.await??;
    Ok(Measured {
        items: ended,
        seconds,
        series: vec![(PARTS.to_owned(), moments)],
        ..Measured::default()
    })
}

async fn enqueued(pool: &PgPool) -> Result<u64> {
    let count: i64 = sqlx::query_scalar("select count(*) from pipeline.jobs")
        .fetch_one(pool)
        .await?;
    Ok(count.unsigned_abs())
}

/// Enqueues pages as the worker performs jobs, so that the backlog stays bounded and is never empty.
async fn keep_ahead(client: Client, mut enqueued: u64, jobs: u64) -> Result<(), jobs::Error> {
    while enqueued < jobs {
        if enqueued + PAGE <= PERFORMED.load(Ordering::Relaxed) + BACKLOG {
            let page = PAGE.min(jobs - enqueued);
            client.enqueue_many((0..page).map(|_| Noop)).await?;
            enqueued += page;
        } else {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    Ok(())
}

/// Seconds since `began` at which the first job and then each part had been performed. Jobs beyond the
/// last whole part belong to none.
async fn moments(began: Instant, jobs: u64, part: u64) -> Vec<f64> {
    let mut moments = Vec::new();
    let goals = std::iter::once(1).chain((1..=jobs / part).map(|at| at * part));
    for goal in goals {
        while PERFORMED.load(Ordering::Relaxed) < goal {
            if began.elapsed() > ROUND_TIMEOUT {
                return moments;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        moments.push(began.elapsed().as_secs_f64());
    }
    moments
}

/// Waits until no job is left, or the round's time is over. Returns how many jobs have ended.
async fn until_ended(pool: &PgPool, began: Instant, jobs: u64) -> Result<u64> {
    loop {
        if PERFORMED.load(Ordering::Relaxed) >= jobs
            && sqlx::query_scalar("select not exists (select from pipeline.jobs)")
                .fetch_one(pool)
                .await?
        {
            return Ok(jobs);
        }
        if began.elapsed() > ROUND_TIMEOUT {
            let left = enqueued(pool).await?;
            let performed = PERFORMED.load(Ordering::Relaxed);
            return Ok(performed.min(jobs.saturating_sub(left)));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
