//! What a worker logs of runs that are held and of steps whose workers died. The tests run on one thread each, on which the log is
//! captured.

use std::time::Duration;

use pipeline::{Client, Pipeline};
use tests::with_database;

use super::support::{Running, What, act, eventually};
use crate::logged::Captured;

#[tokio::test]
async fn a_run_that_a_session_holds_for_long_is_logged_with_the_number_of_its_ends() {
    Captured::begin();
    with_database(async |db| {
        let it = Running::start_with(db, |worker| worker.held_warning(Duration::from_millis(300)));
        it.script.tell("a", What::Wait);
        it.script.tell("b", What::Wait);
        let pipeline = Pipeline::configure("x", |p| {
            p.step("a", act("a"));
            p.step("b", act("b"));
        });
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        it.script.says("a").await;
        it.script.says("b").await;
        let mut held = db.pool().begin().await.unwrap();
        sqlx::query("select from pipeline.runs where id = $1 for no key update")
            .bind(run.id())
            .execute(&mut *held)
            .await
            .unwrap();
        it.script.let_through("a");
        it.script.let_through("b");
        let id = format!("run{{run.id={}}}", run.id());
        eventually("the held run is logged", async || {
            let log = Captured::so_far();
            let text = "wait for a row that another session holds";
            let has = |line: &&str| line.contains(text) && line.contains(&id);
            log.lines().any(|line| has(&line)).then_some(())
        })
        .await;
        held.rollback().await.unwrap();
        it.becomes(&run, "succeeded").await;
        it.stop().await;
    })
    .await;
    Captured::text();
}

/// The log line of a takeover names the step, although its worker has died.
#[tokio::test]
async fn a_step_whose_worker_died_is_logged_with_its_type_its_run_and_its_key() {
    Captured::begin();
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let pipeline = Pipeline::configure("x", |p| p.step("first", act("a")).max_attempts(2));
        let run = client.start(pipeline.unwrap()).await.unwrap();
        sqlx::query(
            "update pipeline.jobs set status = 'running', token = id, worker = 99, attempt = 1,
                    claimed_at = pipeline.now() - interval '2 hours',
                    lease_until = pipeline.now() - interval '1 hour'",
        )
        .execute(db.pool())
        .await
        .unwrap();
        let it = Running::start(db);
        it.becomes(&run, "succeeded").await;
        it.stop().await;
        let log = Captured::so_far();
        let line = log.lines().find(|line| line.contains("will be retried"));
        let line = line.expect("the takeover is logged");
        let id = format!("run.id={} ", run.id());
        for part in ["job.type=\"act\"", &id, "step.key=\"first\"", "WorkerDied"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    })
    .await;
    Captured::text();
}
