//! Worker processes that are frozen inside a transaction, or stopped while rows are held.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use sqlx::PgPool;
use tokio::process::Child;

use super::super::crew::{Crew, retire, signal};
use super::super::moment;
use super::super::runs::GRACE;
use crate::frame::Result;

/// What a worker promises: its grace, and ten seconds to write down what it knows.
pub(super) const STOP_LIMIT: Duration = GRACE.saturating_add(Duration::from_secs(10));
/// How long to try to freeze a process inside a transaction.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(30);
/// A session that has sent nothing for so long belongs to the process that does not run.
const SILENCE: Duration = Duration::from_millis(150);

/// The transactions that a frozen process has left open: a worker has several connections. None, unless one of
/// the transactions holds a run.
const OPEN_TRANSACTIONS: &str = "
    with open as (
        select a.backend_xid::text as xid from pg_stat_activity a
        where a.datname = current_database() and a.application_name like 'pipeline%'
          and a.state = 'idle in transaction' and a.backend_xid is not null
          and a.state_change < clock_timestamp() - $1 * interval '1 ms'
    )
    select xid from open
    where exists (select from pipeline.runs r where r.xmax::text in (select xid from open))";

/// A worker process that has been stopped by SIGSTOP.
pub(super) struct Frozen {
    process: Child,
    /// Its open transactions, if one of them holds a run.
    pub(super) xids: Vec<String>,
}

impl Frozen {
    /// Stops a worker process at a moment at which it has a run locked.
    pub(super) async fn catch(crew: &mut Crew, process: Child) -> Result<Self> {
        let began = Instant::now();
        while began.elapsed() < FREEZE_TIMEOUT {
            signal(&process, Signal::STOP)?;
            tokio::time::sleep(SILENCE / 3).await;
            let silent = SILENCE / 3;
            if !open_transactions(crew.pool(), silent).await?.is_empty() {
                tokio::time::sleep(SILENCE).await;
                let xids = open_transactions(crew.pool(), SILENCE).await?;
                if !xids.is_empty() {
                    return Ok(Self { process, xids });
                }
            }
            signal(&process, Signal::CONT)?;
            moment(5, 50).await;
        }
        signal(&process, Signal::STOP)?;
        Ok(Self {
            process,
            xids: Vec::new(),
        })
    }

    /// The runs and queue rows that its open transactions hold, the runs of these rows, and the jobs of batches that
    /// they hold.
    pub(super) async fn holds(&self, pool: &PgPool) -> Result<(Vec<i64>, Vec<i64>)> {
        let runs = sqlx::query_scalar(
            "select id from pipeline.runs where xmax::text = any ($1)
             union
             select pipeline.run_of(id) from pipeline.jobs
             where xmax::text = any ($1) and id % 2 = 0",
        )
        .bind(&self.xids)
        .fetch_all(pool)
        .await?;
        let jobs = sqlx::query_scalar(
            "select id from pipeline.jobs
             where xmax::text = any ($1)
                or batch in (select id from pipeline.batch_sets where xmax::text = any ($1))",
        )
        .bind(&self.xids)
        .fetch_all(pool)
        .await?;
        Ok((runs, jobs))
    }

    /// Lets it go on for a moment, and asks it to stop then. Returns a violation if it does not.
    pub(super) async fn thaw(mut self) -> Result<Option<String>> {
        signal(&self.process, Signal::CONT)?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let stopped = retire(&mut self.process, STOP_LIMIT).await?;
        Ok(stopped
            .is_none()
            .then(|| format!("a process that was frozen has not stopped in {STOP_LIMIT:?}")))
    }
}

async fn open_transactions(pool: &PgPool, silent: Duration) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar(OPEN_TRANSACTIONS)
        .bind(silent.as_millis() as f64)
        .fetch_all(pool)
        .await?)
}

/// Starts a worker process, and returns it with its number when it is at work.
pub(super) async fn start(crew: &mut Crew) -> Result<(Child, i32)> {
    let process = crew.spawn()?;
    crew.at_work(&process).await?;
    let pid = process.id().ok_or("the worker has ended by itself")?;
    Ok((process, pid.cast_signed()))
}
