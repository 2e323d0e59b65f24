//! Postgres is stopped in immediate mode and started again, under plain jobs, runs and chains.
//!
//! A share of the jobs, batches, diamonds and chains is started before each crash, so that the crash
//! comes in the middle of them. Steps and jobs write their lines to files (see [`log`](super::log)), which
//! tell afterwards whether two executions of one job overlapped although no lease was lost.

use std::time::Instant;

use super::naps::Naps;
use super::runs::record::{self, Tally};
use super::runs::{Chains, Diamonds, SLOTS, crew_of};
use super::worker::NAP;
use super::{END_TIMEOUT, LEASE, UNTESTED, close, moment, share};
use crate::frame::Result;

/// Options of `bench -- chaos postgres`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// How many plain jobs; a quarter of them in batches.
    #[arg(long, default_value_t = 2_000)]
    jobs: u64,
    /// How many diamonds.
    #[arg(long, default_value_t = 400)]
    runs: u64,
    /// How many chains of four runs with callbacks.
    #[arg(long, default_value_t = 80)]
    chains: u64,
    /// How often Postgres crashes.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    crashes: u64,
    /// Decides which steps of the chains fail.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const WORKERS: usize = 3;

pub(super) async fn run(options: Options) -> Result<()> {
    let mut crew = crew_of(WORKERS).await?;
    let mut naps = Naps::new(crew.pool(), LEASE);
    let mut diamonds = Diamonds::new(crew.pool(), LEASE);
    let mut chains = Chains::new(crew.pool(), LEASE, options.seed);
    let began = Instant::now();
    let mut under_load = 0;
    for crash in 0..options.crashes {
        let part = |of: u64| share(of, crash, options.crashes);
        let (jobs, batched) = (part(options.jobs), part(options.jobs / 4));
        naps.enqueue(jobs - batched, NAP).await?;
        naps.enqueue_batch(batched, NAP).await?;
        diamonds.start(part(options.runs)).await?;
        for _ in 0..part(options.chains) {
            chains.start().await?;
        }
        if crash % 2 == 1 {
            // Sequences that were written by a checkpoint stand at their last value after a crash.
            sqlx::raw_sql("checkpoint").execute(crew.pool()).await?;
        }
        moment(50, 300).await;
        under_load += u64::from(crew.busy().await?);
        crew.crash_and_restart()?;
        moment(1_000, 2_000).await;
    }
    let ended = crew.all_ended(END_TIMEOUT).await?;
    let took = began.elapsed().as_secs_f64();
    let mut violations = crew.dismiss().await?;
    if !ended {
        violations.push(format!(
            "not all has ended {END_TIMEOUT:?} after the last crash"
        ));
    }
    if under_load == 0 {
        violations.push(UNTESTED.to_owned());
    }

    let (pool, lines) = (crew.pool(), crew.lines()?);
    violations.extend(record::check(pool, &lines).await?);
    violations.extend(diamonds.check(pool).await?);
    violations.extend(chains.check(pool).await?);
    let verdict = naps.check(pool, &lines).await?;
    violations.extend(verdict.violations);
    println!(
        "Postgres stopped in immediate mode and started again {} times, {under_load} of them with work \
         under way, under {WORKERS} workers of {SLOTS} slots, in {took:.1} s",
        options.crashes
    );
    println!(
        "{} diamonds, {} chains of 4 runs ({})",
        options.runs,
        options.chains,
        chains.summary()
    );
    println!("plain jobs: {}", verdict.summary);
    println!("all: {}\n", Tally::of(pool).await?);
    pool.close().await;
    close("chaos/postgres", &violations)
}
