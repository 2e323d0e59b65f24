//! Our own runs under the workloads of `bench -- peers`, in one process; in two for `latency_split`.

pub(crate) mod check;
pub(crate) mod steps;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pipeline::{Client, Invalid, Pipeline, Worker};
use sqlx::PgPool;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::drive::{CHUNK, IN_FLIGHT, WARM_UP, each_alone};
use super::floor::Floor;
use super::payload::{CHAIN_STEPS, chain_output};
use crate::frame::{ChildArguments, Measured, Result, stopped};
use check::Expected;
use steps::{All, PERFORMED};

const SLOTS: usize = 1_000;
/// Connections of the pool; the engine has its own besides.
const CONNECTIONS: usize = 10;
/// Between two looks at whether something is so.
const PAUSE: Duration = Duration::from_millis(1);

/// How our process is set up: `SLOTS:CONNECTIONS`.
pub(crate) struct Setup {
    pub(crate) slots: u32,
    pub(crate) connections: u32,
}

impl Setup {
    pub(crate) fn new(numbers: &[usize]) -> Result<Self> {
        let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
        Ok(Self {
            slots: u32::try_from(number(0, SLOTS))?,
            connections: u32::try_from(number(1, CONNECTIONS))?,
        })
    }

    fn text(&self, starts: &str) -> String {
        format!(
            "{starts}, {} slots, a pool of at most {} connections beside the engine's own, events of every step",
            self.slots, self.connections
        )
    }
}

/// In the child: one phase of one workload.
pub(crate) async fn measure(child: &ChildArguments) -> Result<Measured> {
    let (name, numbers) = child.name_and_numbers()?;
    let setup = Setup::new(&numbers)?;
    let pool = child.pool(setup.connections).await?;
    let asynchronous = match name {
        "ours" => false,
        "ours-relaxed" => true,
        other => return Err(format!("no system is called `{other}`").into()),
    };
    let items = child.items;
    let measured = match (child.bench.as_str(), child.phase.as_str()) {
        (_, "prepare") => {
            jobs::migrate(&pool).await?;
            Floor::prepare(&pool).await?;
            Measured::default()
        }
        ("peers.chain", "run") => bulk(&pool, items, &setup, steps::chain, check::CHAIN).await?,
        ("peers.chain_10kb", "run") => {
            bulk(&pool, items, &setup, steps::large_chain, check::LARGE_CHAIN).await?
        }
        ("peers.fan", "run") => bulk(&pool, items, &setup, steps::fan, check::fan()).await?,
        ("peers.single", "run") => single(&pool, items, &setup).await?,
        ("peers.latency", "run") => latency(&pool, items, &setup, asynchronous).await?,
        ("peers.latency_split", "work") => {
            worker(&pool, &setup).run_until(stopped()).await?;
            Measured::default()
        }
        ("peers.latency_split", "run") => latency_split(&pool, items, &setup).await?,
        (bench, phase) => return Err(format!("`{bench}` has no phase `{phase}`").into()),
    };
    pool.close().await;
    Ok(measured)
}

pub(crate) fn worker(pool: &PgPool, setup: &Setup) -> Worker {
    Worker::new(pool.clone())
        .register::<All>()
        .queue("default", setup.slots)
}

/// A worker of this process.
pub(crate) struct Working {
    stop: oneshot::Sender<()>,
    running: JoinHandle<pipeline::Result<()>>,
}

impl Working {
    /// Starts the worker, and waits until it is at work: what is connected before anything starts is not timed.
    pub(crate) async fn start(pool: &PgPool, worker: Worker) -> Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(worker.run_until(async {
            let _ = stopped.await;
        }));
        until(pool, "select exists (select from pipeline.workers)").await?;
        Ok(Self { stop, running })
    }

    pub(crate) async fn stop(self) -> Result<()> {
        let _ = self.stop.send(());
        self.running.await??;
        Ok(())
    }
}

/// Starts runs, a chunk of them in a call, while a worker of the process runs them; from the first start to the last
/// end in the database.
async fn bulk<O>(
    pool: &PgPool,
    runs: u64,
    setup: &Setup,
    pipeline: fn(u64) -> Result<Pipeline<O>, Invalid>,
    expected: Expected,
) -> Result<Measured> {
    let client = Client::new(pool.clone());
    let working = Working::start(pool, worker(pool, setup)).await?;
    let items = runs * expected.steps;
    let start = Instant::now();
    start_in_chunks(&client, runs, pipeline).await?;
    while PERFORMED.load(Ordering::Relaxed) < items {
        tokio::time::sleep(PAUSE).await;
    }
    until_all_ended(pool).await?;
    let seconds = start.elapsed().as_secs_f64();
    working.stop().await?;
    expected.check(pool, runs).await?;
    Ok(Measured {
        items,
        seconds,
        settings: setup.text(&format!("{CHUNK} runs started in a call")),
        ..Measured::default()
    })
}

/// Starts runs 0 to `runs`, a chunk of them in a call.
pub(crate) async fn start_in_chunks<O>(
    client: &Client,
    runs: u64,
    pipeline: fn(u64) -> Result<Pipeline<O>, Invalid>,
) -> Result<()> {
    for first in (0..runs).step_by(CHUNK as usize) {
        let chunk = first..runs.min(first + CHUNK);
        let pipelines = chunk.map(pipeline).collect::<Result<Vec<_>, _>>()?;
        client.start(pipelines).await?;
    }
    Ok(())
}

pub(crate) async fn until_all_ended(pool: &PgPool) -> Result<()> {
    until(
        pool,
        "select not exists (select from pipeline.runs where status = 'running')",
    )
    .await
}

async fn single(pool: &PgPool, runs: u64, setup: &Setup) -> Result<Measured> {
    let client = Client::new(pool.clone());
    let working = Working::start(pool, worker(pool, setup)).await?;
    let start = Instant::now();
    each_alone(runs, IN_FLIGHT, chain_output, move |number| {
        let client = client.clone();
        async move { Ok(client.start(steps::chain(number)?).await?.result().await?) }
    })
    .await?;
    let seconds = start.elapsed().as_secs_f64();
    working.stop().await?;
    check::CHAIN.check(pool, runs).await?;
    Ok(Measured {
        items: runs * CHAIN_STEPS,
        seconds,
        settings: setup.text(&format!(
            "{IN_FLIGHT} runs in flight, each started by a call"
        )),
        ..Measured::default()
    })
}

async fn latency(pool: &PgPool, times: u64, setup: &Setup, asynchronous: bool) -> Result<Measured> {
    let working = Working::start(pool, worker(pool, setup)).await?;
    let measured = lone_runs(pool, times, asynchronous).await?;
    working.stop().await?;
    check::CHAIN.check(pool, times + WARM_UP).await?;
    Ok(Measured {
        settings: setup.text("one run at a time, started and worked off in one process"),
        ..measured
    })
}

/// The client's part of `latency_split`: the worker is another process.
async fn latency_split(pool: &PgPool, times: u64, setup: &Setup) -> Result<Measured> {
    until(pool, "select exists (select from pipeline.workers)").await?;
    let measured = lone_runs(pool, times, false).await?;
    check::CHAIN.check(pool, times + WARM_UP).await?;
    Ok(Measured {
        settings: setup.text("one run at a time, client and worker in two processes"),
        ..measured
    })
}

async fn lone_runs(pool: &PgPool, times: u64, asynchronous: bool) -> Result<Measured> {
    let client = Client::new(pool.clone());
    let mut floor = Floor::connect(pool).await?;
    let start = Instant::now();
    let series = floor
        .in_turn(times, async |number| {
            let run = client
                .start(steps::chain_with(number, asynchronous)?)
                .await?;
            Ok(run.result().await?)
        })
        .await?;
    Ok(Measured {
        items: times,
        seconds: start.elapsed().as_secs_f64(),
        series,
        ..Measured::default()
    })
}

pub(crate) async fn until(pool: &PgPool, true_of_it: &'static str) -> Result<()> {
    while !sqlx::query_scalar(true_of_it).fetch_one(pool).await? {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
