//! What the parent tells a child, and what the child answers.
//!
//! Two programs include this file: the bench itself, and the program of the peers (`bench/peers`).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sqlx::PgPool;

use super::Result;

/// What the parent tells its child.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ChildArguments {
    pub(crate) bench: String,
    pub(crate) system: String,
    pub(crate) url: String,
    /// Which part of the work is this child's; the parent counts each part for itself.
    #[arg(long, default_value = "run")]
    pub(crate) phase: String,
    /// How many there are of whatever the bench is about.
    #[arg(long, default_value_t = 0)]
    pub(crate) items: u64,
    /// Where to write down what happens.
    #[arg(long)]
    pub(crate) log: Option<PathBuf>,
    /// The program that is started; `None` stands for the program that starts it.
    #[arg(skip)]
    pub(crate) program: Option<PathBuf>,
}

/// What the child tells its parent: one line of JSON, the last thing it prints.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// What was done, as often as it was done.
    pub(crate) items: u64,
    /// In how long.
    pub(crate) seconds: f64,
    /// Single measurements, where there are such, by name.
    #[serde(default)]
    pub(crate) series: Vec<(String, Vec<f64>)>,
    /// The child's peak memory; the frame fills it in.
    #[serde(default)]
    pub(crate) peak_kib: Option<u64>,
    /// How the system was set up, for people.
    #[serde(default)]
    pub(crate) settings: String,
}

impl Measured {
    /// The series of this name; empty if the child has measured none.
    pub(crate) fn series(&self, name: &str) -> &[f64] {
        let found = self.series.iter().find(|(it, _)| it == name);
        found.map_or(&[], |(_, numbers)| numbers)
    }
}

impl ChildArguments {
    pub(crate) async fn pool(&self, connections: u32) -> Result<PgPool> {
        Ok(jobs::pool_options()
            .max_connections(connections)
            .connect(&self.url)
            .await?)
    }

    /// The system's name, and the numbers that it is set up with: `name:1:2`.
    pub(crate) fn name_and_numbers(&self) -> Result<(&str, Vec<usize>)> {
        let mut parts = self.system.split(':');
        let name = parts.next().unwrap_or_default();
        let numbers = parts.map(str::parse).collect::<Result<_, _>>()?;
        Ok((name, numbers))
    }
}

/// Called last in the child: by now it has used all the memory it ever will.
pub(crate) fn answer(measured: &Measured) -> Result<()> {
    let measured = Measured {
        peak_kib: peak_kib(),
        ..measured.clone()
    };
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// The kernel's own high-water mark of this process; only Linux tells.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
