//! Jobs through one queue while a transaction elsewhere stays open.
//!
//! A repeatable-read transaction that has read the jobs table keeps every row version that is deleted or
//! replaced after it, so dead rows pile up in the queue. The bench runs no-op jobs through one worker
//! process twice: with such a transaction open from the first job to the last, and without one. Each
//! round has a database of its own. The child notes when each part of the jobs has been performed (see
//! [`child`]); the cost of a job must not grow with the dead rows behind it.

mod child;

use sqlx::{Connection as _, PgConnection};

use crate::frame::{ChildArguments, Measured, Report, Result, Server, table};
pub(crate) use child::measure;

/// Options of `bench -- horizon`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// How many jobs go through the queue in each round.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// How many of the first and of the last jobs are compared.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    part: u64,
    /// Enqueue all jobs before the worker starts, instead of page by page ahead of it.
    #[arg(long)]
    prefill: bool,
}

/// The series of a child that holds, for each part, when its last job was performed.
const PARTS: &str = "parts";

/// What a round came to.
struct Round {
    name: &'static str,
    /// Seconds for each part of the jobs.
    parts: Vec<f64>,
    /// Jobs that had not ended at the time limit.
    left: u64,
    /// Row versions in the queue at the end: live and dead.
    rows: i64,
}

impl Round {
    /// The time of the last part over the time of the first.
    fn last_first(&self) -> f64 {
        match self.parts[..] {
            [first, .., last] => last / first,
            _ => f64::NAN,
        }
    }

    fn seconds(&self) -> f64 {
        self.parts.iter().sum()
    }
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let (jobs, part) = (options.jobs, options.part);
    if jobs / part < 2 || !jobs.is_multiple_of(part) {
        return Err(format!(
            "--jobs {jobs} is not a multiple of --part {part}, twice or more: choose another part"
        )
        .into());
    }
    let mut server = Server::start().await?;
    let closed = round(&mut server, &options, "closed").await?;
    let open = round(&mut server, &options, "open").await?;
    println!(
        "{} no-op jobs through one queue, {}, with and without a transaction that stays open\n{}\n",
        options.jobs,
        if options.prefill {
            "all enqueued first"
        } else {
            "enqueued page by page ahead of the worker"
        },
        server.settings().await?
    );
    print(&options, &closed, &open);
    let mut report = Report::default();
    report.ratio("horizon/last_first", open.last_first());
    report.ratio("horizon/closed_last_first", closed.last_first());
    report.ratio("horizon/open_closed", open.seconds() / closed.seconds());
    report.count("horizon/not_ended", (open.left + closed.left) as usize);
    report.close();
    if open.left + closed.left > 0 {
        return Err(format!(
            "jobs that had not ended at the time limit: {} with the open transaction, {} without",
            open.left, closed.left
        )
        .into());
    }
    Ok(())
}

/// Runs all jobs in a database of their own.
async fn round(server: &mut Server, options: &Options, name: &'static str) -> Result<Round> {
    let scratch = server.scratch(name).await?;
    let url = server.url(&scratch);
    let child = |phase: &str| ChildArguments {
        items: options.jobs,
        phase: phase.to_owned(),
        ..ChildArguments::new("horizon", &options.part.to_string(), url.clone())
    };
    child("prepare").spawn().await?;
    let reader = match name {
        "open" => Some(open_transaction(&url).await?),
        _ => None,
    };
    if options.prefill {
        child("enqueue").spawn().await?;
    }
    let measured = child("run").spawn().await?;
    let rows = row_versions(&url).await?;
    if let Some(reader) = reader {
        reader.close().await?;
    }
    server.remove(&scratch).await?;
    Ok(Round {
        name,
        left: options.jobs - measured.items,
        parts: parts(&measured),
        rows,
    })
}

/// A session with a repeatable-read transaction that has read the jobs table.
async fn open_transaction(url: &str) -> Result<PgConnection> {
    let mut reader = PgConnection::connect(url).await?;
    sqlx::raw_sql("begin isolation level repeatable read; select count(*) from pipeline.jobs")
        .execute(&mut reader)
        .await?;
    Ok(reader)
}

/// How many row versions the queue holds by the statistics: live and dead ones.
async fn row_versions(url: &str) -> Result<i64> {
    let mut connection = PgConnection::connect(url).await?;
    let rows = sqlx::query_scalar(
        "select (coalesce(sum(n_live_tup + n_dead_tup), 0))::bigint
         from pg_stat_user_tables where schemaname = 'pipeline' and relname like 'jobs%'",
    )
    .fetch_one(&mut connection)
    .await?;
    connection.close().await?;
    Ok(rows)
}

/// Seconds for each part, from the moments at which they were over.
fn parts(measured: &Measured) -> Vec<f64> {
    let series = measured.series.iter().find(|(name, _)| name == PARTS);
    let moments = series.map_or(&[][..], |(_, moments)| moments);
    moments.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn print(options: &Options, closed: &Round, open: &Round) {
    let mut rows = vec![["jobs", "closed: s", "jobs/s", "open: s", "jobs/s"].map(str::to_owned)];
    for at in 0..closed.parts.len().max(open.parts.len()) {
        let cells = |round: &Round| match round.parts.get(at) {
            Some(seconds) => [
                format!("{seconds:.2}"),
                format!("{:.0}", options.part as f64 / seconds),
            ],
            None => ["n/a".to_owned(), "n/a".to_owned()],
        };
        let ([closed_s, closed_speed], [open_s, open_speed]) = (cells(closed), cells(open));
        let upto = (at as u64 + 1) * options.part;
        rows.push([
            format!("up to {upto}"),
            closed_s,
            closed_speed,
            open_s,
            open_speed,
        ]);
    }
    table(&rows);
    for round in [closed, open] {
        println!(
            "{}: {} row versions in the queue at the end",
            round.name, round.rows
        );
    }
    println!();
}
