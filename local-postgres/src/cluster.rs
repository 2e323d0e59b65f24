//! A private cluster: started by its first user, stopped after its last.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::account::Account;
use crate::error::At as _;
use crate::place::Place;
use crate::postmaster::Postmaster;
use crate::{Programs, Result};

/// Whether a cluster keeps committed data over a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// `fsync = off`: commits survive a killed process, but not a power failure. For demos and tests.
    Scratch,
    /// The defaults of Postgres. For measurements.
    Durable,
}

/// One user's hold on a running private cluster.
///
/// When the last user of a cluster drops it, the server is stopped.
#[derive(Debug)]
pub struct Cluster {
    server: Postmaster,
    elsewhere: Option<String>,
    /// Whether the last user removes the cluster with all its files.
    temporary: bool,
    sockets: PathBuf,
    /// The shared lock of this user.
    users: Option<File>,
    watcher: Option<Child>,
}

impl Cluster {
    /// Joins the cluster that this user's processes share, and starts it if it is not running.
    pub fn shared() -> Result<Self> {
        Self::join(Durability::Scratch, None)
    }

    /// Joins a cluster that goes away, data and all, when the last of its users leaves. Processes
    /// that give the same name and number share it; the number is the id of the process it is for.
    pub fn temporary(name: &str, process: u32, durability: Durability) -> Result<Self> {
        Self::join(durability, Some(format!("{name}-{process}")))
    }

    fn join(durability: Durability, temporary: Option<String>) -> Result<Self> {
        let account = Account::current()?;
        let place = Place::choose(&account)?;
        let programs = Programs::find_for(&account, &place.downloads())?;
        let mut name = format!("{}-{}", account.asker, programs.major());
        if let Some(suffix) = &temporary {
            remove_abandoned(&place.folder, &format!("{name}-"));
            name = format!("{name}-{suffix}");
        }
        let mut cluster = Self {
            server: Postmaster {
                folder: place.folder.join(name),
                account,
                programs,
                durability,
            },
            elsewhere: place.elsewhere,
            temporary: temporary.is_some(),
            sockets: PathBuf::new(),
            users: None,
            watcher: None,
        };
        let _starting = cluster.make_and_lock()?;
        cluster.users = Some(cluster.enter()?);
        cluster.sockets = match cluster.server.running() {
            Some(sockets) => sockets,
            None => cluster.server.initialise_and_start()?,
        };
        cluster.watcher = Some(cluster.watch()?);
        Ok(cluster)
    }

    /// Returns the folder of the server's socket, which clients use as host.
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// Returns the server's data folder.
    pub fn data(&self) -> PathBuf {
        self.server.data()
    }

    /// Returns the server's log file.
    pub fn log(&self) -> PathBuf {
        self.server.log()
    }

    /// Returns why the cluster is not in the checkout, if it is not.
    pub fn elsewhere(&self) -> Option<&str> {
        self.elsewhere.as_deref()
    }

    /// Returns the durability that the cluster was started with.
    pub fn durability(&self) -> Durability {
        self.server.durability
    }

    /// Stops the server as a crash would, without a checkpoint, and starts it again at the same
    /// address. For chaos.
    pub fn crash_and_restart(&mut self) -> Result<()> {
        let _starting = self.lock_start()?;
        self.server.crash_and_restart()
    }

    /// Creates the folder and takes its lock; repeats both if the folder was removed meanwhile.
    fn make_and_lock(&self) -> Result<File> {
        loop {
            self.server.account.make_folder(&self.server.folder)?;
            for file in ["start.lock", "users.lock", "watcher.lock", "watcher.pid"] {
                make_file(&self.server.account, &self.server.folder.join(file))?;
            }
            let locked = self.lock_start()?;
            let path = self.server.folder.join("start.lock");
            let held = locked.metadata().at("look at", &path)?.ino();
            if fs::metadata(&path).is_ok_and(|found| found.ino() == held) {
                return Ok(locked);
            }
        }
    }

    fn lock_start(&self) -> Result<File> {
        let path = self.server.folder.join("start.lock");
        let file = File::open(&path).at("open", &path)?;
        file.lock().at("lock", &path)?;
        Ok(file)
    }

    fn enter(&self) -> Result<File> {
        let path = self.server.folder.join("users.lock");
        let file = File::open(&path).at("open", &path)?;
        file.lock_shared().at("lock", &path)?;
        Ok(file)
    }

    /// Starts the watcher: the process that stops the server when its users were killed. If another watcher
    /// runs, the new one ends.
    fn watch(&self) -> Result<Child> {
        self.server
            .account
            .command("/bin/sh", &self.server.folder)
            .args([
                "-c",
                include_str!("watcher.sh"),
                "pipeline-postgres-watcher",
            ])
            .arg(&self.server.folder)
            .arg(self.server.programs.program("pg_ctl"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .at("start the watcher of", &self.server.folder)
    }

    /// Leaves the cluster; the last user stops the server and the watcher.
    fn leave(&mut self) -> Result<()> {
        let _starting = self.lock_start()?;
        self.users = None;
        let path = self.server.folder.join("users.lock");
        let users = File::open(&path).at("open", &path)?;
        if users.try_lock().is_err() {
            return Ok(());
        }
        if self.server.recorded_sockets().is_some() {
            self.server.stop()?;
        }
        self.end_watcher();
        if self.temporary {
            fs::remove_dir_all(&self.server.folder).at("remove", &self.server.folder)?;
        }
        Ok(())
    }

    fn end_watcher(&mut self) {
        let path = self.server.folder.join("watcher.lock");
        for _ in 0..100 {
            let free = File::open(&path).is_ok_and(|file| file.try_lock().is_ok());
            if free {
                break;
            }
            // The lock is held, so the pid is a living watcher's: the leader of its own group.
            if let Some(pid) = fs::read_to_string(self.server.folder.join("watcher.pid"))
                .ok()
                .and_then(|text| Pid::from_raw(text.trim().parse().ok()?))
            {
                let _ = rustix::process::kill_process_group(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(mut child) = self.watcher.take() {
            // The child has ended, or was not the one that watches, and ends by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.leave() {
            eprintln!("The private Postgres was not stopped, its watcher will do it: {error}");
        }
    }
}

fn make_file(account: &Account, path: &Path) -> Result<()> {
    let made = File::options().create(true).append(true).open(path);
    made.at("create", path)?;
    account.give(path, 0o600)
}

/// Removes the temporary clusters whose users were all killed: their locks are free, and the process in their
/// name, which might still take the lock, has ended.
fn remove_abandoned(parent: &Path, prefix: &str) {
    let free = |path: PathBuf| File::open(path).is_ok_and(|file| file.try_lock().is_ok());
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name
            .to_string_lossy()
            .strip_prefix(prefix)
            .and_then(|rest| Pid::from_raw(rest.rsplit_once('-')?.1.parse().ok()?));
        let folder = entry.path();
        if process.is_some_and(|pid| rustix::process::test_kill_process(pid).is_err())
            && free(folder.join("users.lock"))
            && free(folder.join("watcher.lock"))
        {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}
