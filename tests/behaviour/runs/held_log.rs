//! What a worker logs while another session holds a run. The test runs on one thread, on which the log is
//! captured.

use std::time::Duration;

use pipeline::Pipeline;
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
        let id = format!("run.id={} ", run.id());
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
