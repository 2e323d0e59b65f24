//! A server, worker processes on it, and what can be done to them.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use local_postgres::{Cluster, Durability, Server};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::process::Child;

use crate::frame::{ChildArguments, Result};

const DATABASE: &str = "chaos";

pub(super) struct Crew {
    workers: Vec<Child>,
    /// What the workers know: see [`super::work`].
    system: &'static str,
    started: usize,
    logs: Option<PathBuf>,
    pool: PgPool,
    server: Server,
}

impl Crew {
    /// The server, with our tables and nobody at work.
    pub(super) async fn new(system: &'static str) -> Result<Self> {
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
        jobs::migrate(&pool).await?;
        Ok(Self {
            workers: Vec::new(),
            system,
            started: 0,
            logs: None,
            pool,
            server,
        })
    }

    /// Each process keeps a log of its own in this folder.
    pub(super) fn with_logs(mut self, folder: PathBuf) -> Self {
        self.logs = Some(folder);
        self
    }

    /// Starts so many workers, and waits until they are at work.
    pub(super) async fn start(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let worker = self.start_worker()?;
            self.workers.push(worker);
        }
        while at_work(&self.pool).await? < count as i64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    pub(super) fn pool(&self) -> &PgPool {
        &self.pool
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
        .fetch_one(&self.pool)
        .await?)
    }

    /// Whether any job has not ended.
    pub(super) async fn busy(&self) -> Result<bool> {
        Ok(
            sqlx::query_scalar("select exists (select from pipeline.jobs where ended_at is null)")
                .fetch_one(&self.pool)
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

    /// Lets a worker go in good order, and has another take its place.
    pub(super) async fn relieve(&mut self, at: usize) -> Result<()> {
        drop(self.workers[at].stdin.take());
        let next = self.start_worker()?;
        in_good_order(&mut std::mem::replace(&mut self.workers[at], next)).await
    }

    /// Stops Postgres as a crash would, and starts it again. Blocks.
    pub(super) fn crash_and_restart(&mut self) -> Result<()> {
        let cluster = self.server.cluster_mut().ok_or("no private cluster")?;
        Ok(tokio::task::block_in_place(|| cluster.crash_and_restart())?)
    }

    /// Lets the workers go in good order.
    pub(super) async fn dismiss(&mut self) -> Result<()> {
        for worker in &mut self.workers {
            drop(worker.stdin.take());
        }
        for mut worker in self.workers.drain(..) {
            in_good_order(&mut worker).await?;
        }
        Ok(())
    }

    fn start_worker(&mut self) -> Result<Child> {
        let log = |folder: &PathBuf| folder.join(format!("{}.log", self.started));
        let child = ChildArguments {
            log: self.logs.as_ref().map(log),
            ..ChildArguments::new("chaos", self.system, self.server.url(DATABASE))
        };
        self.started += 1;
        Ok(child
            .command()?
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?)
    }

    fn signal(&self, at: usize, signal: Signal) -> Result<()> {
        let pid = self.workers[at]
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()))
            .ok_or("the worker has ended by itself")?;
        Ok(kill_process(pid, signal)?)
    }
}

async fn in_good_order(worker: &mut Child) -> Result<()> {
    let status = tokio::time::timeout(Duration::from_secs(60), worker.wait()).await??;
    if !status.success() {
        return Err(format!("a worker failed: {status}").into());
    }
    Ok(())
}

async fn at_work(pool: &PgPool) -> Result<i64> {
    Ok(
        sqlx::query_scalar("select count(*) from pipeline.workers where stopped_at is null")
            .fetch_one(pool)
            .await?,
    )
}
