//! The first start of a pipeline stores its graph, and blocks nobody else's first start.
//! Connections give up waiting for a lock after a while: a start that waits for another fails.

use pipeline::{Client, RunStatus};
use sqlx::PgPool;
use tests::{Database, with_database};

use super::start::{count, says};
use super::support::{Running, eventually};
use crate::jobs::support::impatient;

/// Opens two connections, and waits until the pool has them back.
async fn open_two(pool: &PgPool) {
    drop((pool.acquire().await.unwrap(), pool.acquire().await.unwrap()));
    eventually("both are idle", async || {
        (pool.num_idle() == 2).then_some(())
    })
    .await;
}

async fn graphs(db: &Database) -> i64 {
    sqlx::query_scalar("select count(*) from pipeline.graphs")
        .fetch_one(db.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_first_start_in_an_open_transaction_blocks_nobody() {
    with_database(async |db| {
        let (one, two) = (impatient(db, 2), impatient(db, 2));
        // Two connections, of which one is free: the graph is stored on it.
        open_two(&one).await;
        let (a, b) = (Client::new(one.clone()), Client::new(two.clone()));
        let mut tx = one.begin().await.unwrap();
        a.start_in(&mut tx, says("video", "x")).await.unwrap();
        b.start(says("video", "x")).await.unwrap();
        a.start(says("video", "x")).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!((count(&a).await, graphs(db).await), (3, 1));
    })
    .await;
}

#[tokio::test]
async fn two_that_start_the_same_pipelines_crosswise_do_not_meet() {
    with_database(async |db| {
        let (one, two) = (impatient(db, 1), impatient(db, 1));
        let (a, b) = (Client::new(one.clone()), Client::new(two.clone()));
        // Each pool has the one connection that its transaction is on.
        let (mut first, mut second) = (one.begin().await.unwrap(), two.begin().await.unwrap());
        a.start_in(&mut first, says("p1", "x")).await.unwrap();
        b.start_in(&mut second, says("p2", "x")).await.unwrap();
        a.start_in(&mut first, says("p2", "x")).await.unwrap();
        b.start_in(&mut second, says("p1", "x")).await.unwrap();
        first.commit().await.unwrap();
        second.commit().await.unwrap();
        assert_eq!(count(&a).await, 4);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_that_was_stored_in_a_lost_transaction_is_stored_again() {
    with_database(async |db| {
        let it = Running::start(db);
        let one = impatient(db, 1);
        let client = Client::new(one.clone());
        let mut tx = one.begin().await.unwrap();
        client.start_in(&mut tx, says("video", "x")).await.unwrap();
        // Twice in one transaction, and by another client meanwhile.
        client.start_in(&mut tx, says("video", "x")).await.unwrap();
        let other = Client::new(impatient(db, 1));
        let other = other.start(says("video", "x")).await.unwrap();
        tx.rollback().await.unwrap();
        let run = client.start(says("video", "x")).await.unwrap();
        for run in [run, other] {
            assert_eq!(
                it.client.run(run.id()).wait().await.unwrap(),
                RunStatus::Succeeded
            );
        }
        assert_eq!((count(&client).await, graphs(db).await), (2, 1));
        it.stop().await;
    })
    .await;
}

/// The transaction does not see what others store after it has begun.
#[tokio::test]
async fn a_first_start_works_in_a_transaction_with_an_old_snapshot() {
    with_database(async |db| {
        let one = impatient(db, 2);
        open_two(&one).await;
        let client = Client::new(one.clone());
        let mut tx = one.begin().await.unwrap();
        for sql in [
            "set transaction isolation level repeatable read",
            "select 1",
        ] {
            sqlx::query(sql).execute(&mut *tx).await.unwrap();
        }
        Client::new(one.clone())
            .start(says("video", "x"))
            .await
            .unwrap();
        client.start_in(&mut tx, says("video", "x")).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(count(&client).await, 2);
    })
    .await;
}

/// Many processes after a deploy: one of them stores the graph.
#[tokio::test(flavor = "multi_thread")]
async fn a_graph_that_many_store_at_once_is_stored_once() {
    with_database(async |db| {
        let starts = (0..8).map(|_| {
            let client = Client::new(db.pool().clone());
            tokio::spawn(async move { client.start(says("video", "x")).await })
        });
        for start in starts.collect::<Vec<_>>() {
            start.await.unwrap().unwrap();
        }
        assert_eq!(graphs(db).await, 1);
    })
    .await;
}
