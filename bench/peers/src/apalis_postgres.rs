//! apalis's own backend for Postgres, as it comes.

use std::time::{Duration, Instant};

use apalis_core::backend::TaskSink as _;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use apalis_postgres::{Config, PostgresStorage};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

use crate::performed::PERFORMED;
use crate::protocol::ChildArguments;
use crate::{Result, Took, unknown};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Noop {
    n: u64,
}

const BATCH: usize = 500;

const CONNECTIONS: u32 = 10;

pub(crate) async fn measure(child: &ChildArguments, numbers: &[usize]) -> Result<Took> {
    let pool = child.pool(CONNECTIONS).await?;
    let time = match (child.bench.as_str(), child.phase.as_str()) {
        ("jobs", "prepare") => prepare(&pool).await?,
        ("jobs", "enqueue") => enqueue(&pool, child.items).await?,
        ("jobs", "run") => run(&pool, child.items, numbers).await?,
        _ => return unknown(child),
    };
    pool.close().await;
    Ok(Took {
        items: child.items,
        time,
        settings: settings(numbers),
        ..Took::default()
    })
}

fn settings(numbers: &[usize]) -> String {
    format!(
        "batch size {}, lock_tasks off (a fetch locks them already), enqueued all at once",
        batch(numbers)
    )
}

fn batch(numbers: &[usize]) -> usize {
    numbers.first().copied().unwrap_or(BATCH)
}

async fn prepare(pool: &PgPool) -> Result<Duration> {
    let start = Instant::now();
    PostgresStorage::setup(pool).await?;
    Ok(start.elapsed())
}

fn storage(pool: &PgPool, batch: usize) -> PostgresStorage<Noop> {
    PostgresStorage::new(pool).with_config(
        Config::default()
            .queue("bench")
            .batch_size(batch)
            .lock_tasks(false),
    )
}

async fn enqueue(pool: &PgPool, jobs: u64) -> Result<Duration> {
    let all: Vec<Noop> = (0..jobs).map(|n| Noop { n }).collect();
    let mut storage = storage(pool, BATCH);
    let start = Instant::now();
    storage.push_bulk(all).await?;
    let took = start.elapsed();
    // So that its queries are planned for the table as it is.
    sqlx::query("analyze apalis.jobs").execute(pool).await?;
    Ok(took)
}

async fn run(pool: &PgPool, jobs: u64, numbers: &[usize]) -> Result<Duration> {
    // A job's time has whole seconds here, and must have passed.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let context = WorkerContext::new(&format!("bench-{}", std::process::id()));
    let worker = WorkerBuilder::new(&context)
        .backend(storage(pool, batch(numbers)))
        .build(|job: Noop| async move { PERFORMED.add(job.n) });
    let start = Instant::now();
    let running = tokio::spawn(worker.run());
    PERFORMED
        .until_ended(
            pool,
            jobs,
            "select count(*) = $1 from apalis.jobs where status = 'Done'",
        )
        .await?;
    let took = start.elapsed();
    context.stop()?;
    running.await??;
    PERFORMED.check(jobs)?;
    Ok(took)
}
