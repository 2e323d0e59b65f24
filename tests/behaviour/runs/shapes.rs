//! The twelve shapes of the example file, run to their end.

use std::time::Duration;

use pipeline::{Client, Worker};
use tests::with_database;
use tokio_util::sync::CancellationToken;

#[allow(dead_code, unreachable_pub, reason = "an example of its own")]
#[path = "../../../examples/topologies.rs"]
pub(super) mod topologies;

use topologies::{Add, Both, Break, Decide, Make, Mend, OrElse, Sum};

#[tokio::test(flavor = "multi_thread")]
async fn every_shape_runs_to_its_end() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let stop = CancellationToken::new();
        let worker = Worker::new(db.pool().clone())
            .register::<(Make, Add, Sum, Both, OrElse, Break, Decide, Mend)>()
            .queue("*", 8);
        let worker = tokio::spawn(worker.run_until(stop.clone().cancelled_owned()));
        for (name, declare) in topologies::all() {
            let run = client.start(declare().unwrap()).await.unwrap();
            let mut tries = 0;
            loop {
                let status: String = sqlx::query_scalar("select status::text from pipeline.runs where id = $1")
                    .bind(run.id()).fetch_one(db.pool()).await.unwrap();
                tries += 1;
                if status != "running" || tries > 50 {
                    eprintln!("{name}: {status}");
                    let steps: Vec<(String, String, Option<String>, Option<String>, Option<String>)> = sqlx::query_as("select v.step, v.status, v.reason, v.cause, coalesce(v.error_message, s.output::text) from pipeline.run_steps v join pipeline.steps s on s.run = v.run and s.no = v.no where v.run = $1 order by v.no").bind(run.id()).fetch_all(db.pool()).await.unwrap();
                    for step in steps { eprintln!("   {step:?}"); }
                    let jobs: Vec<(String,)> = sqlx::query_as("select to_jsonb(j)::text from pipeline.jobs j").fetch_all(db.pool()).await.unwrap();
                    for job in jobs { eprintln!("   {job:?}"); }
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        stop.cancel();
        worker.await.unwrap().unwrap();
    })
    .await;
}
