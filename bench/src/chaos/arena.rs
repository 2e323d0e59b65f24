//! A server, three workers, and what can be done to them.

use std::process::Stdio;
use std::time::{Duration, Instant};

use jobs::Client;
use local_postgres::{Cluster, Durability, Server};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tempfile::TempDir;
use tokio::process::Child;

use super::check::Evidence;
use super::log;
use super::worker::{self, Nap};
use crate::frame::{ChildArguments, Result};

const WORKERS: usize = 3;
const DATABASE: &str = "chaos";

pub(super) struct Arena {
    workers: Vec<Child>,
    client: Client,
    enqueued: Vec<i64>,
    logs: TempDir,
    started: usize,
    server: Server,
}

impl Arena {
    pub(super) async fn open() -> Result<Self> {
        let cluster = tokio::task::spawn_blocking(|| {
            Cluster::temporary("chaos", std::process::id(), Durability::Durable)
        })
        .await??;
        let server = Server::private(cluster)?;
        let mut admin = server.admin().await?;
        sqlx::raw_sql("create database chaos")
            .execute(&mut admin)
            .await?;
        drop(admin);
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .connect_with(server.options(DATABASE))
            .await?;
        let client = Client::new(pool);
        client.migrate().await?;
        worker::prepare(client.pool()).await?;
        let mut arena = Self {
            workers: Vec::new(),
            client,
            enqueued: Vec::new(),
            logs: tempfile::tempdir()?,
            started: 0,
            server,
        };
        for _ in 0..WORKERS {
            let worker = arena.start_worker()?;
            arena.workers.push(worker);
        }
        arena.all_at_work().await?;
        Ok(arena)
    }

    pub(super) async fn enqueue(&mut self, count: u64) -> Result<()> {
        let enqueued = self.client.enqueue_many((0..count).map(|_| Nap)).await?;
        self.enqueued.extend(enqueued.iter().map(|job| job.id));
        Ok(())
    }

    /// Any worker but this one.
    pub(super) fn any_worker(&self, but: Option<usize>) -> usize {
        loop {
            let at = fastrand::usize(..self.workers.len());
            if Some(at) != but {
                return at;
            }
        }
    }

    /// How many jobs the database believes to be under way in a worker.
    pub(super) async fn under_way(&self, at: usize) -> Result<i64> {
        let pid = self.workers[at].id().map(u32::cast_signed);
        Ok(sqlx::query_scalar(
            "select count(*) from pipeline.jobs j join pipeline.workers w on w.id = j.worker
             where w.pid = $1 and j.status = 'running'",
        )
        .bind(pid)
        .fetch_one(self.client.pool())
        .await?)
    }

    /// Whether any job has not ended.
    pub(super) async fn busy(&self) -> Result<bool> {
        Ok(
            sqlx::query_scalar("select exists (select from pipeline.jobs where ended_at is null)")
                .fetch_one(self.client.pool())
                .await?,
        )
    }

    pub(super) fn stop(&self, at: usize) -> Result<()> {
        self.signal(at, Signal::STOP)
    }

    pub(super) fn go_on(&self, at: usize) -> Result<()> {
        self.signal(at, Signal::CONT)
    }

    pub(super) async fn kill_and_replace(&mut self, at: usize) -> Result<()> {
        self.signal(at, Signal::KILL)?;
        self.workers[at].wait().await?;
        self.workers[at] = self.start_worker()?;
        Ok(())
    }

    /// Stops Postgres as a crash would, and starts it again. Blocks.
    pub(super) fn crash_and_restart(&mut self) -> Result<()> {
        let cluster = self.server.cluster_mut().ok_or("no private cluster")?;
        Ok(tokio::task::block_in_place(|| cluster.crash_and_restart())?)
    }

    /// Whether all jobs have ended in time.
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

    /// Lets the workers go in good order, and gathers what they and the database say.
    pub(super) async fn close(mut self) -> Result<Evidence> {
        for worker in &mut self.workers {
            drop(worker.stdin.take());
        }
        for worker in &mut self.workers {
            let status = tokio::time::timeout(Duration::from_secs(60), worker.wait()).await??;
            if !status.success() {
                return Err(format!("a worker failed: {status}").into());
            }
        }
        let mut lines = Vec::new();
        for entry in std::fs::read_dir(self.logs.path())? {
            lines.extend(log::read(&entry?.path())?);
        }
        let evidence = Evidence::gather(self.client.pool(), self.enqueued, lines).await?;
        self.client.pool().close().await;
        Ok(evidence)
    }

    fn start_worker(&mut self) -> Result<Child> {
        let log = self.logs.path().join(format!("{}.log", self.started));
        self.started += 1;
        let child = ChildArguments {
            log: Some(log),
            ..ChildArguments::new("chaos", "worker", self.server.url(DATABASE))
        };
        Ok(child
            .command()?
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?)
    }

    async fn all_at_work(&self) -> Result<()> {
        while at_work(self.client.pool()).await? < WORKERS as i64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    fn signal(&self, at: usize, signal: Signal) -> Result<()> {
        let pid = self.workers[at]
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()))
            .ok_or("the worker has ended by itself")?;
        Ok(kill_process(pid, signal)?)
    }
}

async fn at_work(pool: &PgPool) -> Result<i64> {
    Ok(
        sqlx::query_scalar("select count(*) from pipeline.workers where stopped_at is null")
            .fetch_one(pool)
            .await?,
    )
}
