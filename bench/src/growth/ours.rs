//! The runs, in one process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use pipeline::graph::spec::GraphSpec;
use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Client, Graph, Pipeline, RunStatus, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use super::GROUP;
use crate::frame::{Measured, Result};

/// Its name is [`super::shapes::JOB`].
#[derive(Serialize, Deserialize, Job)]
#[job(name = "noop")]
struct Noop;

impl Perform for Noop {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

const SLOTS: u32 = 1_000;
const CONNECTIONS: u32 = 4;

async fn pool(url: &str) -> Result<PgPool> {
    Ok(PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        // Who starts a run waits for the starts before it.
        .acquire_timeout(Duration::from_secs(600))
        .connect(url)
        .await?)
}

pub(super) async fn prepare(url: &str) -> Result<Measured> {
    let pool = pool(url).await?;
    jobs::migrate(&pool).await?;
    pool.close().await;
    Ok(Measured::default())
}

/// Fills the tables with finished steps: one run is run to its end, and copied.
pub(super) async fn fill(url: &str, spec: GraphSpec, steps: u64) -> Result<Measured> {
    let size = spec.steps.len() as u64;
    run(url, spec, size, 1).await?;
    let pool = pool(url).await?;
    let mut tx = pool.begin().await?;
    sqlx::query("create temporary table copies (run bigint, id bigint) on commit drop")
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "insert into copies
         select r.id, nextval('pipeline.run_ids') from pipeline.runs r
         cross join generate_series(1, $1)",
    )
    .bind((steps / size).saturating_sub(1).cast_signed())
    .execute(&mut *tx)
    .await?;
    for copy in [
        "insert into pipeline.runs
         select copy.* from copies c join pipeline.runs r on r.id = c.run
         cross join lateral jsonb_populate_record(r, jsonb_build_object('id', c.id)) as copy",
        "insert into pipeline.steps
         select copy.* from copies c join pipeline.steps s on s.run = c.run
         cross join lateral jsonb_populate_record(s, jsonb_build_object('run', c.id)) as copy",
        "insert into pipeline.events
         select copy.* from copies c join pipeline.events e on e.run = c.run
         cross join lateral jsonb_populate_record(e, jsonb_build_object('run', c.id)) as copy",
    ] {
        sqlx::query(copy).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    // Else the server would see to it while we measure.
    for after in ["vacuum (analyze)", "checkpoint"] {
        sqlx::query(after).execute(&pool).await?;
    }
    pool.close().await;
    Ok(Measured::default())
}

/// Runs this many runs at a time to their end, until this many steps have ended.
pub(super) async fn run(
    url: &str,
    spec: GraphSpec,
    steps: u64,
    in_flight: u64,
) -> Result<Measured> {
    let pool = pool(url).await?;
    let client = Client::new(pool.clone());
    let graph = Graph::compile(spec)?;
    let size = graph.len() as u64;
    let runs = steps / size;
    let worker = Worker::new(pool.clone())
        .register::<Noop>()
        .group(GROUP)
        .queue("default", SLOTS);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    let started = AtomicU64::new(0);
    let began = Instant::now();
    try_join_all((0..in_flight).map(async |_| {
        while started.fetch_add(1, Ordering::Relaxed) < runs {
            let params = vec![None; graph.len()];
            let run = client
                .start(Pipeline::from_graph(graph.clone(), params))
                .await?;
            let status = run.wait().await?;
            if status != RunStatus::Succeeded {
                return Err(format!("run {} is {status}", run.id()).into());
            }
        }
        Result::<()>::Ok(())
    }))
    .await?;
    let seconds = began.elapsed().as_secs_f64();
    let _ = stop.send(());
    running.await??;
    pool.close().await;
    Ok(Measured {
        items: runs * size,
        seconds,
        ..Measured::default()
    })
}
