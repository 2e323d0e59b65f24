//! The server process of a data folder: created, started, stopped, recovered.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::account::Account;
use crate::error::At as _;
use crate::{Durability, Error, Programs, Result};

/// The server of one folder. The caller holds the folder's `start.lock`.
#[derive(Debug)]
pub(crate) struct Postmaster {
    pub(crate) account: Account,
    pub(crate) programs: Programs,
    pub(crate) folder: PathBuf,
    pub(crate) durability: Durability,
}

impl Postmaster {
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Returns the socket folder of the running server, if one runs. A pid file alone proves nothing: its owner may
    /// have been killed.
    pub(crate) fn running(&self) -> Option<PathBuf> {
        let sockets = self.recorded_sockets()?;
        UnixStream::connect(sockets.join(".s.PGSQL.5432")).ok()?;
        Some(sockets)
    }

    pub(crate) fn recorded_sockets(&self) -> Option<PathBuf> {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        let line = text.lines().nth(4)?.trim();
        (!line.is_empty()).then(|| PathBuf::from(line))
    }

    pub(crate) fn initialise_and_start(&self) -> Result<PathBuf> {
        if !self.data().is_dir() {
            self.initialise()?;
        }
        match self.start() {
            // Data that no server can open any more, after a crash of the machine, is moved aside: the cluster makes
            // no promise to keep it.
            Err(error) if self.durability == Durability::Scratch && !still_in_use(&error) => {
                let aside = self.folder.join("data.unusable");
                eprintln!(
                    "The private Postgres does not start with its old data; moving it to {} and \
                     starting afresh. {error}",
                    aside.display()
                );
                if aside.exists() {
                    fs::remove_dir_all(&aside).at("remove", &aside)?;
                }
                fs::rename(self.data(), &aside).at("move away", &self.data())?;
                self.initialise()?;
                self.start()
            }
            other => other,
        }
    }

    /// Creates the data in another folder and then moves it to its place, so that it is never found incomplete.
    fn initialise(&self) -> Result<()> {
        for entry in fs::read_dir(&self.folder)
            .at("read", &self.folder)?
            .flatten()
        {
            if entry.file_name().to_string_lossy().starts_with("data.new") {
                fs::remove_dir_all(entry.path()).at("remove", &entry.path())?;
            }
        }
        let fresh = self.folder.join(format!("data.new-{}", std::process::id()));
        let mut initdb = self
            .account
            .command(self.programs.program("initdb"), &self.folder);
        initdb
            .args([
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
            ])
            .arg("--no-instructions")
            .arg("--pgdata")
            .arg(&fresh);
        if self.durability == Durability::Scratch {
            initdb.arg("--no-sync");
        }
        self.run("initdb", &mut initdb)?;
        let configuration = fresh.join("postgresql.conf");
        let mut text = fs::read_to_string(&configuration).at("read", &configuration)?;
        text.push_str("\ninclude 'private.conf'\n");
        fs::write(&configuration, text).at("write", &configuration)?;
        fs::rename(&fresh, self.data()).at("create", &self.data())
    }

    pub(crate) fn start(&self) -> Result<PathBuf> {
        if let Some(left_behind) = self.recorded_sockets() {
            let _ = fs::remove_file(left_behind.join(".s.PGSQL.5432"));
            let _ = fs::remove_file(left_behind.join(".s.PGSQL.5432.lock"));
            let _ = fs::remove_dir(left_behind);
        }
        // In the temporary folder, because a socket's path may not be longer than about 100 bytes.
        let sockets = tempfile::Builder::new()
            .prefix("pipeline-pg-")
            .tempdir_in("/tmp")
            .at("create a folder in", Path::new("/tmp"))?
            .keep();
        self.account.give(&sockets, 0o700)?;
        self.configure(&sockets)?;
        self.rotate_log();
        match self.start_when_free() {
            Ok(()) => Ok(sockets),
            Err(error) => {
                let _ = fs::remove_dir(&sockets);
                Err(error)
            }
        }
    }

    /// Starts the server, and retries for a while: processes of a killed server may end later than the server, and
    /// Postgres refuses to start before they have.
    fn start_when_free(&self) -> Result<()> {
        let mut tries = 0;
        loop {
            let mut start = self.pg_ctl();
            start.arg("--log").arg(self.log());
            start.args(["--wait", "--timeout=120", "start"]);
            match self.run("pg_ctl start", &mut start) {
                Err(error) if still_in_use(&error) && tries < 100 => {
                    tries += 1;
                    self.forget_another_process();
                    std::thread::sleep(Duration::from_millis(100));
                }
                outcome => return outcome,
            }
        }
    }

    /// Removes a stale pid file: after a restart of the machine, its pid may belong to another program.
    fn forget_another_process(&self) {
        let path = self.data().join("postmaster.pid");
        let pid = fs::read_to_string(&path)
            .ok()
            .and_then(|text| text.lines().next()?.trim().parse::<u32>().ok());
        let Some(pid) = pid else { return };
        let told = Command::new("ps")
            .args(["-o", "comm=", "-p", &pid.to_string()])
            .output();
        if let Ok(output) = told
            && output.status.success()
            && !String::from_utf8_lossy(&output.stdout).contains("postgres")
        {
            let _ = fs::remove_file(&path);
        }
    }

    fn configure(&self, sockets: &Path) -> Result<()> {
        let quoted = |path: &Path| path.display().to_string().replace('\'', "''");
        let mut text = format!(
            "# Written at each start.\n\
             listen_addresses = ''\n\
             unix_socket_directories = '{}'\n\
             unix_socket_permissions = 0700\n\
             max_connections = 200\n\
             log_line_prefix = '%m [%p] %d '\n",
            quoted(sockets)
        );
        if self.programs.has_library("pg_stat_statements") {
            text.push_str("shared_preload_libraries = 'pg_stat_statements'\n");
        }
        if self.durability == Durability::Scratch {
            text.push_str("fsync = off\nsynchronous_commit = off\nfull_page_writes = off\n");
        }
        let path = self.data().join("private.conf");
        fs::write(&path, text).at("write", &path)?;
        self.account.give(&path, 0o600)
    }

    /// Truncates the log when it is too large; else it is kept from start to start.
    fn rotate_log(&self) {
        let log = self.log();
        if fs::metadata(&log).is_ok_and(|found| found.len() > 10_000_000) {
            let _ = fs::rename(&log, self.folder.join("log.1"));
        }
    }

    fn pg_ctl(&self) -> Command {
        let mut command = self
            .account
            .command(self.programs.program("pg_ctl"), &self.folder);
        command.arg("--pgdata").arg(self.data());
        command
    }

    pub(crate) fn stop(&self) -> Result<()> {
        let sockets = self.recorded_sockets();
        self.stop_in("fast")?;
        if let Some(sockets) = sockets {
            let _ = fs::remove_dir(sockets);
        }
        Ok(())
    }

    /// Stops the server as a crash would, and starts it again at the same address. Clients have to reconnect.
    pub(crate) fn crash_and_restart(&self) -> Result<()> {
        self.stop_in("immediate")?;
        self.start_when_free()
    }

    fn stop_in(&self, mode: &str) -> Result<()> {
        let mut stop = self.pg_ctl();
        stop.arg("--mode")
            .arg(mode)
            .args(["--wait", "--timeout=60", "stop"]);
        self.run("pg_ctl stop", &mut stop)
    }

    fn run(&self, name: &'static str, command: &mut Command) -> Result<()> {
        let program = command.get_program().to_owned();
        let output = command.output().at("run", Path::new(&program))?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        Err(Error::Program {
            program: name,
            status: output.status.to_string(),
            output: format!(
                "{}\n{}",
                last_lines(&String::from_utf8_lossy(&said), 10),
                last_lines(&log, 10)
            ),
            log: self.log(),
        })
    }
}

/// Whether Postgres refused because it saw another server on the same data.
fn still_in_use(error: &Error) -> bool {
    matches!(error, Error::Program { output, .. }
        if output.contains("lock file \"postmaster.pid\" already exists")
            || output.contains("pre-existing shared memory block"))
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
