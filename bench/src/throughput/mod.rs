//! No-op jobs from the queue to their end in the database: ours and the peers'.
//!
//! Each round gives each system a database of its own and three children, one after the other: one
//! prepares the schema, one enqueues, one runs. The server's counters are read between them, so that
//! a job's cost is known with and without its enqueueing. The clock runs from the start of a worker
//! that is set up until the database says that all jobs have ended. It is asked only when all have
//! been performed: asking costs time too.

mod ours;
mod performed;

use std::path::Path;

use crate::frame::{ChildArguments, Counted, Measured, Report, Result, Server, median, table};
use crate::peers::program;
pub(crate) use performed::PERFORMED;

/// Options of `bench -- jobs`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// How many jobs each system is given in each round.
    #[arg(long, default_value_t = 20_000)]
    jobs: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Other systems than the usual ones: `ours:SLOTS`, `apalis-postgres:BATCH`,
    /// `graphile_worker:CONCURRENCY:SIZE:QUEUES`.
    #[arg(long, value_delimiter = ',')]
    systems: Option<Vec<String>>,
}

pub(crate) const OURS: &str = "ours:1000";
pub(crate) const OURS_100: &str = "ours:100";
pub(crate) const APALIS: &str = "apalis-postgres:500";
/// Tried: concurrency 16 to 1,000, sizes 500 to 20,000, one and two local queues. This one reached the
/// most on a quiet machine; on a busy one, one local queue does as well.
pub(crate) const GRAPHILE: &str = "graphile_worker:100:5000:2";
const SYSTEMS: [&str; 4] = [OURS, OURS_100, APALIS, GRAPHILE];

const HEAD: [&str; 11] = [
    "system (round)",
    "jobs/s",
    "tx/job",
    "statements/job",
    "WAL bytes/job",
    "enqueued/s",
    "tx, all",
    "statements, all",
    "WAL bytes, all",
    "peak MB",
    "peak MB, enqueue",
];

/// One system in one round.
pub(crate) struct Round {
    system: String,
    enqueued: (Measured, Counted),
    pub(crate) ran: (Measured, Counted),
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let systems = options
        .systems
        .unwrap_or_else(|| SYSTEMS.map(str::to_owned).to_vec());
    let peers = match systems.iter().all(|system| is_ours(system)) {
        true => None,
        false => Some(program::build().await?),
    };
    let mut server = Server::start().await?;
    let mut rounds: Vec<Round> = Vec::new();
    let mut rows = vec![HEAD.map(str::to_owned)];
    for round in 1..=options.rounds {
        for system in &systems {
            let it = measure_one(&mut server, peers.as_deref(), system, options.jobs).await?;
            rows.push(row(&it, round));
            rounds.push(it);
        }
    }
    println!(
        "{} no-op jobs: enqueued, then run until all have ended in the database\n{}",
        options.jobs,
        server.settings().await?
    );
    for it in rounds.iter().take(systems.len()) {
        println!("{}: {}", it.system, it.ran.0.settings);
    }
    println!("Columns up to `WAL bytes/job` are of the run alone; `all` is with the enqueueing.\n");
    table(&rows);
    println!();
    report(&rounds).close();
    Ok(())
}

/// One system, in a database of its own, from nothing to the last job's end.
pub(crate) async fn measure_one(
    server: &mut Server,
    peers: Option<&Path>,
    system: &str,
    jobs: u64,
) -> Result<Round> {
    let program = peers.filter(|_| !is_ours(system));
    let phases = ["prepare", "enqueue", "run"];
    let [_, enqueued, ran] = server
        .phases_of(program, "jobs", system, jobs, phases)
        .await?;
    Ok(Round {
        system: system.to_owned(),
        enqueued,
        ran,
    })
}

fn row(it: &Round, round: usize) -> [String; 11] {
    let jobs = it.ran.0.items as f64;
    let all = it.ran.1.and(it.enqueued.1);
    let each = |count: i64| count as f64 / jobs;
    let statements = |of: &Counted| {
        of.statements
            .map_or("n/a".to_owned(), |n| format!("{:.4}", each(n)))
    };
    [
        format!("{} ({round})", it.system),
        format!("{:.0}", jobs / it.ran.0.seconds),
        format!("{:.4}", each(it.ran.1.transactions)),
        statements(&it.ran.1),
        format!("{:.0}", each(it.ran.1.wal_bytes)),
        format!("{:.0}", jobs / it.enqueued.0.seconds),
        format!("{:.4}", each(all.transactions)),
        statements(&all),
        format!("{:.0}", each(all.wal_bytes)),
        peak_mb(&it.ran.0).map_or("n/a".to_owned(), |mb| format!("{mb:.1}")),
        peak_mb(&it.enqueued.0).map_or("n/a".to_owned(), |mb| format!("{mb:.1}")),
    ]
}

fn peak_mb(measured: &Measured) -> Option<f64> {
    Some(measured.peak_kib? as f64 / 1024.0)
}

fn report(rounds: &[Round]) -> Report {
    let mut report = Report::default();
    let of = |system: &'static str| rounds.iter().filter(move |it| it.system == system);
    let speed = |system| {
        let speeds: Vec<f64> = of(system)
            .map(|it| it.ran.0.items as f64 / it.ran.0.seconds)
            .collect();
        (!speeds.is_empty()).then(|| median(speeds))
    };
    for (name, peer) in [
        ("jobs/apalis-postgres", APALIS),
        ("jobs/graphile_worker", GRAPHILE),
    ] {
        if let (Some(ours), Some(theirs)) = (speed(OURS), speed(peer)) {
            report.ratio(name, ours / theirs);
        }
    }
    // The most that any of our processes has used, whichever it was.
    let peaks = of(OURS).flat_map(|it| [peak_mb(&it.ran.0), peak_mb(&it.enqueued.0)]);
    if let Some(peak) = peaks.flatten().reduce(f64::max) {
        report.value("jobs/peak_rss_mb", peak);
    }
    report
}

/// Whether this program measures the system; otherwise the program of the peers does.
fn is_ours(system: &str) -> bool {
    system.split(':').next() == Some("ours")
}

/// In the child: one phase of our own jobs.
pub(crate) async fn measure(child: &ChildArguments) -> Result<Measured> {
    let (name, numbers) = child.name_and_numbers()?;
    let pool = child.pool(CONNECTIONS).await?;
    let jobs = child.items;
    let took = match (name, child.phase.as_str()) {
        ("ours", "prepare") => ours::prepare(&pool).await?,
        ("ours", "enqueue") => ours::enqueue(&pool, jobs).await?,
        ("ours", "run") => ours::run(&pool, jobs, &numbers).await?,
        (name, phase) => return Err(format!("no system `{name}` has a phase `{phase}`").into()),
    };
    if child.phase == "run" {
        PERFORMED.check(jobs)?;
    }
    pool.close().await;
    Ok(Measured {
        items: jobs,
        seconds: took.as_secs_f64(),
        settings: ours::settings(&numbers),
        ..Measured::default()
    })
}

/// Connections for each system; it opens as many as it needs.
const CONNECTIONS: u32 = 10;
