//! Whether tables and indexes stop growing under a constant load, with old runs pruned as a user would.

use std::time::{Duration, Instant};

use pipeline::Client;
use sqlx::PgPool;

use super::{Rate, child, keep_starting, steady};
use crate::frame::{ChildArguments, Measured, Report, Result, Server};
use crate::peers::ours::{Working, until_all_ended};

/// Options of `bench -- soak`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    rate: Rate,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..))]
    minutes: u64,
}

const CONNECTIONS: u32 = 10;
/// How old runs are that are pruned, and how often that is done.
const AGE: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);
/// Tables that stay smaller than this are not printed.
const SMALL_MB: f64 = 0.2;
const TOTAL: &str = "all";

pub(crate) async fn run(options: Options) -> Result<()> {
    let mut server = Server::start().await?;
    let rate = options.rate.per_second(&mut server).await?;
    let scratch = server.scratch("soak").await?;
    let child = child("soak", rate, options.minutes * 60, server.url(&scratch));
    let (measured, _) = server.count(&scratch, &child).await?;
    server.remove(&scratch).await?;
    println!(
        "{rate} runs started each second for {} minutes, runs older than {AGE:?} pruned every {AGE:?}; MB of each \
         table with its indexes at the end of each minute\n{}\n",
        options.minutes,
        server.settings().await?
    );
    for (table, sizes) in &measured.series {
        if sizes.iter().all(|mb| *mb < SMALL_MB) {
            continue;
        }
        let sizes: Vec<String> = sizes.iter().map(|mb| format!("{mb:>8.1}")).collect();
        println!("{table:<14}{}", sizes.join(""));
    }
    println!();
    let sizes = measured.series(TOTAL);
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else {
        return Err("no size was measured".into());
    };
    let mut report = Report::default();
    report.ratio("soak/size_last_first", last / first);
    report.value("soak/runs_per_s", rate as f64);
    report.close();
    Ok(())
}

/// In the child: client, worker, pruning and measuring in one process.
pub(super) async fn in_child(
    child: &ChildArguments,
    rate: u64,
    time: Duration,
) -> Result<Measured> {
    let pool = child.pool(CONNECTIONS).await?;
    jobs::migrate(&pool).await?;
    let working = Working::start(&pool, steady::worker(&pool)).await?;
    let client = Client::new(pool.clone());
    let minutes = time.as_secs() / MINUTE.as_secs();
    let pruning = tokio::spawn(prune(client.clone()));
    let measuring = tokio::spawn(measure_sizes(pool.clone(), minutes));
    let runs = keep_starting(&client, rate, time).await?;
    let series = measuring.await??;
    pruning.abort();
    until_all_ended(&pool).await?;
    working.stop().await?;
    check(&pool).await?;
    pool.close().await;
    Ok(Measured {
        items: runs,
        seconds: time.as_secs_f64(),
        series,
        ..Measured::default()
    })
}

async fn prune(client: Client) -> pipeline::Result<()> {
    loop {
        tokio::time::sleep(AGE).await;
        client.prune_runs(AGE).await?;
    }
}

/// The sizes of all tables at the end of each minute, in MB, and of all together.
async fn measure_sizes(pool: PgPool, minutes: u64) -> Result<Vec<(String, Vec<f64>)>, sqlx::Error> {
    let began = Instant::now();
    let mut series: Vec<(String, Vec<f64>)> = Vec::new();
    for minute in 1..=minutes {
        let due = began + MINUTE * u32::try_from(minute).unwrap_or(u32::MAX);
        tokio::time::sleep(due.saturating_duration_since(Instant::now())).await;
        let mut sizes: Vec<(String, f64)> = sqlx::query_as(
            "select c.relname::text, pg_total_relation_size(c.oid)::float8 / 1000000
             from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname = 'pipeline' and c.relkind = 'r' order by c.relname",
        )
        .fetch_all(&pool)
        .await?;
        let all = sizes.iter().map(|(_, size)| size).sum();
        sizes.push((TOTAL.to_owned(), all));
        eprintln!("minute {minute}: {all:.1} MB");
        for (table, size) in sizes {
            match series.iter_mut().find(|(it, _)| *it == table) {
                Some((_, sizes)) => sizes.push(size),
                None => series.push((table, vec![size])),
            }
        }
    }
    Ok(series)
}

/// Checks that no run failed and that old ones were pruned.
async fn check(pool: &PgPool) -> Result<()> {
    let (others, old): (i64, i64) = sqlx::query_as(
        "select count(*) filter (where status <> 'succeeded'),
                count(*) filter (where ended_at < now() - $1 * interval '1 s')
         from pipeline.runs",
    )
    .bind((6 * AGE).as_secs_f64())
    .fetch_one(pool)
    .await?;
    if (others, old) != (0, 0) {
        return Err(format!(
            "{others} runs did not succeed, {old} are much older than {AGE:?} and were not pruned"
        )
        .into());
    }
    Ok(())
}
