//! Plain jobs, alone and in batches, and how all of them have to end.

use std::collections::HashMap;
use std::time::Duration;

use jobs::{Client, NewJob};
use sqlx::PgPool;

use super::check::{self, Evidence, Verdict};
use super::log::Line;
use super::worker::{AfterBatch, Nap};
use crate::frame::Result;

pub(super) struct Naps {
    client: Client,
    lease: Duration,
    priority: i16,
    enqueued: Vec<i64>,
    /// Batches, and how many jobs each has.
    batches: HashMap<i64, i64>,
}

impl Naps {
    pub(super) fn new(pool: &PgPool, lease: Duration) -> Self {
        Self {
            client: Client::new(pool.clone()),
            lease,
            priority: 0,
            enqueued: Vec::new(),
            batches: HashMap::new(),
        }
    }

    /// Steps of runs, which have priority 0, go before these.
    pub(super) fn behind_steps(mut self) -> Self {
        self.priority = -1;
        self
    }

    fn new_job(&self, nap: Nap) -> NewJob {
        NewJob::new(&nap).lease(self.lease).priority(self.priority)
    }

    pub(super) async fn enqueue(&mut self, count: u64, nap: Nap) -> Result<Vec<i64>> {
        let jobs = (0..count).map(|_| self.new_job(nap));
        let enqueued = self.client.enqueue_many(jobs).await?;
        let ids: Vec<i64> = enqueued.iter().map(|job| job.id.get()).collect();
        self.enqueued.extend(&ids);
        Ok(ids)
    }

    /// Enqueues a sealed batch of jobs. Returns the batch and its jobs.
    pub(super) async fn enqueue_batch(&mut self, count: u64, nap: Nap) -> Result<(i64, Vec<i64>)> {
        let callback = |job: NewJob| job.lease(self.lease);
        let batch = self
            .client
            .batch()
            .on_finish_with(AfterBatch, callback)
            .open()
            .await?;
        let jobs = (0..count).map(|_| self.new_job(nap));
        let added = batch.add(jobs).await?;
        batch.seal().await?;
        let ids: Vec<i64> = added.iter().map(|job| job.id.get()).collect();
        self.enqueued.extend(&ids);
        self.batches.insert(batch.id().get(), count.cast_signed());
        Ok((batch.id().get(), ids))
    }

    /// Takes over the jobs that another one has enqueued.
    pub(super) fn absorb(&mut self, other: Self) {
        self.enqueued.extend(other.enqueued);
        self.batches.extend(other.batches);
    }

    /// Compares the jobs with the database and with what the workers have written down.
    pub(super) async fn check(self, pool: &PgPool, lines: &[Line]) -> Result<Verdict> {
        let evidence = Evidence::gather(pool, self.enqueued, lines).await?;
        let mut verdict = check::check(&evidence);
        verdict
            .violations
            .extend(check_batches(pool, &self.batches).await?);
        Ok(verdict)
    }
}

/// Every batch has finished with all its jobs, and has enqueued its callback once.
async fn check_batches(pool: &PgPool, batches: &HashMap<i64, i64>) -> Result<Vec<String>> {
    let rows: Vec<(i64, i64, bool, i64)> = sqlx::query_as(
        "select b.id, b.ended::bigint, b.finished_at is not null, count(j.id)
         from pipeline.batch_sets b
         left join pipeline.jobs j
            on j.job_type = 'chaos.batch_ended' and (j.input ->> 'batch')::bigint = b.id
         group by b.id",
    )
    .fetch_all(pool)
    .await?;
    let mut violations = Vec::new();
    if rows.len() != batches.len() {
        violations.push(format!(
            "{} batches were created, and {} exist",
            batches.len(),
            rows.len()
        ));
    }
    for (batch, ended, finished, callbacks) in rows {
        if Some(&ended) != batches.get(&batch) || !finished {
            let all = batches.get(&batch);
            violations.push(format!(
                "batch {batch}: {ended} of {all:?} jobs have ended, finished is {finished}"
            ));
        }
        if callbacks != 1 {
            violations.push(format!(
                "batch {batch}: its callback was enqueued {callbacks} times"
            ));
        }
    }
    Ok(violations)
}
