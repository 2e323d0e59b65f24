//! Real processes, for what one process cannot show.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// The program `tests/src/bin/helper.rs`.
pub(crate) fn helper(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_helper"));
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// A helper that has said its first line and stays; killed when dropped.
pub(crate) struct Staying {
    child: Child,
    pub(crate) said: String,
}

impl Staying {
    pub(crate) fn spawn(arguments: &[&str]) -> Self {
        let mut child = helper(arguments).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut said)
            .unwrap();
        assert!(!said.is_empty(), "the helper ended at once");
        Self {
            child,
            said: said.trim().to_owned(),
        }
    }

    /// Ends it as it would end itself.
    pub(crate) fn finish(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    /// A worker of this name, on one queue with so many slots.
    pub(crate) fn worker(url: &str, name: &str, queue: &str, slots: u32) -> Self {
        Self::spawn(&["worker", url, name, queue, &slots.to_string()])
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits, without holding up the other tasks of the test, until it has ended by itself.
    pub(crate) async fn wait(mut self) -> ExitStatus {
        tokio::task::spawn_blocking(move || self.child.wait().unwrap())
            .await
            .unwrap()
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
