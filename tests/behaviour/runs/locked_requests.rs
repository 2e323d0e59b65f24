//! A request whose own row somebody has locked does not make the fleet try it again and again.
//!
//! The test runs on one thread, on which every statement of the workers is logged.

use std::time::Duration;

use pipeline::{Client, Pipeline};
use tests::with_database;

use super::support::{Running, act, eventually};
use crate::logged::Captured;

/// How often the workers have sent a statement with this text.
fn sent(text: &str) -> usize {
    let log = Captured::so_far();
    log.lines().filter(|line| line.contains(text)).count()
}

/// A call of the maintenance task tries a locked request once, and leaves it to the next call.
#[tokio::test]
async fn a_locked_request_is_tried_once_in_each_call() {
    Captured::begin();
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let pipeline = Pipeline::configure("x", |p| {
            p.step("a", act("x")).delay(Duration::from_secs(3_600))
        });
        let run = client.start(pipeline.unwrap()).await.unwrap();
        let mut tx = db.pool().begin().await.unwrap();
        run.cancel_in(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        let mut held = db.pool().begin().await.unwrap();
        sqlx::query("select id from pipeline.requests for update")
            .fetch_one(&mut *held)
            .await
            .unwrap();
        let workers = [Running::start(db), Running::start(db)];
        let calls = || sent("pipeline.due_maintenance_v1(");
        let tries = || sent("pipeline.process_request_v1(");
        for _ in 0..10 {
            let before = (calls(), tries());
            sqlx::query("select pg_notify('pipeline_requests', '')")
                .execute(db.pool())
                .await
                .unwrap();
            eventually("the request is tried in another call", async || {
                (calls() > before.0 && tries() > before.1).then_some(())
            })
            .await;
            // A call logs its first statement before it tries the request.
            assert!(tries() <= calls(), "{} tries in {} calls", tries(), calls());
        }
        held.rollback().await.unwrap();
        workers[0].becomes(&run, "cancelled").await;
        for worker in workers {
            worker.stop().await;
        }
    })
    .await;
    Captured::text();
}
