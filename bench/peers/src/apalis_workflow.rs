//! apalis-workflow on apalis-postgres: each step is a task of its own, which enqueues the next.
//!
//! A chain is a `SteppedFlow`, a fan a `GraphFlow`. A `SteppedFlow` does not store what its last step returns, and
//! neither offers a wait for the end of a run: the last step tells its client in the process (see [`crate::ends`]).

use std::time::{Duration, Instant};

use apalis_core::backend::TaskSink as _;
use apalis_core::backend::ext::BackendExt as _;
use apalis_core::backend::ext::poll_strategy::PollWith;
use apalis_core::error::BoxDynError;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::task::task_fn::task_fn;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use apalis_postgres::{Config, PostgresStorage};
use apalis_workflow::{GraphFlow, SteppedFlow};
use futures_util::{SinkExt as _, stream};
use sqlx::PgPool;

use crate::apalis_poll::Every;
use crate::drive::{CHUNK, IN_FLIGHT, WARM_UP, each_alone};
use crate::ends;
use crate::floor::Floor;
use crate::payload::{CHAIN_STEPS, FAN_ARMS, FAN_STEPS, Large, Payload, chain_output, fan_output};
use crate::performed::PERFORMED;
use crate::protocol::ChildArguments;
use crate::{Result, Took, unknown};

/// Tasks that one fetch takes. Tried: 100 to 1,000.
const BATCH: usize = 500;
/// How often the worker looks for tasks, in milliseconds. Tried: 1 to 10.
const POLL_MS: usize = 1;
/// The most connections of its pool. Tried: 10 and 20.
const CONNECTIONS: usize = 10;

type Storage<P> = PollWith<PostgresStorage<P>, Every>;

/// How the system is set up: `BATCH:POLL_MS:CONNECTIONS`.
struct Setup {
    batch: usize,
    poll: Duration,
    connections: usize,
}

impl Setup {
    fn new(numbers: &[usize]) -> Self {
        let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
        Self {
            batch: number(0, BATCH),
            poll: Duration::from_millis(number(1, POLL_MS) as u64),
            connections: number(2, CONNECTIONS),
        }
    }

    fn text(&self, starts: &str) -> String {
        format!(
            "{starts}, batch size {}, a poll every {:?}, lock_tasks off (a fetch locks them already), a pool of at \
             most {} connections",
            self.batch, self.poll, self.connections
        )
    }

    fn storage<P>(&self, pool: &PgPool) -> Storage<P> {
        PostgresStorage::new(pool)
            .with_config(
                Config::default()
                    .queue("bench")
                    .batch_size(self.batch)
                    .lock_tasks(false),
            )
            .poll_with_strategy(Every::new(self.poll))
    }
}

pub(crate) async fn measure(child: &ChildArguments, numbers: &[usize]) -> Result<Took> {
    let setup = Setup::new(numbers);
    let pool = child.pool(u32::try_from(setup.connections)?).await?;
    let took = match (child.bench.as_str(), child.phase.as_str()) {
        (_, "prepare") => {
            PostgresStorage::setup(&pool).await?;
            Floor::prepare(&pool).await?;
            Took::default()
        }
        ("peers.chain", "run") => chain::<u64>(&pool, child.items, &setup).await?,
        ("peers.chain_10kb", "run") => chain::<Large>(&pool, child.items, &setup).await?,
        ("peers.single", "run") => single(&pool, child.items, &setup).await?,
        ("peers.fan", "run") => fan(&pool, child.items, &setup).await?,
        ("peers.latency", "run") => latency(&pool, child.items, &setup).await?,
        _ => return unknown(child),
    };
    pool.close().await;
    Ok(took)
}

/// A worker that runs chains until the context is stopped.
fn chain_worker<P: Payload>(
    storage: Storage<P>,
) -> (WorkerContext, tokio::task::JoinHandle<Result<(), String>>) {
    let flow = SteppedFlow::new("chain")
        .and_then(async |input: P| Ok::<_, BoxDynError>(input.next()))
        .and_then(async |input: P| Ok::<_, BoxDynError>(input.next()))
        .and_then(async |input: P| Ok::<_, BoxDynError>(input.next()))
        .and_then(async |input: P| Ok::<_, BoxDynError>(input.next()))
        .and_then(async |input: P| {
            let output = input.next();
            ends::ended(output.number() - CHAIN_STEPS, output.number());
            Ok::<_, BoxDynError>(output)
        });
    let context = WorkerContext::new(&format!("bench-{}", std::process::id()));
    let worker = WorkerBuilder::new(&context).backend(storage).build(flow);
    let running = tokio::spawn(async move { worker.run().await.map_err(|e| e.to_string()) });
    (context, running)
}

async fn chain<P: Payload>(pool: &PgPool, runs: u64, setup: &Setup) -> Result<Took> {
    let mut storage: Storage<P> = setup.storage(pool);
    let (context, running) = chain_worker(storage.clone());
    let start = Instant::now();
    for first in (0..runs).step_by(CHUNK as usize) {
        let chunk = first..runs.min(first + CHUNK);
        storage.push_bulk(chunk.map(P::new).collect()).await?;
    }
    until_done(pool, runs, CHAIN_STEPS).await?;
    let time = start.elapsed();
    context.stop()?;
    running.await??;
    check_chains(pool, runs).await?;
    Ok(Took {
        items: runs * CHAIN_STEPS,
        time,
        settings: setup.text(&format!("SteppedFlow, {CHUNK} runs pushed at a time")),
        ..Took::default()
    })
}

async fn single(pool: &PgPool, runs: u64, setup: &Setup) -> Result<Took> {
    let storage: Storage<u64> = setup.storage(pool);
    let (context, running) = chain_worker(storage.clone());
    let start = Instant::now();
    each_alone(runs, IN_FLIGHT, chain_output, move |number| {
        let storage = storage.clone();
        run_alone(storage, number)
    })
    .await?;
    until_done(pool, runs, CHAIN_STEPS).await?;
    let time = start.elapsed();
    context.stop()?;
    running.await??;
    check_chains(pool, runs).await?;
    Ok(Took {
        items: runs * CHAIN_STEPS,
        time,
        settings: setup.text(&format!("SteppedFlow, {IN_FLIGHT} runs in flight")),
        ..Took::default()
    })
}

async fn run_alone(mut storage: Storage<u64>, number: u64) -> Result<u64> {
    let output = ends::expect(number);
    storage.push(number).await?;
    ends::output(output).await
}

async fn latency(pool: &PgPool, times: u64, setup: &Setup) -> Result<Took> {
    let storage: Storage<u64> = setup.storage(pool);
    let (context, running) = chain_worker(storage.clone());
    let start = Instant::now();
    let mut floor = Floor::connect(pool).await?;
    let series = floor
        .in_turn(times, async |number| {
            run_alone(storage.clone(), number).await
        })
        .await?;
    drop(floor);
    let time = start.elapsed();
    until_done(pool, times + WARM_UP, CHAIN_STEPS).await?;
    context.stop()?;
    running.await??;
    check_chains(pool, times + WARM_UP).await?;
    Ok(Took {
        items: times,
        time,
        series,
        settings: setup.text("SteppedFlow, one run at a time"),
    })
}

async fn fan(pool: &PgPool, runs: u64, setup: &Setup) -> Result<Took> {
    // A `GraphFlow` takes a storage of encoded tasks.
    let mut storage: Storage<Vec<u8>> = setup.storage(pool);
    let flow = GraphFlow::new("fan");
    let first = flow.add_node("first", task_fn(|start: u64| async move { start + 1 }));
    let arms: Vec<_> = (0..FAN_ARMS)
        .map(|arm| {
            let step = task_fn(move |first: u64| async move { first + arm });
            flow.add_node(&format!("arm_{arm}"), step)
                .depends_on(&first)
        })
        .collect();
    flow.add_node(
        "last",
        task_fn(|arms: Vec<u64>| async move {
            let sum: u64 = arms.iter().sum();
            let start = (sum - fan_output(0)) / FAN_ARMS;
            ends::ended(start, sum);
            sum
        }),
    )
    .depends_on(arms.iter().collect::<Vec<_>>());
    drop(arms);
    let context = WorkerContext::new(&format!("bench-{}", std::process::id()));
    let worker = WorkerBuilder::new(&context)
        .backend(storage.clone())
        .build(flow);
    let running = tokio::spawn(async move { worker.run().await.map_err(|e| e.to_string()) });
    let start = Instant::now();
    for first in (0..runs).step_by(CHUNK as usize) {
        let chunk = first..runs.min(first + CHUNK);
        let tasks = chunk.map(|start| {
            let task = TaskBuilder::new(start.to_string().into_bytes());
            Ok(task.build())
        });
        storage.send_all(&mut stream::iter(tasks)).await?;
    }
    // The last step has a task for each arm: the one that comes from the last arm runs it, the others end at once.
    until_done(pool, runs, FAN_STEPS + FAN_ARMS - 1).await?;
    let time = start.elapsed();
    context.stop()?;
    running.await??;
    PERFORMED.check(runs)?;
    check_fans(pool, runs).await?;
    Ok(Took {
        items: runs * FAN_STEPS,
        time,
        settings: setup.text(&format!("GraphFlow, {CHUNK} runs pushed at a time")),
        ..Took::default()
    })
}

/// Waits until the last steps of all runs have been performed and all tasks are done in the database.
async fn until_done(pool: &PgPool, runs: u64, tasks: u64) -> Result<()> {
    PERFORMED
        .until_ended(
            pool,
            runs,
            "select $1::bigint > 0 and not exists (select from apalis.jobs where status <> 'Done')",
        )
        .await?;
    let done: i64 = sqlx::query_scalar("select count(*) from apalis.jobs where status = 'Done'")
        .fetch_one(pool)
        .await?;
    let expected = runs * tasks;
    if done != expected.cast_signed() {
        return Err(format!("{done} tasks are done instead of {expected}").into());
    }
    Ok(())
}

/// Checks in the database what the last step of each run was given: what it returned is not stored. The sum of what
/// the last steps returned was taken in the process.
async fn check_chains(pool: &PgPool, runs: u64) -> Result<()> {
    PERFORMED.check(runs)?;
    let found: (i64, i64) = sqlx::query_as(
        "select count(*), coalesce(sum(case when text like '{%' then (text::json ->> 'n')::bigint
                                             else text::bigint end), 0)::bigint
         from (select convert_from(job, 'UTF8') as text, metadata -> 'apalis_workflow.context.step_index' as step
               from apalis.jobs) as tasks
         where step = $1",
    )
    .bind((CHAIN_STEPS - 1).to_string())
    .fetch_one(pool)
    .await?;
    let sum: u64 = (0..runs).map(|run| chain_output(run) - 1).sum();
    compare(found, runs, sum)
}

/// Checks in the database what each run returned.
async fn check_fans(pool: &PgPool, runs: u64) -> Result<()> {
    let found: (i64, i64) = sqlx::query_as(
        "select count(*), coalesce(sum((last_result #>> '{Ok,Complete,result}')::bigint), 0)::bigint
         from apalis.jobs where last_result #> '{Ok,Complete}' is not null",
    )
    .fetch_one(pool)
    .await?;
    compare(found, runs, (0..runs).map(fan_output).sum())
}

fn compare(found: (i64, i64), runs: u64, sum: u64) -> Result<()> {
    if found != (runs.cast_signed(), sum.cast_signed()) {
        return Err(format!("runs and their sum: {found:?} instead of {:?}", (runs, sum)).into());
    }
    Ok(())
}
