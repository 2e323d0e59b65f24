//! The process that a system is measured in.

use std::process::Stdio;

use tokio::process::{Child, Command};

use super::{ChildArguments, Measured, Result};

impl ChildArguments {
    pub(crate) fn new(bench: &str, system: &str, url: String) -> Self {
        Self {
            bench: bench.to_owned(),
            system: system.to_owned(),
            url,
            phase: "run".to_owned(),
            items: 0,
            log: None,
            program: None,
        }
    }

    /// The child, ready to be started. It goes when its parent does.
    pub(crate) fn command(&self) -> Result<Command> {
        let program = match &self.program {
            Some(program) => program.clone(),
            None => std::env::current_exe()?,
        };
        let mut command = Command::new(program);
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
        let child = self
            .command()?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        self.measured(child).await
    }

    /// Starts a child that works until [`Background::stop`].
    pub(crate) fn start(&self) -> Result<Background> {
        let child = self
            .command()?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Background {
            arguments: self.clone(),
            child,
        })
    }

    async fn measured(&self, child: Child) -> Result<Measured> {
        let output = child.wait_with_output().await?;
        if !output.status.success() {
            return Err(format!("{}/{} failed: {}", self.bench, self.system, output.status).into());
        }
        let said = String::from_utf8(output.stdout)?;
        let last = said.lines().last().ok_or("the child said nothing")?;
        Ok(serde_json::from_str(last)?)
    }
}

/// A child that works until it is stopped; in the child, [`stopped`] waits for that.
pub(crate) struct Background {
    arguments: ChildArguments,
    child: Child,
}

impl Background {
    /// Closes the child's input, waits for its end, and hears what it measured.
    pub(crate) async fn stop(mut self) -> Result<Measured> {
        drop(self.child.stdin.take());
        self.arguments.measured(self.child).await
    }
}

/// In a child that works in the background: waits until its parent stops it, or is no more.
pub(crate) async fn stopped() {
    use tokio::io::AsyncReadExt as _;
    let _ = tokio::io::stdin().read(&mut [0]).await;
}
