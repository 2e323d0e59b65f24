//! Our speed and our peers', measured in one run on one server.
//!
//! `cargo run --release -p bench -- <name>` starts a server of its own with durable defaults, runs
//! each system under measure in a child process of its own, prints a table for people, and ends
//! with lines of three fields for programs: `ratio <name> <number>` or `value <name> <number>`.
//! Times on a shared machine mean little; compare the ratios.

mod floor;
mod frame;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use frame::Result;

/// Measure.
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
    /// One system under measure, in the process that the frame starts for it.
    #[command(hide = true)]
    Child(frame::ChildArguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Arguments::parse().bench {
        Bench::Floor => floor::run().await,
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
    let pool = child.pool().await?;
    let measured = match child.bench.as_str() {
        "floor" => floor::measure(&child.system, &pool).await?,
        other => return Err(format!("no bench is called `{other}`").into()),
    };
    pool.close().await;
    frame::answer(&measured)
}
