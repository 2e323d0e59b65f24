//! Real processes under load, and what is done to them: killed, stopped, cut off from Postgres.
//!
//! `jobs`: three workers run jobs of about 20 ms and write a line around each `perform` (see [`log`]). Shares
//! of the jobs are enqueued one by one, and a moment after each, in the middle of it, comes a blow.
//! When every job has ended, the workers' logs are compared with the database (see [`check`]).
//! `diamonds` and `chains` do the same to [`runs`]; [`postgres`] and [`held`] have jobs, runs and chains
//! side by side.

mod arena;
mod check;
mod crew;
mod held;
mod log;
mod naps;
mod postgres;
mod runs;
mod worker;

use std::time::{Duration, Instant};

use crate::frame::{ChildArguments, Report, Result};
use arena::Arena;

/// What `bench -- chaos` can be told.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Chaos {
    /// Workers are killed with SIGKILL and replaced; one is stopped beyond its leases and continued.
    Jobs {
        #[arg(long, default_value_t = 2_000)]
        jobs: u64,
        /// How many workers are killed, one about every second.
        #[arg(long, default_value_t = 15)]
        kills: u64,
    },
    /// Postgres is stopped in immediate mode and started again, under plain jobs, runs and chains.
    Postgres(postgres::Options),
    /// Rows are locked from outside, and worker processes are frozen inside a transaction: other work
    /// goes on.
    Held(held::Options),
    /// Runs of a source, ten steps and a join; one of two workers is killed with SIGKILL and replaced
    /// about every second, until all runs have ended.
    Diamonds {
        #[arg(long, default_value_t = 500)]
        runs: u64,
        /// How many workers are killed at least: the runs are started in as many shares.
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..))]
        kills: u64,
    },
    /// Runs of the same shape as `diamonds`, under workers that are stopped in good order, as a deployment does: a stop
    /// costs no attempt.
    Stops {
        #[arg(long, default_value_t = 500)]
        runs: u64,
        /// How many workers are stopped at least: the runs are started in as many shares.
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..))]
        stops: u64,
    },
    /// Chains of four runs, in which steps fail and callbacks fire; workers are killed as in `diamonds`.
    Chains {
        #[arg(long, default_value_t = 200)]
        chains: u64,
        /// How many workers are killed at least: the chains are started in as many shares.
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..))]
        kills: u64,
        /// Which steps fail, and what that means.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

/// The disturbance of a worker that has runs in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    /// SIGKILL.
    Kill,
    /// It is asked to stop, and waited for.
    Stop,
}

/// How long a worker stays stopped: longer than its leases.
const STOPPED: Duration = Duration::from_secs(3);
/// The lease of jobs and steps where workers are killed: short, so that others take over soon.
const LEASE: Duration = Duration::from_secs(2);
/// How long everything may take to end after the last blow.
const END_TIMEOUT: Duration = Duration::from_secs(90);

pub(crate) async fn run(chaos: Chaos) -> Result<()> {
    match chaos {
        Chaos::Jobs { jobs, kills } => kill_workers(jobs, kills).await,
        Chaos::Postgres(options) => postgres::run(options).await,
        Chaos::Held(options) => held::run(options).await,
        Chaos::Diamonds { runs, kills } => runs::diamonds(runs, kills, Blow::Kill).await,
        Chaos::Stops { runs, stops } => runs::diamonds(runs, stops, Blow::Stop).await,
        Chaos::Chains {
            chains,
            kills,
            seed,
        } => runs::chains(chains, kills, seed).await,
    }
}

/// In the child: one worker.
pub(crate) async fn work(child: &ChildArguments) -> Result<()> {
    if std::env::var_os(crew::MESSAGES).is_some() {
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::INFO)
            .with_writer(std::io::stderr)
            .init();
    }
    match child.system.as_str() {
        worker::JOBS => worker::work(child).await,
        runs::RUNS => runs::work(child).await,
        other => Err(format!("no worker is called `{other}`").into()),
    }
}

async fn kill_workers(jobs: u64, kills: u64) -> Result<()> {
    let mut arena = Arena::open().await?;
    let began = Instant::now();
    let mut stopped: Option<(usize, Instant)> = None;
    let mut was_stopped = false;
    for kill in 0..kills {
        let round = Instant::now();
        arena.enqueue(share(jobs, kill, kills)).await?;
        moment(50, 200).await;
        if !was_stopped {
            let at = arena.crew.any_worker(None);
            arena.crew.stop(at)?;
            // One that has nothing under way proves nothing.
            if arena.crew.under_way(at).await? > 0 {
                stopped = Some((at, Instant::now()));
                was_stopped = true;
            } else {
                arena.crew.go_on(at)?;
            }
        }
        let victim = arena.crew.any_worker(stopped.map(|(at, _)| at));
        arena.crew.kill_and_replace(victim).await?;
        tokio::time::sleep(Duration::from_secs(1).saturating_sub(round.elapsed())).await;
        if let Some((at, since)) = stopped
            && since.elapsed() >= STOPPED
        {
            arena.crew.go_on(at)?;
            stopped = None;
        }
    }
    if let Some((at, since)) = stopped {
        tokio::time::sleep(STOPPED.saturating_sub(since.elapsed())).await;
        arena.crew.go_on(at)?;
    }
    let stops = u64::from(was_stopped);
    let story = format!("{kills} workers killed, {stops} stopped for {STOPPED:?} and continued");
    let mut verdict = arena.close().await?;
    if !was_stopped || verdict.leases_lost == 0 {
        verdict.violations.push(UNTESTED.to_owned());
    }
    println!(
        "{story}, under three workers of {} slots, in {:.1} s",
        worker::SLOTS,
        began.elapsed().as_secs_f64()
    );
    println!("{}\n", verdict.summary);
    close("chaos/jobs", &verdict.violations)
}

/// How many violations are printed; all are counted.
const VIOLATIONS_SHOWN: usize = 50;
const UNTESTED: &str = "no blow has hit anything: nothing was put to the proof";

/// Prints the violations and their count.
fn close(name: &str, violations: &[String]) -> Result<()> {
    close_with(Report::default(), name, violations)
}

/// Prints the violations, the lines of the report so far, and the count of the violations.
fn close_with(mut report: Report, name: &str, violations: &[String]) -> Result<()> {
    for violation in violations.iter().take(VIOLATIONS_SHOWN) {
        println!("violation: {violation}");
    }
    if violations.len() > VIOLATIONS_SHOWN {
        println!(
            ".. and {} more violations",
            violations.len() - VIOLATIONS_SHOWN
        );
    }
    report.count(&format!("{name}/violations"), violations.len());
    report.close();
    if violations.is_empty() {
        Ok(())
    } else {
        Err(format!("{name}: {} violations", violations.len()).into())
    }
}

/// The jobs are enqueued in equal shares, the last of which takes the rest.
fn share(jobs: u64, at: u64, of: u64) -> u64 {
    jobs * (at + 1) / of - jobs * at / of
}

async fn moment(from_ms: u64, to_ms: u64) {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(from_ms..to_ms))).await;
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn the_shares_are_all_there_is() {
        assert_eq!((0..15).map(|at| share(2_000, at, 15)).sum::<u64>(), 2_000);
        assert_eq!(share(300, 0, 3), 100);
    }
}
