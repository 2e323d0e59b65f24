//! A server with worker processes, and the disturbances of both.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use local_postgres::{Cluster, Durability, Server};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection, PgPool};
use tempfile::TempDir;
use tokio::process::Child;

use super::log::{self, Line};
use crate::frame::{ChildArguments, Result};

const DATABASE: &str = "chaos";
const CONNECTIONS: u32 = 8;
/// How long a worker process may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a worker process may take to stop when nothing delays it.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// The environment variable that names a folder for the log messages of the workers: a file for each process,
/// by its number. Without it, workers log nothing.
pub(super) const MESSAGES: &str = "PIPELINE_CHAOS_MESSAGES";
const ENDS: &str = include_str!("ends.sql");

pub(super) struct Crew {
    workers: Vec<Child>,
    /// The job types of the workers: see [`super::work`].
    system: &'static str,
    started: usize,
    logs: TempDir,
    pool: PgPool,
    server: Server,
}

impl Crew {
    /// Starts a migrated server without workers.
    pub(super) async fn new(system: &'static str) -> Result<Self> {
        let cluster = tokio::task::spawn_blocking(|| {
            Cluster::temporary("chaos", std::process::id(), Durability::Durable)
        })
        .await??;
        let server = Server::private(cluster)?;
        let pool = new_database(&server, DATABASE, "create database chaos").await?;
        sqlx::raw_sql(ENDS).execute(&pool).await?;
        Ok(Self {
            workers: Vec::new(),
            system,
            started: 0,
            logs: tempfile::tempdir()?,
            pool,
            server,
        })
    }

    /// Creates a second migrated database on the same server.
    pub(super) async fn second_database(&self) -> Result<PgPool> {
        new_database(&self.server, "second", "create database second").await
    }

    /// Starts this many workers, and waits until they run.
    pub(super) async fn start(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let worker = self.spawn()?;
            self.workers.push(worker);
        }
        for worker in &self.workers {
            self.at_work(worker).await?;
        }
        Ok(())
    }

    pub(super) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Opens a session.
    pub(super) async fn connect(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect_with(&self.server.options(DATABASE)).await?)
    }

    /// Returns any other worker.
    pub(super) fn any_worker(&self, but: Option<usize>) -> usize {
        loop {
            let at = fastrand::usize(..self.workers.len());
            if Some(at) != but {
                return at;
            }
        }
    }

    /// Returns how many jobs of a worker are running by the database's rows.
    pub(super) async fn under_way(&self, at: usize) -> Result<i64> {
        let pid = self.workers[at].id().map(u32::cast_signed);
        Ok(sqlx::query_scalar(
            "select count(*) from pipeline.jobs j join pipeline.workers w on w.id = j.worker
             where w.pid = $1 and j.status = 'running'",
        )
        .bind(pid)
        .fetch_one(&self.pool)
        .await?)
    }

    /// Whether any job or any run has not ended.
    pub(super) async fn busy(&self) -> Result<bool> {
        Ok(sqlx::query_scalar(
            "select exists (select from pipeline.jobs where ended_at is null)
                 or exists (select from pipeline.runs where ended_at is null)",
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// Waits until all jobs and runs have ended; false if the time is over before.
    pub(super) async fn all_ended(&self, limit: Duration) -> Result<bool> {
        let began = Instant::now();
        while began.elapsed() < limit {
            if !self.busy().await? {
                return Ok(true);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(false)
    }

    pub(super) fn stop(&self, at: usize) -> Result<()> {
        signal(&self.workers[at], Signal::STOP)
    }

    pub(super) fn go_on(&self, at: usize) -> Result<()> {
        signal(&self.workers[at], Signal::CONT)
    }

    pub(super) async fn kill_and_replace(&mut self, at: usize) -> Result<()> {
        signal(&self.workers[at], Signal::KILL)?;
        self.workers[at].wait().await?;
        self.workers[at] = self.spawn()?;
        Ok(())
    }

    /// Stops a worker in good order, and starts another in its place.
    pub(super) async fn relieve(&mut self, at: usize) -> Result<()> {
        let next = self.spawn()?;
        let mut worker = std::mem::replace(&mut self.workers[at], next);
        match retire(&mut worker, STOP_TIMEOUT).await? {
            Some(_) => Ok(()),
            None => Err(format!("a worker has not stopped in {STOP_TIMEOUT:?}").into()),
        }
    }

    /// Stops Postgres as a crash would, and starts it again. Blocks.
    pub(super) fn crash_and_restart(&mut self) -> Result<()> {
        let cluster = self.server.cluster_mut().ok_or("no private cluster")?;
        Ok(tokio::task::block_in_place(|| cluster.crash_and_restart())?)
    }

    /// Stops the workers in good order. Returns a violation for each worker that does not stop.
    pub(super) async fn dismiss(&mut self) -> Result<Vec<String>> {
        let mut violations = Vec::new();
        for worker in &mut self.workers {
            drop(worker.stdin.take());
        }
        for mut worker in self.workers.drain(..) {
            let pid = worker.id();
            if retire(&mut worker, STOP_TIMEOUT).await?.is_none() {
                violations.push(format!(
                    "worker process {pid:?} has not stopped in {STOP_TIMEOUT:?}"
                ));
            }
        }
        Ok(violations)
    }

    /// Returns all records of all workers so far.
    pub(super) fn lines(&self) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for entry in std::fs::read_dir(self.logs.path())? {
            lines.extend(log::read(&entry?.path())?);
        }
        Ok(lines)
    }

    /// Starts a worker process.
    pub(super) fn spawn(&mut self) -> Result<Child> {
        let log = self.logs.path().join(format!("{}.log", self.started));
        let child = ChildArguments {
            log: Some(log),
            ..ChildArguments::new("chaos", self.system, self.server.url(DATABASE))
        };
        self.started += 1;
        let mut command = child.command()?;
        if let Some(folder) = std::env::var_os(MESSAGES) {
            let file = format!("worker-{:02}.txt", self.started);
            command.stderr(File::create(PathBuf::from(folder).join(file))?);
        }
        Ok(command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?)
    }

    /// Waits until a worker process has registered itself.
    pub(super) async fn at_work(&self, worker: &Child) -> Result<()> {
        let began = Instant::now();
        let pid = worker.id().map(u32::cast_signed);
        while !sqlx::query_scalar::<_, bool>(
            "select exists (select from pipeline.workers where pid = $1 and stopped_at is null)",
        )
        .bind(pid)
        .fetch_one(&self.pool)
        .await?
        {
            if began.elapsed() > START_TIMEOUT {
                return Err(format!("a worker is not at work after {START_TIMEOUT:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

async fn new_database(server: &Server, name: &str, create: &'static str) -> Result<PgPool> {
    let mut admin = server.admin().await?;
    sqlx::raw_sql(create).execute(&mut admin).await?;
    drop(admin);
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .connect_with(server.options(name))
        .await?;
    jobs::migrate(&pool).await?;
    Ok(pool)
}

pub(super) fn signal(worker: &Child, signal: Signal) -> Result<()> {
    let pid = worker
        .id()
        .and_then(|id| Pid::from_raw(id.cast_signed()))
        .ok_or("the worker has ended by itself")?;
    Ok(kill_process(pid, signal)?)
}

/// Asks a worker process to stop, and waits for its end. Returns how long that took; `None` if the
/// time was over before, and the process had to be killed.
pub(super) async fn retire(worker: &mut Child, limit: Duration) -> Result<Option<Duration>> {
    let began = Instant::now();
    drop(worker.stdin.take());
    let Ok(status) = tokio::time::timeout(limit, worker.wait()).await else {
        worker.kill().await?;
        return Ok(None);
    };
    let status = status?;
    if !status.success() {
        return Err(format!("a worker failed: {status}").into());
    }
    Ok(Some(began.elapsed()))
}
