//! How evenly steps follow each other under a constant load.
//!
//! Measured is the time from the end of the upstream step to the start of `perform`. The end is `steps.ended_at`, the
//! server's clock when the statement that ends the step arrived; the start is the machine's clock, read by `perform`
//! itself. Both are one clock: server and worker are on one machine. So the time includes the whole advance in the
//! server, the flush of its commit, the answer's way to the worker, and the way to the job: by hand-over, or through
//! the queue and a claim. It begins before the commit, by the length of the advance: the p50 is larger than from the
//! commit on, and p99/p50 may be a little smaller.

use std::time::Duration;

use pipeline::{Client, Worker};
use sqlx::PgPool;

use super::{Rate, child, keep_starting, stamped};
use crate::frame::{ChildArguments, Measured, Report, Result, Server, percentile, table};
use crate::peers::ours::{Working, until_all_ended};
use crate::peers::payload::CHAIN_STEPS;

/// Options of `bench -- steady`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    rate: Rate,
    /// How long the load lasts.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

const SLOTS: u32 = 1_000;
const CONNECTIONS: u32 = 10;
/// Steps of runs from the beginning of the load are not counted: caches are cold.
const WARM_UP: Duration = Duration::from_secs(2);
const WAITS: &str = "waits_ms";

pub(crate) async fn run(options: Options) -> Result<()> {
    let mut server = Server::start().await?;
    let rate = options.rate.per_second(&mut server).await?;
    let head = ["round", "steps", "p50", "p90", "p99", "most", "p99/p50"];
    let mut rows = vec![head.map(str::to_owned)];
    let (mut p50s, mut spreads) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        let scratch = server.scratch("steady").await?;
        let child = child("steady", rate, options.seconds, server.url(&scratch));
        let (measured, _) = server.count(&scratch, &child).await?;
        server.remove(&scratch).await?;
        let waits = measured.series(WAITS);
        let at = |part| percentile(waits, part);
        let spread = at(0.99) / at(0.5);
        rows.push([
            round.to_string(),
            waits.len().to_string(),
            format!("{:.2}", at(0.5)),
            format!("{:.2}", at(0.9)),
            format!("{:.2}", at(0.99)),
            format!("{:.2}", at(1.0)),
            format!("{spread:.2}"),
        ]);
        p50s.push(at(0.5));
        spreads.push(spread);
    }
    println!(
        "From the end of the upstream step to the start of perform, {rate} runs of {CHAIN_STEPS} steps started each \
         second for {} s, in ms\n{}\n",
        options.seconds,
        server.settings().await?
    );
    table(&rows);
    println!();
    let mut report = Report::default();
    report.ratio("steady/p99_p50", percentile(&spreads, 0.5));
    report.value("steady/p50_ms", percentile(&p50s, 0.5));
    report.value("steady/runs_per_s", rate as f64);
    report.close();
    Ok(())
}

/// In the child: client and worker in one process.
pub(super) async fn in_child(
    child: &ChildArguments,
    rate: u64,
    time: Duration,
) -> Result<Measured> {
    let pool = child.pool(CONNECTIONS).await?;
    jobs::migrate(&pool).await?;
    let working = Working::start(&pool, worker(&pool)).await?;
    let runs = keep_starting(&Client::new(pool.clone()), rate, time).await?;
    until_all_ended(&pool).await?;
    working.stop().await?;
    let waits = waits(&pool, runs).await?;
    pool.close().await;
    Ok(Measured {
        items: runs,
        seconds: time.as_secs_f64(),
        series: vec![(WAITS.to_owned(), waits)],
        ..Measured::default()
    })
}

pub(super) fn worker(pool: &PgPool) -> Worker {
    Worker::new(pool.clone())
        .register::<stamped::All>()
        .queue("default", SLOTS)
}

/// The time before each step that has an upstream, in milliseconds. Fails if not all steps have succeeded.
async fn waits(pool: &PgPool, runs: u64) -> Result<Vec<f64>> {
    let (all_runs, steps): (i64, i64) = sqlx::query_as(
        "select (select count(*) from pipeline.runs where status = 'succeeded'),
                (select count(*) from pipeline.steps where status = 'succeeded')",
    )
    .fetch_one(pool)
    .await?;
    let expected = (runs.cast_signed(), (runs * CHAIN_STEPS).cast_signed());
    if (all_runs, steps) != expected {
        return Err(format!(
            "runs and steps that succeeded: {:?} instead of {expected:?}",
            (all_runs, steps)
        )
        .into());
    }
    Ok(sqlx::query_scalar(
        "select (down.output::text::bigint - extract(epoch from up.ended_at) * 1000000)::float8 / 1000
         from pipeline.runs r
         join pipeline.steps down on down.run = r.id
         join pipeline.steps up on up.run = r.id and up.no = down.no - 1
         where r.created_at >= (select min(created_at) from pipeline.runs) + $1 * interval '1 s'",
    )
    .bind(WARM_UP.as_secs_f64())
    .fetch_all(pool)
    .await?)
}
