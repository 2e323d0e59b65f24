//! dbos: a workflow is a function whose steps are checkpointed.
//!
//! Runs are executed directly, by the process that starts them. A queue would add an enqueue, a claim and a poll
//! to each run; a run that is started directly begins at once, and its caller is told in the process.

use std::time::Instant;

use dbos::{Config, DBOS, WorkflowRef};
use futures_util::future::try_join_all;
use sqlx::PgPool;

use crate::drive::{CHUNK, IN_FLIGHT, each_alone};
use crate::floor::Floor;
use crate::payload::{CHAIN_STEPS, FAN_ARMS, FAN_STEPS, Large, Payload, chain_output, fan_output};
use crate::protocol::ChildArguments;
use crate::{Result, Took, unknown};

/// The most connections of its pool. Tried, in short: 4 to 64. 10 to 20 were alike; 4, 40 and 64 were slower.
const CONNECTIONS: usize = 14;
/// Runs that a bulk workload has in flight at a time. Tried: 64 to 2,000, without much difference.
const BULK_IN_FLIGHT: usize = 200;

/// The keys of the steps of a chain.
const KEYS: [&str; CHAIN_STEPS as usize] = ["0", "1", "2", "3", "4"];

pub(crate) async fn measure(child: &ChildArguments, numbers: &[usize]) -> Result<Took> {
    let pool = child.pool(2).await?;
    let dbos = DBOS::new(Config {
        app_version: Some("1".to_owned()),
        max_connections: u32::try_from(connections(numbers))?,
        ..Config::new("bench", child.url.clone())
    });
    let took = match (child.bench.as_str(), child.phase.as_str()) {
        (_, "prepare") => {
            dbos.launch().await?;
            Floor::prepare(&pool).await?;
            Took::default()
        }
        ("peers.chain", "run") => chain::<u64>(&dbos, &pool, child.items, numbers).await?,
        ("peers.chain_10kb", "run") => chain::<Large>(&dbos, &pool, child.items, numbers).await?,
        ("peers.single", "run") => single(&dbos, &pool, child.items, numbers).await?,
        ("peers.fan", "run") => fan(&dbos, &pool, child.items, numbers).await?,
        ("peers.latency", "run") => latency(&dbos, &pool, child.items, numbers).await?,
        _ => return unknown(child),
    };
    dbos.shutdown().await;
    pool.close().await;
    Ok(took)
}

fn connections(numbers: &[usize]) -> usize {
    numbers.first().copied().unwrap_or(CONNECTIONS)
}

fn bulk_in_flight(numbers: &[usize]) -> usize {
    numbers.get(1).copied().unwrap_or(BULK_IN_FLIGHT)
}

fn settings(numbers: &[usize], starts: &str) -> String {
    format!(
        "executed directly, {starts}, a pool of at most {} connections",
        connections(numbers)
    )
}

async fn chain_workflow<P: Payload>(start: P) -> dbos::Result<P> {
    let mut value = start;
    for key in KEYS {
        value = dbos::step(key, || {
            let input = value.clone();
            async move { dbos::Result::Ok(input.next()) }
        })
        .await?;
    }
    Ok(value)
}

async fn fan_workflow(start: u64) -> dbos::Result<u64> {
    let first = dbos::step("first", || async move { dbos::Result::Ok(start + 1) }).await?;
    let arms = (0..FAN_ARMS).map(|arm| {
        dbos::step(&format!("arm_{arm}"), move || async move {
            dbos::Result::Ok(first + arm)
        })
    });
    let arms = try_join_all(arms).await?;
    dbos::step("last", || {
        let sum = arms.iter().sum();
        async move { dbos::Result::Ok(sum) }
    })
    .await
}

/// Starts all runs, a chunk of them at a time, and waits for their outputs. A further chunk is started when no more
/// runs are in flight than the setting says.
async fn bulk<P: Payload>(
    workflow: &WorkflowRef<P, P>,
    runs: u64,
    in_flight: usize,
    expected: fn(u64) -> u64,
) -> Result<()> {
    let mut handles = std::collections::VecDeque::new();
    let mut next = 0;
    while next < runs || !handles.is_empty() {
        if next < runs && handles.len() < in_flight.max(1) {
            let chunk = next..runs.min(next + CHUNK);
            next = chunk.end;
            let started = try_join_all(chunk.map(async |number| {
                let handle = workflow.start(P::new(number)).await?;
                dbos::Result::<_>::Ok((number, handle))
            }));
            handles.extend(started.await?);
            continue;
        }
        if let Some((number, handle)) = handles.pop_front() {
            let output = handle.result().await?.number();
            if output != expected(number) {
                return Err(format!("run {number} returned {output}").into());
            }
        }
    }
    Ok(())
}

async fn chain<P: Payload>(
    dbos: &DBOS,
    pool: &PgPool,
    runs: u64,
    numbers: &[usize],
) -> Result<Took> {
    let workflow = dbos.register_workflow("chain", chain_workflow::<P>)?;
    dbos.launch().await?;
    let in_flight = bulk_in_flight(numbers);
    let start = Instant::now();
    bulk(&workflow, runs, in_flight, chain_output).await?;
    let time = start.elapsed();
    check_chains(pool, runs).await?;
    Ok(Took {
        items: runs * CHAIN_STEPS,
        time,
        settings: settings(numbers, &starts_in_chunks(in_flight)),
        ..Took::default()
    })
}

fn starts_in_chunks(in_flight: usize) -> String {
    format!("{CHUNK} starts at a time while fewer than {in_flight} runs are in flight")
}

async fn single(dbos: &DBOS, pool: &PgPool, runs: u64, numbers: &[usize]) -> Result<Took> {
    let workflow = dbos.register_workflow("chain", chain_workflow::<u64>)?;
    dbos.launch().await?;
    let start = Instant::now();
    each_alone(runs, IN_FLIGHT, chain_output, move |number| {
        let workflow = workflow.clone();
        async move { Ok(workflow.run(number).await?) }
    })
    .await?;
    let time = start.elapsed();
    check_chains(pool, runs).await?;
    Ok(Took {
        items: runs * CHAIN_STEPS,
        time,
        settings: settings(numbers, &format!("{IN_FLIGHT} runs in flight")),
        ..Took::default()
    })
}

async fn fan(dbos: &DBOS, pool: &PgPool, runs: u64, numbers: &[usize]) -> Result<Took> {
    let workflow = dbos.register_workflow("fan", fan_workflow)?;
    dbos.launch().await?;
    let in_flight = bulk_in_flight(numbers);
    let start = Instant::now();
    bulk(&workflow, runs, in_flight, fan_output).await?;
    let time = start.elapsed();
    check(pool, runs, FAN_STEPS, (0..runs).map(fan_output).sum()).await?;
    Ok(Took {
        items: runs * FAN_STEPS,
        time,
        settings: settings(numbers, &starts_in_chunks(in_flight)),
        ..Took::default()
    })
}

async fn latency(dbos: &DBOS, pool: &PgPool, times: u64, numbers: &[usize]) -> Result<Took> {
    let workflow = dbos.register_workflow("chain", chain_workflow::<u64>)?;
    dbos.launch().await?;
    let start = Instant::now();
    let mut floor = Floor::connect(pool).await?;
    let series = floor
        .in_turn(times, async |number| Ok(workflow.run(number).await?))
        .await?;
    drop(floor);
    let time = start.elapsed();
    check_chains(pool, times + crate::drive::WARM_UP).await?;
    Ok(Took {
        items: times,
        time,
        series,
        settings: settings(numbers, "one run at a time"),
    })
}

async fn check_chains(pool: &PgPool, runs: u64) -> Result<()> {
    check(pool, runs, CHAIN_STEPS, (0..runs).map(chain_output).sum()).await
}

/// Checks in the database that all runs and steps have succeeded, and what the runs returned. Each client has
/// compared the output of its own run already.
async fn check(pool: &PgPool, runs: u64, steps: u64, sum: u64) -> Result<()> {
    let found: (i64, i64, i64, i64) = sqlx::query_as(
        "select (select count(*) from dbos.workflow_status),
                (select count(*) from dbos.workflow_status where status = 'SUCCESS'),
                (select count(*) from dbos.operation_outputs where error is null),
                (select coalesce(sum(case when output like '{%' then (output::json ->> 'n')::bigint
                                          else output::bigint end), 0)::bigint
                 from dbos.workflow_status)",
    )
    .fetch_one(pool)
    .await?;
    let expected = [runs, runs, runs * steps, sum].map(u64::cast_signed);
    if [found.0, found.1, found.2, found.3] != expected {
        return Err(format!(
            "runs, runs that succeeded, steps, sum of outputs: {found:?} instead of {expected:?}"
        )
        .into());
    }
    Ok(())
}
