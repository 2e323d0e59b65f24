//! The bulk chain with 1 to 16 worker processes that share 1,000 slots.
//!
//! The client is a process of its own in each case, so that one worker process is not favoured by starts that are
//! handed over in the process. What the engine defers and isolates is counted by a probe in each worker; retries are
//! read from the steps, deadlocks and rollbacks from the server's statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use jobs::testing::{Moment, Probe};
use pipeline::Client;
use sqlx::PgPool;

use crate::frame::{ChildArguments, Measured, Report, Result, Server, median, stopped, table};
use crate::peers::ours::{Setup, check, start_in_chunks, steps, worker};
use crate::peers::payload::CHAIN_STEPS;

/// Options of `bench -- processes`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    #[arg(long, default_value_t = 2_000)]
    runs: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many worker processes there are, one case after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16])]
    workers: Vec<u32>,
}

const BENCH: &str = "processes";
/// The slots of all worker processes together.
const SLOTS: u32 = 1_000;
/// Connections of the client's pool.
const CLIENT_CONNECTIONS: u32 = 4;
/// Connections of each worker's pool, which only the shutdown uses; the engine has its own.
const WORKER_CONNECTIONS: u32 = 2;

/// Between two looks at whether all runs have ended.
const LOOK: Duration = Duration::from_millis(10);

const DEFERRED: &str = "deferred";
const ISOLATED: &str = "isolated";
const RETRIED: &str = "retried";

/// One case in one round.
struct Case {
    workers: u32,
    speed: f64,
    deferred: u64,
    isolated: u64,
    retried: u64,
    rollbacks: i64,
    deadlocks: i64,
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let mut server = Server::start().await?;
    let mut cases = Vec::new();
    for round in 1..=options.rounds {
        for workers in &options.workers {
            eprintln!("round {round}: {workers} worker processes");
            cases.push(case(&mut server, *workers, options.runs).await?);
        }
    }
    println!(
        "{} runs of a chain of {CHAIN_STEPS} steps, {SLOTS} slots shared by the worker processes, the client in a \
         process of its own\n{}\n",
        options.runs,
        server.settings().await?
    );
    print(&cases, &options.workers);
    let mut report = Report::default();
    let speed = |workers: u32| {
        let of_it = cases.iter().filter(|case| case.workers == workers);
        let speeds: Vec<f64> = of_it.map(|case| case.speed).collect();
        (!speeds.is_empty()).then(|| median(speeds))
    };
    for (name, workers) in [("two", 2), ("four", 4), ("eight", 8), ("sixteen", 16)] {
        if let (Some(many), Some(one)) = (speed(workers), speed(1)) {
            report.ratio(&format!("processes/{name}_one"), many / one);
        }
    }
    let deadlocks: i64 = cases.iter().map(|case| case.deadlocks).sum();
    report.count("processes/deadlocks", usize::try_from(deadlocks)?);
    report.close();
    Ok(())
}

/// All runs with so many worker processes, in a database of their own.
async fn case(server: &mut Server, workers: u32, runs: u64) -> Result<Case> {
    let scratch = server.scratch(&format!("{workers} workers")).await?;
    let url = server.url(&scratch);
    let child = |phase: &str, number: u32| ChildArguments {
        items: runs,
        phase: phase.to_owned(),
        ..ChildArguments::new(BENCH, &format!("ours:{number}"), url.clone())
    };
    child("prepare", 0).spawn().await?;
    let mut working = Vec::new();
    for at in 0..workers {
        let slots = SLOTS / workers + u32::from(at < SLOTS % workers);
        working.push(child("work", slots).start()?);
    }
    let measured = child("run", workers).spawn().await?;
    let (mut deferred, mut isolated) = (0.0, 0.0);
    for worker in working {
        let worker = worker.stop().await?;
        deferred += worker.series(DEFERRED).iter().sum::<f64>();
        isolated += worker.series(ISOLATED).iter().sum::<f64>();
    }
    // The counts of a session arrive when it ends: this waits for that.
    server.counted(&scratch).await?;
    let (rollbacks, deadlocks) = server.rollbacks_and_deadlocks(&scratch).await?;
    server.remove(&scratch).await?;
    Ok(Case {
        workers,
        speed: measured.items as f64 / measured.seconds,
        deferred: deferred as u64,
        isolated: isolated as u64,
        retried: measured.series(RETRIED).iter().sum::<f64>() as u64,
        rollbacks,
        deadlocks,
    })
}

fn print(cases: &[Case], workers: &[u32]) {
    let head = [
        "worker processes",
        "steps/s, median",
        "rounds",
        "deferred ends",
        "isolated groups",
        "retried steps",
        "rollbacks",
        "deadlocks",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for workers in workers {
        let of_it: Vec<&Case> = cases.iter().filter(|it| it.workers == *workers).collect();
        let all = |text: &dyn Fn(&Case) -> String| {
            let texts: Vec<String> = of_it.iter().map(|case| text(case)).collect();
            texts.join(" ")
        };
        let median = median(of_it.iter().map(|case| case.speed).collect());
        rows.push([
            workers.to_string(),
            format!("{median:.0}"),
            all(&|case| format!("{:.0}", case.speed)),
            all(&|case| case.deferred.to_string()),
            all(&|case| case.isolated.to_string()),
            all(&|case| case.retried.to_string()),
            all(&|case| case.rollbacks.to_string()),
            all(&|case| case.deadlocks.to_string()),
        ]);
    }
    table(&rows);
    println!();
}

/// In the child: the schema, one of the workers, or the client.
pub(crate) async fn measure(child: &ChildArguments) -> Result<Measured> {
    let (_, numbers) = child.name_and_numbers()?;
    let number = u32::try_from(numbers.first().copied().unwrap_or(0))?;
    let pool = match child.phase.as_str() {
        "work" => child.pool(WORKER_CONNECTIONS).await?,
        _ => child.pool(CLIENT_CONNECTIONS).await?,
    };
    let measured = match child.phase.as_str() {
        "prepare" => {
            jobs::migrate(&pool).await?;
            Measured::default()
        }
        "work" => work(&pool, number).await?,
        "run" => start(&pool, child.items, number).await?,
        other => return Err(format!("`{BENCH}` has no phase `{other}`").into()),
    };
    pool.close().await;
    Ok(measured)
}

/// Counts ends that were deferred and groups that were isolated.
#[derive(Debug, Default)]
struct Counts {
    deferred: AtomicU64,
    isolated: AtomicU64,
}

impl Probe for Counts {
    fn at(&self, moment: Moment, count: usize) -> BoxFuture<'_, ()> {
        match moment {
            Moment::Deferred => self.deferred.fetch_add(count as u64, Ordering::Relaxed),
            Moment::Isolated => self.isolated.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        Box::pin(std::future::ready(()))
    }
}

async fn work(pool: &PgPool, slots: u32) -> Result<Measured> {
    let counts = Arc::new(Counts::default());
    let setup = Setup {
        slots,
        connections: WORKER_CONNECTIONS,
    };
    worker(pool, &setup)
        .probe(counts.clone())
        .run_until(stopped())
        .await?;
    let number = |count: &AtomicU64| vec![count.load(Ordering::Relaxed) as f64];
    Ok(Measured {
        series: vec![
            (DEFERRED.to_owned(), number(&counts.deferred)),
            (ISOLATED.to_owned(), number(&counts.isolated)),
        ],
        ..Measured::default()
    })
}

/// Starts all runs, and waits until the database says that all have ended.
async fn start(pool: &PgPool, runs: u64, workers: u32) -> Result<Measured> {
    let client = Client::new(pool.clone());
    while sqlx::query_scalar::<_, i64>("select count(*) from pipeline.workers")
        .fetch_one(pool)
        .await?
        < i64::from(workers)
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let began = Instant::now();
    start_in_chunks(&client, runs, steps::chain).await?;
    // No process knows how many steps all of them have performed, so the database is asked; seldom, because asking
    // costs time too.
    while sqlx::query_scalar("select exists (select from pipeline.runs where status = 'running')")
        .fetch_one(pool)
        .await?
    {
        tokio::time::sleep(LOOK).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    check::CHAIN.check(pool, runs).await?;
    let retried: i64 = sqlx::query_scalar("select count(*) from pipeline.steps where attempt > 1")
        .fetch_one(pool)
        .await?;
    Ok(Measured {
        items: runs * CHAIN_STEPS,
        seconds,
        series: vec![(RETRIED.to_owned(), vec![retried as f64])],
        ..Measured::default()
    })
}
