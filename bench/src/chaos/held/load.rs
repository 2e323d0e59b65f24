//! Work that nobody holds: a steady backlog of plain jobs, batches, diamonds and chains, and its speed.

use std::cell::Cell;
use std::time::{Duration, Instant};

use jobs::chrono::{DateTime, Utc};
use sqlx::PgPool;

use super::super::naps::Naps;
use super::super::runs::{Chains, Diamonds};
use super::super::worker::Nap;
use crate::frame::{Result, table};

/// The lease of all work here: shorter than the holds, and long enough for a busy machine.
pub(super) const LEASE: Duration = Duration::from_secs(5);
/// What a plain job does: it takes a slot for so long that the slots set the pace, not the machine.
const NAP: Nap = Nap(40);
/// How many plain jobs are ready when the backlog is full: many times the slots of all workers.
const BACKLOG: i64 = 150;
/// The backlog is filled up when so many jobs are missing.
const PAGE: u64 = 50;
/// How often a diamond and a chain are started.
const DIAMOND_EVERY: Duration = Duration::from_millis(120);
const CHAIN_EVERY: Duration = Duration::from_millis(400);
/// With so many young runs under way no more are started: the workers do not keep up.
const MOST_RUNS: i64 = 60;

pub(super) struct Load {
    pool: PgPool,
    pub(super) naps: Naps,
    pub(super) diamonds: Diamonds,
    pub(super) chains: Chains,
}

impl Load {
    pub(super) fn new(pool: &PgPool) -> Self {
        Self {
            pool: pool.clone(),
            naps: Naps::new(pool, LEASE).behind_steps(),
            diamonds: Diamonds::new(pool, LEASE),
            chains: Chains::new(pool, LEASE, 1),
        }
    }

    /// Keeps the backlog filled until `done` is set.
    pub(super) async fn feed(&mut self, done: &Cell<bool>) -> Result<()> {
        let naps = feed_naps(&self.pool, &mut self.naps, done);
        let runs = feed_runs(&self.pool, &mut self.diamonds, &mut self.chains, done);
        futures_util::future::try_join(naps, runs).await?;
        Ok(())
    }
}

/// How many plain jobs are ready, without those that stand still. The scan begins at a time, because holders keep dead
/// rows alive.
const READY: &str = "
    select count(*) from pipeline.jobs
    where status = 'ready' and queue = 'default' and - priority::integer = 1
      and run_at > now() - interval '3 s'";

/// Enqueues plain jobs, every other time in a batch, so that some are always ready.
async fn feed_naps(pool: &PgPool, naps: &mut Naps, done: &Cell<bool>) -> Result<()> {
    let mut in_batch = false;
    while !done.get() {
        let ready: i64 = sqlx::query_scalar(READY).fetch_one(pool).await?;
        let missing = (BACKLOG - ready).max(0).unsigned_abs();
        if missing < PAGE {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        if in_batch {
            naps.enqueue_batch(missing, NAP).await?;
        } else {
            naps.enqueue(missing, NAP).await?;
        }
        in_batch = !in_batch;
    }
    Ok(())
}

/// Starts diamonds and chains at a steady rate, as long as the workers keep up.
async fn feed_runs(
    pool: &PgPool,
    diamonds: &mut Diamonds,
    chains: &mut Chains,
    done: &Cell<bool>,
) -> Result<()> {
    let (mut last_diamond, mut last_chain) = (Instant::now(), Instant::now());
    while !done.get() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        // Old ones are held by somebody.
        let young: i64 = sqlx::query_scalar(
            "select count(*) from pipeline.runs
             where status in ('running', 'pending')
               and created_at > clock_timestamp() - interval '10 s'",
        )
        .fetch_one(pool)
        .await?;
        if young >= MOST_RUNS {
            continue;
        }
        if last_diamond.elapsed() >= DIAMOND_EVERY {
            last_diamond = Instant::now();
            diamonds.start(1).await?;
        }
        if last_chain.elapsed() >= CHAIN_EVERY {
            last_chain = Instant::now();
            chains.start().await?;
        }
    }
    Ok(())
}

/// A part of the bench in which speed is measured, by the database's clock.
pub(super) struct Window {
    name: &'static str,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
}

impl Window {
    /// Measures while a future runs.
    pub(super) async fn over(
        name: &'static str,
        pool: &PgPool,
        work: impl Future<Output = Result<()>>,
    ) -> Result<Self> {
        let from = now(pool).await?;
        work.await?;
        let to = now(pool).await?;
        Ok(Self { name, from, to })
    }

    fn seconds(&self) -> f64 {
        (self.to - self.from).as_seconds_f64()
    }

    /// How many plain jobs and steps have ended in it, without those that were held.
    async fn ended(&self, pool: &PgPool, runs: &[i64], jobs: &[i64]) -> Result<(i64, i64)> {
        Ok(sqlx::query_as(
            "select (select count(*) from pipeline.jobs
                     where job_type = 'chaos.nap' and ended_at >= $1 and ended_at < $2 and id <> all ($4)),
                    (select count(*) from pipeline.steps
                     where status in ('succeeded', 'failed') and ended_at >= $1 and ended_at < $2
                       and run <> all ($3))",
        )
        .bind(self.from)
        .bind(self.to)
        .bind(runs)
        .bind(jobs)
        .fetch_one(pool)
        .await?)
    }
}

async fn now(pool: &PgPool) -> Result<DateTime<Utc>> {
    Ok(sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(pool)
        .await?)
}

/// Prints the speed in each window, and returns that of the held ones over that of the others.
pub(super) async fn speed(
    pool: &PgPool,
    windows: &[Window],
    runs: &[i64],
    jobs: &[i64],
) -> Result<f64> {
    let mut rows = vec![["window", "seconds", "jobs/s", "steps/s", "all/s"].map(str::to_owned)];
    let (mut held, mut free) = ((0.0, 0.0), (0.0, 0.0));
    for window in windows {
        let (naps, steps) = window.ended(pool, runs, jobs).await?;
        let (naps, steps, seconds) = (naps as f64, steps as f64, window.seconds());
        let sum = if window.name == HELD {
            &mut held
        } else {
            &mut free
        };
        sum.0 += naps + steps;
        sum.1 += seconds;
        rows.push([
            window.name.to_owned(),
            format!("{seconds:.1}"),
            format!("{:.0}", naps / seconds),
            format!("{:.0}", steps / seconds),
            format!("{:.0}", (naps + steps) / seconds),
        ]);
    }
    table(&rows);
    println!();
    Ok((held.0 / held.1) / (free.0 / free.1))
}

pub(super) const HELD: &str = "held";
pub(super) const FREE: &str = "free";
