//! How long a job waits for a worker that has nothing else to do, and what such a worker costs.
//!
//! Beside it, in the same process and in turn with it, the least that can be done on Postgres: a row
//! and a notification in one statement, and a listener that takes the row when it hears of it.

use std::time::{Duration, Instant};

use jobs::{Client, Context, Job, JobError, Perform, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::mpsc;

use crate::frame::{ChildArguments, Measured, Report, Result, Server, percentile, stopped, table};

/// Options of `bench -- pickup`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// How many jobs are timed.
    #[arg(long, default_value_t = 200)]
    times: u64,
    /// How long the idle process is watched; 0 leaves that out.
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
}

/// Long enough for a worker to have nothing left to do.
const REST: Duration = Duration::from_millis(10);
/// How long an idle process has to arrive before it is watched.
const ARRIVAL: Duration = Duration::from_secs(3);
const IDLE_QUEUES: [&str; 4] = ["one", "two", "three", "four.*"];

pub(crate) async fn run(options: Options) -> Result<()> {
    let mut server = Server::start().await?;
    let scratch = server.scratch("pickup").await?;
    let child = ChildArguments {
        items: options.times,
        ..ChildArguments::new("pickup", "both", server.url(&scratch))
    };
    let (measured, _) = server.count(&scratch, &child).await?;
    server.remove(&scratch).await?;
    let idle = idle(&mut server, options.idle_seconds).await?;

    println!(
        "From enqueueing to the start of perform on an idle worker, {} times, in ms\n{}\n",
        options.times,
        server.settings().await?
    );
    let head = ["", "p50", "p90", "p99", "most"].map(str::to_owned);
    let rows = measured.series.iter().map(|(name, times)| row(name, times));
    table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    println!();
    let p50 = |name: &str| percentile(measured.series(name), 0.5);
    let mut report = Report::default();
    report.ratio("pickup/floor", p50(OURS) / p50(FLOOR));
    report.value("pickup/p50_ms", p50(OURS));
    if let Some(per_second) = idle {
        report.value("idle/statements_per_s", per_second);
    }
    report.close();
    Ok(())
}

fn row(name: &str, times: &[f64]) -> [String; 5] {
    let at = |part| format!("{:.3}", percentile(times, part));
    [name.to_owned(), at(0.5), at(0.9), at(0.99), at(1.0)]
}

/// The statements of a process with four queues and nothing in them.
async fn idle(server: &mut Server, seconds: u64) -> Result<Option<f64>> {
    if seconds == 0 {
        return Ok(None);
    }
    let scratch = server.scratch("idle").await?;
    let child = ChildArguments::new("pickup", "idle", server.url(&scratch)).start()?;
    tokio::time::sleep(ARRIVAL).await;
    let before = server.statements(&scratch).await?;
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let after = server.statements(&scratch).await?;
    let took = start.elapsed().as_secs_f64();
    child.stop().await?;
    server.remove(&scratch).await?;
    Ok(before
        .zip(after)
        .map(|(before, after)| (after - before) as f64 / took))
}

const OURS: &str = "ours: enqueue to perform";
const FLOOR: &str = "floor: insert and notify to claim";

/// In the child.
pub(crate) async fn measure(child: &ChildArguments) -> Result<Measured> {
    let pool = child.pool(4).await?;
    jobs::migrate(&pool).await?;
    let measured = match child.system.as_str() {
        "both" => both(&pool, child.items).await?,
        "idle" => idle_worker(&pool).await?,
        other => return Err(format!("no system is called `{other}`").into()),
    };
    pool.close().await;
    Ok(measured)
}

/// A job that reports when it starts.
#[derive(Serialize, Deserialize, Job)]
struct Started;

impl Perform for Started {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        let now = Instant::now();
        cx.data::<mpsc::UnboundedSender<Instant>>()?.send(now)?;
        Ok(())
    }
}

async fn both(pool: &PgPool, times: u64) -> Result<Measured> {
    let (started, mut starts) = mpsc::unbounded_channel();
    let (claimed, mut claims) = mpsc::unbounded_channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(pool.clone())
        .register::<Started>()
        .queue("default", 10)
        .data(started);
    let worker = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    let floor = tokio::spawn(floor_worker(floor_listener(pool).await?, claimed));
    let client = Client::new(pool.clone());
    // The first ones find cold caches and statements that are not prepared.
    for _ in 0..20 {
        ours_once(&client, &mut starts).await?;
        floor_once(pool, &mut claims).await?;
    }
    let start = Instant::now();
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..times {
        ours.push(ours_once(&client, &mut starts).await?);
        floors.push(floor_once(pool, &mut claims).await?);
    }
    let seconds = start.elapsed().as_secs_f64();
    let _ = stop.send(());
    worker.await??;
    floor.abort();
    let _ = floor.await;
    Ok(Measured {
        items: times,
        seconds,
        series: vec![(OURS.to_owned(), ours), (FLOOR.to_owned(), floors)],
        ..Measured::default()
    })
}

async fn ours_once(client: &Client, starts: &mut mpsc::UnboundedReceiver<Instant>) -> Result<f64> {
    tokio::time::sleep(REST).await;
    let enqueued = Instant::now();
    client.enqueue(Started).await?;
    let started = starts.recv().await.ok_or("the worker is gone")?;
    Ok((started - enqueued).as_secs_f64() * 1_000.0)
}

async fn floor_once(pool: &PgPool, claims: &mut mpsc::UnboundedReceiver<Instant>) -> Result<f64> {
    tokio::time::sleep(REST).await;
    let enqueued = Instant::now();
    sqlx::query(
        "with row as (insert into floor (status) values ('ready'))
         select pg_notify('floor', '')",
    )
    .execute(pool)
    .await?;
    let claimed = claims.recv().await.ok_or("the floor is gone")?;
    Ok((claimed - enqueued).as_secs_f64() * 1_000.0)
}

async fn floor_listener(
    pool: &PgPool,
) -> Result<(PgListener, sqlx::pool::PoolConnection<sqlx::Postgres>)> {
    sqlx::raw_sql(
        "create table floor (id bigserial primary key, status text not null);
         create index on floor (id) where status = 'ready'",
    )
    .execute(pool)
    .await?;
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen("floor").await?;
    Ok((listener, pool.acquire().await?))
}

/// Waits for a notification, and takes the row.
async fn floor_worker(
    (mut listener, mut connection): (PgListener, sqlx::pool::PoolConnection<sqlx::Postgres>),
    claimed: mpsc::UnboundedSender<Instant>,
) -> Result<(), sqlx::Error> {
    loop {
        listener.recv().await?;
        let row: Option<i64> = sqlx::query_scalar(
            "update floor set status = 'running' where id = (
                 select id from floor where status = 'ready'
                 order by id limit 1 for update skip locked)
             returning id",
        )
        .fetch_optional(&mut *connection)
        .await?;
        if row.is_some() && claimed.send(Instant::now()).is_err() {
            return Ok(());
        }
    }
}

/// Runs a worker on four queues until standard input ends: the parent has closed it, or has ended.
async fn idle_worker(pool: &PgPool) -> Result<Measured> {
    let worker = Worker::new(pool.clone()).register::<Started>();
    IDLE_QUEUES
        .iter()
        .fold(worker, |worker, queue| worker.queue(*queue, 10))
        .run_until(stopped())
        .await?;
    Ok(Measured::default())
}
