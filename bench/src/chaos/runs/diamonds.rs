//! Diamonds: a source, ten side by side, a join, with values on all edges.

use std::collections::HashMap;
use std::time::Duration;

use pipeline::{Client, Invalid, Pipeline};
use sqlx::PgPool;

use super::super::{Blow, LEASE};
use super::steps::{Join, Side, Source};
use super::{Storm, crew};
use crate::frame::Result;

const SIDES: i64 = 10;

fn diamond(number: i64, lease: Duration) -> Result<Pipeline<i64>, Invalid> {
    Pipeline::configure("diamond", |p| {
        let source = p.step("source", Source(number)).lease(lease);
        let side = |n| {
            let side = p.after(&source).step(&format!("side-{n}"), Side(n));
            side.lease(lease)
        };
        let sides: Vec<_> = (0..SIDES).map(side).collect();
        p.after(&sides).step("join", Join).lease(lease)
    })
}

/// What the join of a diamond comes to.
fn sum(number: i64) -> i64 {
    (0..SIDES).map(|side| number + side).sum()
}

/// Runs of diamonds, and the number that each was given.
pub(in super::super) struct Diamonds {
    client: Client,
    lease: Duration,
    numbers: HashMap<i64, i64>,
}

impl Diamonds {
    pub(in super::super) fn new(pool: &PgPool, lease: Duration) -> Self {
        Self {
            client: Client::new(pool.clone()),
            lease,
            numbers: HashMap::new(),
        }
    }

    /// Starts so many, and returns their ids.
    pub(in super::super) async fn start(&mut self, count: u64) -> Result<Vec<i64>> {
        let first = self.numbers.len() as i64;
        let numbers = first..first + count.cast_signed();
        let pipelines = numbers
            .clone()
            .map(|number| diamond(number, self.lease))
            .collect::<Result<Vec<_>, _>>()?;
        let started = self.client.start(pipelines).await?;
        let ids: Vec<i64> = started.iter().map(|run| run.id().get()).collect();
        self.numbers.extend(ids.iter().copied().zip(numbers));
        Ok(ids)
    }

    /// Takes over the runs that another one has started.
    pub(in super::super) fn absorb(&mut self, other: Self) {
        self.numbers.extend(other.numbers);
    }

    /// Every run has succeeded with the right sum, and no attempt failed by anything but a lost lease.
    pub(in super::super) async fn check(&self, pool: &PgPool) -> Result<Vec<String>> {
        let rows: Vec<(i64, String, Option<i64>)> = sqlx::query_as(
            "select r.id, r.status::text, (s.output #>> '{}')::bigint
             from pipeline.runs r
             join pipeline.nodes n on n.graph = r.graph and n.key = 'join'
             join pipeline.steps s on s.run = r.id and s.no = n.no
             where r.pipeline = 'diamond'",
        )
        .fetch_all(pool)
        .await?;
        let mut violations = Vec::new();
        if rows.len() != self.numbers.len() {
            violations.push(format!(
                "{} diamonds were started, and {} exist",
                self.numbers.len(),
                rows.len()
            ));
        }
        for (run, status, output) in rows {
            if status != "succeeded" {
                violations.push(format!("run {run}: is {status}"));
            }
            let expected = self.numbers.get(&run).copied().map(sum);
            if output != expected {
                violations.push(format!(
                    "run {run}: its join says {output:?}, not {expected:?}"
                ));
            }
        }
        // Nothing here fails: what was executed twice had lost its lease.
        let failed: Vec<String> = sqlx::query_scalar(
            "select format('step %s of run %s: attempt %s ended by %s, not by a lost lease',
                           pipeline.no_of(a.job), r.id, a.attempt, a.error_class)
             from pipeline.attempts a
             join pipeline.runs r on r.id = pipeline.run_of(a.job)
             where a.job % 2 = 0 and r.pipeline = 'diamond'
               and a.error_class is distinct from 'WorkerDied'",
        )
        .fetch_all(pool)
        .await?;
        violations.extend(failed);
        Ok(violations)
    }
}

pub(in super::super) async fn diamonds(runs: u64, blows: u64, blow: Blow) -> Result<()> {
    let crew = crew().await?;
    let mut diamonds = Diamonds::new(crew.pool(), LEASE);
    let storm = Storm::over(crew, blow, runs, blows, async |count| {
        diamonds.start(count).await?;
        Ok(())
    })
    .await?;
    let violations = diamonds.check(storm.crew.pool()).await?;
    let name = match blow {
        Blow::Kill => "chaos/diamonds",
        Blow::Stop => "chaos/stops",
    };
    storm
        .close(name, &format!("{runs} diamonds"), violations)
        .await
}
