//! Real processes, for behaviour that one process cannot show.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;

use rustix::process::{Pid, Signal, kill_process};
use tests::{EVENT_TIMEOUT, block_until, eventually};

/// The program `tests/src/bin/helper.rs`.
pub(crate) fn helper(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_helper"));
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// A helper that has printed its first line and keeps running; killed when dropped.
pub(crate) struct Staying {
    child: Child,
    pub(crate) said: String,
}

impl Staying {
    pub(crate) fn spawn(arguments: &[&str]) -> Self {
        let mut child = helper(arguments).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let mut helper = Self {
            child,
            said: String::new(),
        };
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).unwrap();
            tell.send(line)
        });
        let line = told.recv_timeout(EVENT_TIMEOUT).unwrap();
        assert!(!line.is_empty(), "the helper ended at once");
        line.trim().clone_into(&mut helper.said);
        helper
    }

    /// Lets the helper end by itself.
    pub(crate) fn finish(mut self) {
        drop(self.child.stdin.take());
        let mut status = None;
        block_until(|| {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success());
    }

    /// Starts a worker with this name, on one queue with this many slots.
    pub(crate) fn worker(url: &str, name: &str, queue: &str, slots: u32) -> Self {
        Self::spawn(&["worker", url, name, queue, &slots.to_string()])
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the helper has ended by itself.
    pub(crate) async fn wait(mut self) -> ExitStatus {
        eventually("the helper ends", async || self.child.try_wait().unwrap()).await
    }

    /// Kills the helper with SIGKILL.
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
