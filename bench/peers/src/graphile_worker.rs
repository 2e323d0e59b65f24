//! graphile_worker with its local queue: the fastest of the peers, with fewer promises.

use std::sync::Arc;
use std::time::{Duration, Instant};

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

use crate::performed::PERFORMED;
use crate::protocol::ChildArguments;
use crate::{Result, Took, unknown};

const SCHEMA: &str = "graphile_worker";
/// As its own benchmark has them.
const POLL: Duration = Duration::from_millis(5);
const COMPLETE: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Noop {
    n: u64,
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        PERFORMED.add(self.n);
        Ok::<(), String>(())
    }
}

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
    let [concurrency, size, queues] = set_up(numbers);
    format!(
        "concurrency {concurrency}, {queues} local queue(s) of {size}, poll {POLL:?}, \
         completions gathered for {COMPLETE:?}, enqueued all at once"
    )
}

fn set_up(numbers: &[usize]) -> [usize; 3] {
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    [number(0, 500), number(1, 5_000), number(2, 1)]
}

async fn prepare(pool: &PgPool) -> Result<Duration> {
    let start = Instant::now();
    WorkerUtils::new(pool.clone(), SCHEMA).migrate().await?;
    Ok(start.elapsed())
}

async fn enqueue(pool: &PgPool, jobs: u64) -> Result<Duration> {
    let utils = WorkerUtils::new(pool.clone(), SCHEMA);
    let spec = |n| RawJobSpec {
        identifier: Noop::IDENTIFIER.to_owned(),
        payload: serde_json::json!({ "n": n }),
        spec: JobSpec::default(),
    };
    let all: Vec<RawJobSpec> = (0..jobs).map(spec).collect();
    let start = Instant::now();
    utils.add_raw_jobs(&all).await?;
    Ok(start.elapsed())
}

async fn run(pool: &PgPool, jobs: u64, numbers: &[usize]) -> Result<Duration> {
    let [concurrency, size, queues] = set_up(numbers);
    let local = LocalQueueConfig::default()
        .with_size(size)
        .with_queue_count(queues);
    let worker = WorkerOptions::default()
        .pg_pool(pool.clone())
        .schema(SCHEMA)
        .concurrency(concurrency)
        .poll_interval(POLL)
        .complete_job_batch_delay(COMPLETE)
        .local_queue(local)
        .listen_os_shutdown_signals(false)
        .define_job::<Noop>()
        .init()
        .await?;
    let worker = Arc::new(worker);
    let runner = Arc::clone(&worker);
    let start = Instant::now();
    let running = tokio::spawn(async move { runner.run().await });
    PERFORMED
        .until_ended(
            pool,
            jobs,
            "select $1::bigint > 0 and not exists (select from graphile_worker._private_jobs)",
        )
        .await?;
    let took = start.elapsed();
    worker.request_shutdown();
    running.await??;
    PERFORMED.check(jobs)?;
    Ok(took)
}
