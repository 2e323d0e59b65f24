//! A step is a job in a batch of its own, and is shown as one.

use pipeline::jobs::{JobFilter, JobStatus};
use pipeline::{Client, Pipeline, RunStatus};
use serde_json::json;
use tests::{Database, with_database};

use super::support::{Running, What, act};

/// Total, ended, failed, whether it is finished, and the step.
type Shown = (i32, i32, i32, bool, Option<String>);

async fn batches(db: &Database, run: pipeline::RunId) -> Vec<(jobs::JobId, Shown)> {
    let rows: Vec<(jobs::JobId, i32, i32, i32, bool, Option<String>)> = sqlx::query_as(
        "select id, total, ended, failed, finished_at is not null, step
         from pipeline.batches where run = $1 order by id",
    )
    .bind(run)
    .fetch_all(db.pool())
    .await
    .unwrap();
    let shown =
        |(id, total, ended, failed, finished, step)| (id, (total, ended, failed, finished, step));
    rows.into_iter().map(shown).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_that_was_enqueued_is_a_batch_of_one() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("b", What::Fail);
        let pipeline = Pipeline::configure("three", |p| {
            let a = p.step("a", act("a"));
            let b = p.following(&a).step("b", act("b"));
            p.following(&b).step("c", act("c"));
        });
        // Each act makes sure that its batch is what its context says.
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Halted);
        let shown = batches(db, run.id()).await;
        let state = run.state().await.unwrap();
        let of = |key: &str| state.step(key).unwrap().job_id;
        let a = (of("a"), (1, 1, 0, true, Some("a".to_owned())));
        let b = (of("b"), (1, 1, 1, true, Some("b".to_owned())));
        assert_eq!(shown, [a, b]);
        it.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_step_in_the_queue_shows_its_params_and_its_batch() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let pipeline = Pipeline::configure("one", |p| p.step("a", act("hello")));
        let run = client.start(pipeline.unwrap()).await.unwrap();
        let plain = client.enqueue(act("plain")).await.unwrap();

        let jobs = client.jobs(&JobFilter::new()).await.unwrap().items;
        assert_eq!(jobs.len(), 2);
        let id = run.state().await.unwrap().step("a").unwrap().job_id;
        for step in [
            jobs.iter().find(|job| job.id == id).unwrap(),
            &client.job(id).info().await.unwrap().unwrap(),
        ] {
            assert_eq!(
                (step.batch, &step.args),
                (Some(id.get().into()), &json!("hello"))
            );
            assert_eq!((&*step.job_type, step.status), ("act", JobStatus::Ready));
        }
        let plain = client.job(plain.id).info().await.unwrap().unwrap();
        assert_eq!((plain.batch, plain.args), (None, json!("plain")));
    })
    .await;
}
