//! The systems that the bench measures us beside.
//!
//! `bench -- peers` and `bench -- jobs` build this program, and start it once for each system, workload and phase.
//! It has a workspace of its own, so that neither tests nor clippy of ours build the peers.

mod apalis_poll;
mod apalis_postgres;
mod apalis_workflow;
mod dbos;
mod ends;
mod graphile_worker;
mod underway;

#[path = "../../src/peers/drive.rs"]
mod drive;
#[path = "../../src/peers/floor.rs"]
mod floor;
#[path = "../../src/peers/payload.rs"]
mod payload;
#[path = "../../src/throughput/performed.rs"]
mod performed;
#[path = "../../src/frame/protocol.rs"]
#[allow(dead_code, reason = "what only the parent uses")]
mod protocol;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use protocol::{ChildArguments, Measured, answer};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// What one phase took, and what it measured besides.
#[derive(Default)]
struct Took {
    items: u64,
    time: Duration,
    series: Vec<(String, Vec<f64>)>,
    settings: String,
}

#[derive(Parser)]
#[command(name = "peers")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// One phase of one system under one workload, in the process that the bench starts for it.
    Child(ChildArguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Command::Child(child) = Arguments::parse().command;
    match measure(&child).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}/{}: {error}", child.bench, child.system);
            ExitCode::FAILURE
        }
    }
}

async fn measure(child: &ChildArguments) -> Result<()> {
    let (name, numbers) = child.name_and_numbers()?;
    let took = match name {
        "apalis-postgres" => apalis_postgres::measure(child, &numbers).await?,
        "apalis-workflow" => apalis_workflow::measure(child, &numbers).await?,
        "dbos" => dbos::measure(child, &numbers).await?,
        "graphile_worker" => graphile_worker::measure(child, &numbers).await?,
        "underway" => underway::measure(child, &numbers).await?,
        other => return Err(format!("no system is called `{other}`").into()),
    };
    answer(&Measured {
        items: took.items,
        seconds: took.time.as_secs_f64(),
        series: took.series,
        settings: took.settings,
        peak_kib: None,
    })
}

/// The error for a workload or a phase that a system has not.
fn unknown<T>(child: &ChildArguments) -> Result<T> {
    Err(format!(
        "`{}` has no phase `{}` of `{}`",
        child.system, child.phase, child.bench
    )
    .into())
}
