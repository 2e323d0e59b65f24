//! The process that a system is measured in.

use std::path::PathBuf;
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

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
}

impl ChildArguments {
    pub(crate) fn new(bench: &str, system: &str, url: String) -> Self {
        Self {
            bench: bench.to_owned(),
            system: system.to_owned(),
            url,
            phase: "run".to_owned(),
            items: 0,
            log: None,
        }
    }

    pub(crate) async fn pool(&self, connections: u32) -> Result<PgPool> {
        Ok(PgPoolOptions::new()
            .max_connections(connections)
            .connect(&self.url)
            .await?)
    }

    /// The child, ready to be started. It goes when its parent does.
    pub(crate) fn command(&self) -> Result<tokio::process::Command> {
        let mut command = tokio::process::Command::new(std::env::current_exe()?);
        command
            .args(["child", &self.bench, &self.system, &self.url])
            .args(["--phase", &self.phase])
            .args(["--items", &self.items.to_string()]);
        if let Some(log) = &self.log {
            command.arg("--log").arg(log);
        }
        command.kill_on_drop(true);
        Ok(command)
    }

    /// Runs the child to its end, and hears what it measured.
    pub(crate) async fn spawn(&self) -> Result<Measured> {
        let output = self
            .command()?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?
            .wait_with_output()
            .await?;
        if !output.status.success() {
            return Err(format!("{}/{} failed: {}", self.bench, self.system, output.status).into());
        }
        let said = String::from_utf8(output.stdout)?;
        let last = said.lines().last().ok_or("the child said nothing")?;
        Ok(serde_json::from_str(last)?)
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
