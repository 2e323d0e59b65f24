//! A constant load: runs start at fixed times, whether those before have ended or not.
//!
//! The rate is half of what `single` reaches, which is measured first; or what the user says.

pub(crate) mod soak;
mod stamped;
pub(crate) mod steady;

use std::time::{Duration, Instant};

use pipeline::Client;
use tokio::task::JoinSet;

use crate::frame::{ChildArguments, Measured, Result, Server};
use crate::peers::payload::CHAIN_STEPS;

/// The part of the measured rate that the load is.
const PART: f64 = 0.5;
const BENCH: &str = "load";

/// How the load is chosen.
#[derive(clap::Args, Debug)]
pub(crate) struct Rate {
    /// Runs started each second, instead of half of what `single` reaches.
    #[arg(long)]
    rate: Option<u64>,
    /// How many runs `single` has, to measure its rate.
    #[arg(long, default_value_t = 1_000)]
    runs: u64,
}

impl Rate {
    /// Runs that are started each second.
    async fn per_second(&self, server: &mut Server) -> Result<u64> {
        if let Some(rate) = self.rate {
            return Ok(rate.max(1));
        }
        let [_, (measured, _)] = server
            .phases("peers.single", "ours", self.runs, ["prepare", "run"])
            .await?;
        let single = measured.items as f64 / CHAIN_STEPS as f64 / measured.seconds;
        println!("`single` reaches {single:.0} runs/s; the load is half of that.");
        Ok(((single * PART) as u64).max(1))
    }
}

/// In the child: `system` is what is measured, with the rate and the seconds.
pub(crate) async fn measure(child: &ChildArguments) -> Result<Measured> {
    let (name, numbers) = child.name_and_numbers()?;
    let number = |at: usize| numbers.get(at).copied().unwrap_or(1) as u64;
    let (rate, time) = (number(0), Duration::from_secs(number(1)));
    match name {
        "steady" => steady::in_child(child, rate, time).await,
        "soak" => soak::in_child(child, rate, time).await,
        other => Err(format!("no load is called `{other}`").into()),
    }
}

fn child(what: &str, rate: u64, seconds: u64, url: String) -> ChildArguments {
    ChildArguments::new(BENCH, &format!("{what}:{rate}:{seconds}"), url)
}

/// Starts `rate` runs a second, each by a call of its own, and returns how many were started. A late start is made at
/// once: the load does not shrink when the system is slow.
async fn keep_starting(client: &Client, rate: u64, time: Duration) -> Result<u64> {
    let runs = rate * time.as_secs();
    let began = Instant::now();
    let mut starts = JoinSet::new();
    for number in 0..runs {
        let due = began + Duration::from_secs_f64(number as f64 / rate as f64);
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            tokio::time::sleep(early).await;
        }
        let client = client.clone();
        starts.spawn(async move { client.start(stamped::chain()?).await.map(|_| ()) });
        while let Some(started) = starts.try_join_next() {
            started??;
        }
    }
    while let Some(started) = starts.join_next().await {
        started??;
    }
    Ok(runs)
}
