//! Runs of a chain of no-op steps, from the first start to the last end, beside a reference.
//!
//! Each round gives each system a database of its own and two children, one after the other: one
//! prepares the schema, one starts the runs and sees them through. The clock and the server's counters
//! take in the starting: a step costs what it costs to have one.

mod ours;
mod reference;

use crate::frame::{ChildArguments, Measured, Report, Result, Server, median};

/// What `bench -- chain` can be told.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// How many runs each system is given in each round.
    #[arg(long, default_value_t = 2_000)]
    runs: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Steps in each run, one after the other.
const STEPS: u32 = 5;
/// Connections for each system.
const CONNECTIONS: u32 = 4;

const OURS: &str = "ours";
const REFERENCE: &str = "reference";
/// What is said of how a system is set up.
type Settings = fn() -> String;
const SYSTEMS: [(&str, Settings); 2] = [(OURS, ours::settings), (REFERENCE, reference::settings)];

pub(crate) async fn run(options: Options) -> Result<()> {
    let mut server = Server::start().await?;
    let mut report = Report::default();
    let mut speeds: Vec<(&str, f64)> = Vec::new();
    let (mut transactions, mut wal_bytes) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        for (system, _) in SYSTEMS {
            let [_, (measured, counted)] = server
                .phases("chain", system, options.runs, ["prepare", "run"])
                .await?;
            report.row(&format!("{system} ({round})"), &measured, &counted);
            speeds.push((system, measured.items as f64 / measured.seconds));
            if system == OURS {
                let each = |count: i64| count as f64 / measured.items as f64;
                transactions.push(each(counted.transactions));
                wal_bytes.push(each(counted.wal_bytes));
            }
        }
    }
    let speed = |system: &str| {
        let of_it = speeds.iter().filter(|(it, _)| *it == system);
        median(of_it.map(|(_, speed)| *speed).collect())
    };
    report.ratio("chain/reference", speed(OURS) / speed(REFERENCE));
    report.value("chain/tx_per_step", median(transactions));
    report.value("chain/wal_bytes_per_step", median(wal_bytes));

    let mut settings = server.settings().await?;
    for (system, its) in SYSTEMS {
        settings += &format!("\n{system}: {}", its());
    }
    let title = format!(
        "{} runs of a chain of {STEPS} no-op steps: started, and advanced until all are over; an \
         item is a step",
        options.runs
    );
    report.print(&title, &settings);
    Ok(())
}

/// In the child: one phase of one system.
pub(crate) async fn measure(child: &ChildArguments) -> Result<Measured> {
    let pool = child.pool(CONNECTIONS).await?;
    let measured = match (child.system.as_str(), child.phase.as_str()) {
        (OURS, "prepare") => ours::prepare(&pool).await?,
        (OURS, "run") => ours::run(&pool, child.items).await?,
        (REFERENCE, "prepare") => reference::prepare(&pool).await?,
        (REFERENCE, "run") => reference::run(&pool, child.items).await?,
        (system, phase) => {
            return Err(format!("no system `{system}` has a phase `{phase}`").into());
        }
    };
    pool.close().await;
    Ok(measured)
}
