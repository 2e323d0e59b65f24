//! How long a cancel takes while many workers advance the run.

use std::time::{Duration, Instant};

use jobs::{Context, Job, JobError, Perform};
use pipeline::graph::spec::Takes;
use pipeline::{Client, Graph, Pipeline, Run, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::sync::watch;

use crate::frame::Result;
use crate::graphs::graph;

const WORKERS: usize = 22;
const SLOTS: u32 = 8;
/// How long each of the waits may take: until the run is under way, is cancelled, has ended.
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

#[derive(Serialize, Deserialize, Job)]
#[job(name = "chaos.noop")]
struct Noop;

impl Perform for Noop {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

/// Times of some cancels, and what went wrong.
#[derive(Default)]
pub(super) struct Cancels {
    pub(super) milliseconds: Vec<f64>,
    pub(super) violations: Vec<String>,
}

/// Starts a run of unconnected no-op steps again and again, under many workers, and cancels it when a
/// tenth of the steps has ended.
pub(super) async fn cancels(pool: &PgPool, times: u32, steps: usize) -> Result<Cancels> {
    let mut cancels = Cancels::default();
    let client = Client::new(pool.clone());
    let (stop, _) = watch::channel(false);
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let mut stopped = stop.subscribe();
            let worker = Worker::new(pool.clone())
                .register::<Noop>()
                .queue("default", SLOTS)
                .grace(Duration::from_secs(1));
            tokio::spawn(worker.run_until(async move {
                let _ = stopped.wait_for(|stop| *stop).await;
            }))
        })
        .collect();
    for _ in 0..times {
        let run = client.start(flat(steps)?).await?;
        cancels.measure(pool, &run, steps).await?;
    }
    let _ = stop.send(true);
    for worker in workers {
        match tokio::time::timeout(WAIT_TIMEOUT, worker).await {
            Ok(outcome) => outcome??,
            Err(_) => cancels
                .violations
                .push(format!("a worker has not stopped in {WAIT_TIMEOUT:?}")),
        }
    }
    Ok(cancels)
}

impl Cancels {
    async fn measure(&mut self, pool: &PgPool, run: &Run, steps: usize) -> Result<()> {
        let busy = (steps - steps / 10) as i32;
        let under_way = "select live_steps <= $2 from pipeline.runs where id = $1";
        if !until(pool, under_way, run, busy).await? {
            self.fail(run, "did not get under way");
            return Ok(());
        }
        let began = Instant::now();
        match tokio::time::timeout(WAIT_TIMEOUT, run.cancel()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(run, &format!("could not be cancelled: {error}")),
            Err(_) => self.fail(run, "was not cancelled in time"),
        }
        // The call may return before the cancel has been taken up.
        let taken_up = "select status <> 'running' and $2 >= 0 from pipeline.runs where id = $1";
        if !until(pool, taken_up, run, busy).await? {
            self.fail(run, "is still running after its cancel");
        }
        self.milliseconds
            .push(began.elapsed().as_secs_f64() * 1_000.0);
        let ended = "select status = 'cancelled' and $2 >= 0 from pipeline.runs where id = $1";
        if !until(pool, ended, run, busy).await? {
            self.fail(run, "has not ended cancelled");
        }
        Ok(())
    }

    fn fail(&mut self, run: &Run, what: &str) {
        self.violations.push(format!("run {}: {what}", run.id()));
    }
}

fn flat(steps: usize) -> Result<Pipeline> {
    let spec = graph(steps, Noop::NAME, Takes::Order, |_| Vec::new());
    let params = vec![Some(serde_json::to_string(&Noop)?); steps];
    Ok(Pipeline::from_graph(Graph::compile(spec)?, params))
}

/// Waits until the query says yes; false if the time is over before.
async fn until(pool: &PgPool, query: &'static str, run: &Run, number: i32) -> Result<bool> {
    let began = Instant::now();
    while began.elapsed() < WAIT_TIMEOUT {
        let yes: bool = sqlx::query_scalar(query)
            .bind(run.id())
            .bind(number)
            .fetch_one(pool)
            .await?;
        if yes {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(false)
}
