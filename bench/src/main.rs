//! Benchmarks of this system and of its peers, measured in one run on one server.
//!
//! `cargo run --release -p bench -- <name>` starts a server of its own with durable defaults, runs
//! each system under measure in a child process of its own, prints a table for people, and ends
//! with lines of three fields for programs: `ratio <name> <number>` or `value <name> <number>`.
//! Times on a shared machine mean little; compare the ratios.

mod chain;
mod chaos;
mod floor;
mod frame;
mod graphs;
mod growth;
mod horizon;
mod load;
mod peers;
mod pickup;
mod processes;
mod throughput;
mod validate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use frame::Result;

/// Benchmarks of this system and of its peers.
#[derive(Parser)]
#[command(name = "bench")]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// What the server itself costs: a round trip, a commit, a row in a group of 100.
    Floor,
    /// Jobs that do nothing, from the queue to their end: ours beside apalis-postgres and
    /// graphile_worker.
    Jobs(throughput::Options),
    /// Runs of a chain of no-op steps: ours beside the set-based reference.
    Chain(chain::Options),
    /// Whether nothing is lost and nothing done twice, whatever is killed.
    #[command(subcommand)]
    Chaos(chaos::Chaos),
    /// What a step costs in runs of 10 to 10,000 steps, and beside a million finished ones.
    Growth(growth::Options),
    /// Jobs through a queue while a transaction elsewhere stays open: the last against the first.
    Horizon(horizon::Options),
    /// How long a job waits for an idle worker, and what an idle worker costs.
    Pickup(pickup::Options),
    /// Ours, the peers and the reference side by side, under all workloads.
    Peers(peers::Options),
    /// The bulk chain with 1 to 16 worker processes that share 1,000 slots.
    Processes(processes::Options),
    /// Whether tables and indexes stop growing under a constant load.
    Soak(load::soak::Options),
    /// How evenly steps follow each other under a constant load.
    Steady(load::steady::Options),
    /// Validating and compiling a graph: a step of 100,000 against a step of 1,000. No server.
    Validate,
    /// One system under measure, in the process that the frame starts for it.
    #[command(hide = true)]
    Child(frame::ChildArguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Arguments::parse().bench {
        Bench::Floor => floor::run().await,
        Bench::Jobs(options) => throughput::run(options).await,
        Bench::Chain(options) => chain::run(options).await,
        Bench::Chaos(chaos) => chaos::run(chaos).await,
        Bench::Growth(options) => growth::run(options).await,
        Bench::Horizon(options) => horizon::run(options).await,
        Bench::Pickup(options) => pickup::run(options).await,
        Bench::Peers(options) => peers::run(options).await,
        Bench::Processes(options) => processes::run(options).await,
        Bench::Soak(options) => load::soak::run(options).await,
        Bench::Steady(options) => load::steady::run(options).await,
        Bench::Validate => validate::run(),
        Bench::Child(child) => in_child(child).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn in_child(child: frame::ChildArguments) -> Result<()> {
    let measured = match child.bench.as_str() {
        "floor" => {
            let pool = child.pool(4).await?;
            let measured = floor::measure(&child.system, &pool).await?;
            pool.close().await;
            measured
        }
        "chain" => chain::measure(&child).await?,
        "chaos" => return chaos::work(&child).await,
        "growth" => growth::measure(&child).await?,
        "horizon" => horizon::measure(&child).await?,
        "pickup" => pickup::measure(&child).await?,
        "load" => load::measure(&child).await?,
        bench if bench.starts_with("peers.") => peers::measure(&child).await?,
        "processes" => processes::measure(&child).await?,
        "jobs" => throughput::measure(&child).await?,
        other => return Err(format!("no bench is called `{other}`").into()),
    };
    frame::answer(&measured)
}
