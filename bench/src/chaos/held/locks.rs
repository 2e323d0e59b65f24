//! Rows that sessions outside lock, and the work that stands still by it.

use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection, PgPool};

use super::super::crew::Crew;
use super::super::naps::Naps;
use super::super::runs::{Chains, Diamonds};
use super::super::worker::{NAP, Nap};
use super::load::LEASE;
use crate::frame::Result;

/// The lease of jobs whose queue row is held while they end: nobody can renew it, so it is longer than
/// any hold.
const LONG_LEASE: Duration = Duration::from_secs(300);
/// Jobs whose row is to be locked while they run.
const SLOW_NAP: Nap = Nap(500);
const DIAMONDS: u64 = 3;
const BATCHES: usize = 2;
/// How long to try to catch a queue row in the right state.
const CATCH_TIMEOUT: Duration = Duration::from_secs(20);

/// Work that is held, over all rounds.
pub(super) struct Held {
    pool: PgPool,
    pub(super) naps: Naps,
    pub(super) slow: Naps,
    pub(super) diamonds: Diamonds,
    pub(super) chains: Chains,
    /// Ids of all of it, and of what a frozen process held.
    pub(super) runs: Vec<i64>,
    pub(super) jobs: Vec<i64>,
}

impl Held {
    pub(super) fn new(pool: &PgPool) -> Self {
        Self {
            pool: pool.clone(),
            naps: Naps::new(pool, LEASE).behind_steps(),
            slow: Naps::new(pool, LONG_LEASE).behind_steps(),
            diamonds: Diamonds::new(pool, LEASE),
            chains: Chains::new(pool, LEASE, 2),
            runs: Vec::new(),
            jobs: Vec::new(),
        }
    }

    /// Enqueues jobs and locks queue rows of some that run and of some that are ready.
    pub(super) async fn lock_queue_rows(&mut self, crew: &Crew, locks: &mut Locks) -> Result<()> {
        let slow = self.slow.enqueue(6, SLOW_NAP).await?;
        self.jobs.extend(&slow);
        locks.catch(crew, RUNNING_JOBS, &slow).await?;
        let ready = self.naps.enqueue(20, NAP).await?;
        self.jobs.extend(&ready);
        locks.catch(crew, READY_JOBS, &ready).await
    }

    /// Starts runs and batches and locks their rows: runs that an advance of their chain only reaches,
    /// batches, and runs whose steps end.
    pub(super) async fn lock_runs_and_batches(
        &mut self,
        crew: &Crew,
        locks: &mut Locks,
    ) -> Result<()> {
        let chain = self.chains.start().await?;
        for run in [chain[1], chain[3]] {
            locks.take(crew, RUN, run).await?;
        }
        self.runs.extend(chain);
        for _ in 0..BATCHES {
            let (batch, jobs) = self.naps.enqueue_batch(20, NAP).await?;
            locks.take(crew, BATCH, batch).await?;
            self.jobs.extend(jobs);
        }
        let runs = self.diamonds.start(DIAMONDS).await?;
        for run in &runs {
            locks.take(crew, RUN, *run).await?;
        }
        self.runs.extend(runs);
        Ok(())
    }

    /// Waits until everything that was held has ended. Returns what has not.
    pub(super) async fn all_ended(&self, limit: Duration) -> Result<Vec<String>> {
        let began = Instant::now();
        loop {
            let left: Vec<String> = sqlx::query_scalar(
                "select format('run %s is %s', id, status) from pipeline.runs
                 where id = any ($1) and ended_at is null
                 union all
                 select format('job %s is %s', id, status) from pipeline.jobs
                 where id = any ($2) and ended_at is null",
            )
            .bind(&self.runs)
            .bind(&self.jobs)
            .fetch_all(&self.pool)
            .await?;
            if left.is_empty() || began.elapsed() > limit {
                return Ok(left);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

const RUN: &str = "select id from pipeline.runs where id = $1 for no key update";
const BATCH: &str = "select id from pipeline.batch_sets where id = $1 for update";
const RUNNING_JOBS: &str = "select id from pipeline.jobs where id = any ($1) and status = 'running'
                            for update skip locked";
const READY_JOBS: &str = "select id from pipeline.jobs where id = any ($1) and status = 'ready'
                          for update skip locked";

/// Open transactions that hold rows. Each row has one of its own, except where locked rows are skipped: no
/// session waits while it holds something.
#[derive(Default)]
pub(super) struct Locks {
    sessions: Vec<PgConnection>,
    pub(super) rows: usize,
    /// Kinds of rows of which none could be locked.
    pub(super) missed: Vec<String>,
}

impl Locks {
    /// Locks one row.
    async fn take(&mut self, crew: &Crew, lock: &'static str, id: i64) -> Result<()> {
        let mut session = begin(crew).await?;
        let rows = sqlx::query(lock).bind(id).fetch_all(&mut session).await?;
        self.rows += rows.len();
        self.sessions.push(session);
        Ok(())
    }

    /// Locks those of the rows that are in the right state, as soon as one is.
    async fn catch(&mut self, crew: &Crew, lock: &'static str, ids: &[i64]) -> Result<()> {
        let began = Instant::now();
        let mut session = begin(crew).await?;
        loop {
            let rows = sqlx::query(lock).bind(ids).fetch_all(&mut session).await?;
            if !rows.is_empty() {
                self.rows += rows.len();
                break;
            }
            if began.elapsed() > CATCH_TIMEOUT {
                self.missed.push(format!("no row was found by: {lock}"));
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.sessions.push(session);
        Ok(())
    }

    pub(super) async fn release(self) -> Result<()> {
        for session in self.sessions {
            session.close().await?;
        }
        Ok(())
    }
}

async fn begin(crew: &Crew) -> Result<PgConnection> {
    let mut session = crew.connect().await?;
    sqlx::raw_sql("begin; set local lock_timeout to '20s'")
        .execute(&mut session)
        .await?;
    Ok(session)
}

/// Rows of the other work, each locked for less than a second.
const BRIEF: [&str; 4] = [
    "select id from pipeline.runs where status = 'running' order by random() limit 2
     for no key update skip locked",
    "select id from pipeline.batch_sets where finished_at is null order by random() limit 2
     for update skip locked",
    "select id from pipeline.jobs where status = 'running' order by random() limit 2
     for update skip locked",
    "select id from pipeline.jobs where status = 'ready' order by random() limit 5
     for update skip locked",
];

/// Locks rows of the other work at random, each for a moment, until the time is over.
pub(super) async fn lock_briefly(crew: &Crew, time: Duration) -> Result<()> {
    let began = Instant::now();
    let mut session = crew.connect().await?;
    while began.elapsed() < time {
        let mut tx = session.begin().await?;
        sqlx::query(BRIEF[fastrand::usize(..BRIEF.len())])
            .fetch_all(&mut *tx)
            .await?;
        super::super::moment(20, 800).await;
        tx.rollback().await?;
        super::super::moment(20, 100).await;
    }
    session.close().await?;
    Ok(())
}
