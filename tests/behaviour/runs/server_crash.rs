//! What a crash of the database server may repeat with `Plan::asynchronous_commit`, and what it may not.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use local_postgres::{Cluster, Durability, Server};
use parking_lot::Mutex;
use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Client, Pipeline, RunStatus, Worker};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::support::eventually;

/// A step with one attempt, which must not be lost with the server's memory.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "crash.step", max_attempts = 1, lease = "30s")]
struct Step(String);

/// How often each step was performed, and the gate at which those called `b` wait.
#[derive(Default)]
struct Performed {
    counts: Mutex<HashMap<String, u32>>,
    gate: Option<Semaphore>,
}

impl Performed {
    fn count(&self, step: &str) -> u32 {
        self.counts.lock().get(step).copied().unwrap_or(0)
    }
}

impl Perform for Step {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        let performed = cx.data::<Arc<Performed>>()?;
        *performed.counts.lock().entry(self.0.clone()).or_default() += 1;
        if let Some(gate) = performed.gate.as_ref().filter(|_| self.0 == "b") {
            gate.acquire().await?.forget();
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_the_server_repeats_steps_and_fails_none() {
    let cluster = Cluster::temporary("asynchronous", std::process::id(), Durability::Durable);
    let mut server = Server::private(cluster.unwrap()).unwrap();
    let pool = server.pool("postgres", 10).await.unwrap();
    // The server's own writer would write the WAL out soon after each commit.
    for statement in [
        "alter system set wal_writer_delay = '10s'",
        "select pg_reload_conf()",
    ] {
        sqlx::query(statement).execute(&pool).await.unwrap();
    }
    let client = Client::new(pool.clone());
    client.migrate().await.unwrap();
    let performed = Arc::new(Performed {
        gate: Some(Semaphore::new(0)),
        ..Performed::default()
    });
    let stop = CancellationToken::new();
    let worker = Worker::new(pool.clone())
        .register::<Step>()
        .data(Arc::clone(&performed))
        .queue("default", 4);
    let working = tokio::spawn(worker.run_until(stop.clone().cancelled_owned()));

    let mut crashes = 0;
    while performed.count("a") <= crashes && crashes < 20 {
        let chain = Pipeline::configure("chain", |p| {
            p.asynchronous_commit();
            let a = p.step("a", Step("a".into()));
            let b = p.following(&a).step("b", Step("b".into()));
            p.following(&b).step("c", Step("c".into()));
        });
        let begun = performed.count("b");
        let run = client.start(chain.unwrap()).await.unwrap();
        eventually("b begins", async || {
            (performed.count("b") > begun).then_some(())
        })
        .await;
        crashes += 1;
        let crash = server.cluster_mut().unwrap();
        tokio::task::block_in_place(|| crash.crash_and_restart()).unwrap();
        if let Some(gate) = &performed.gate {
            gate.add_permits(10);
        }
        let status = run.wait().timeout(Duration::from_secs(60)).await;
        assert_eq!(status.unwrap(), RunStatus::Succeeded);
        eprintln!("crash {crashes}: {:?}", performed.counts.lock());
    }
    assert!(
        performed.count("a") > crashes,
        "no advance was lost: {:?}",
        performed.counts.lock()
    );
    stop.cancel();
    working.await.unwrap().unwrap();
    pool.close().await;
}
