//! Diamonds: a source, ten side by side, a join, with values on all edges.

use std::collections::HashMap;

use pipeline::{Client, Invalid, Pipeline};

use super::steps::{Join, Side, Source};
use super::{Blow, Storm, crew};
use crate::frame::Result;

const SIDES: i64 = 10;

fn diamond(number: i64) -> Result<Pipeline<i64>, Invalid> {
    Pipeline::configure("diamond", |p| {
        let source = p.step("source", Source(number));
        let side = |n| p.after(&source).step(&format!("side-{n}"), Side(n));
        let sides: Vec<_> = (0..SIDES).map(side).collect();
        p.after(&sides).step("join", Join)
    })
}

/// What the join of a diamond comes to.
fn sum(number: i64) -> i64 {
    (0..SIDES).map(|side| number + side).sum()
}

pub(in super::super) async fn diamonds(runs: u64, blows: u64, blow: Blow) -> Result<()> {
    let crew = crew().await?;
    let client = Client::new(crew.pool().clone());
    let mut numbers: HashMap<i64, i64> = HashMap::new();
    let storm = Storm::over(crew, blow, runs, blows, async |count| {
        let first = numbers.len() as i64;
        let share = first..first + count.cast_signed();
        let pipelines = share.clone().map(diamond).collect::<Result<Vec<_>, _>>()?;
        let started = client.start_many(pipelines).await?;
        numbers.extend(started.iter().map(pipeline::Run::id).zip(share));
        Ok(())
    })
    .await?;

    let rows: Vec<(i64, String, Option<i64>)> = sqlx::query_as(
        "select r.id, r.status::text, (s.output #>> '{}')::bigint
         from pipeline.runs r
         join pipeline.nodes n on n.graph = r.graph and n.key = 'join'
         join pipeline.steps s on s.run = r.id and s.no = n.no",
    )
    .fetch_all(storm.crew.pool())
    .await?;
    let mut violations = Vec::new();
    if rows.len() as u64 != runs {
        violations.push(format!(
            "{} runs are there, and {runs} were started",
            rows.len()
        ));
    }
    for (run, status, output) in rows {
        if status != "succeeded" {
            violations.push(format!("run {run}: is {status}"));
        }
        let expected = numbers.get(&run).copied().map(sum);
        if output != expected {
            violations.push(format!(
                "run {run}: its join says {output:?}, not {expected:?}"
            ));
        }
    }
    // Nothing here fails: what was executed twice had lost its lease.
    let failed: Vec<String> = sqlx::query_scalar(
        "select format('step %s of run %s: attempt %s ended by %s, not by a lost lease',
                       pipeline.no_of(job), pipeline.run_of(job), attempt, error_class)
         from pipeline.attempts where error_class is distinct from 'WorkerDied'",
    )
    .fetch_all(storm.crew.pool())
    .await?;
    violations.extend(failed);
    let name = match blow {
        Blow::Kill => "chaos/diamonds",
        Blow::Stop => "chaos/stops",
    };
    storm
        .close(name, &format!("{runs} diamonds"), violations)
        .await
}
