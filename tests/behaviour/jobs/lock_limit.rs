//! A client's call does not wait without limit for a row that another transaction holds.

use std::time::Duration;

use jobs::{Client, Error, NewJob};
use sqlx::{Postgres, Transaction};
use tests::{Database, with_database};

use super::support::{Do, What, client, sql};

/// A client that waits for a short time only.
fn hasty(db: &Database) -> Client {
    client(db).with_lock_timeout(Duration::from_millis(50))
}

async fn hold(db: &Database, statement: &'static str) -> Transaction<'static, Postgres> {
    let mut tx = db.pool().begin().await.unwrap();
    let rows = sqlx::raw_sql(statement).fetch_all(&mut *tx).await.unwrap();
    assert_eq!(rows.len(), 1, "the row is there");
    tx
}

/// The call gives up, and says what was not done, to what, and where to look.
fn assert_busy<T>(outcome: Result<T, Error>, said: &str) {
    let Err(error @ Error::Busy { .. }) = outcome else {
        panic!("it should have given up");
    };
    let text = error.to_string();
    assert!(text.starts_with(said), "{text}");
    assert!(
        text.contains("for 50ms") && text.contains("pg_stat_activity"),
        "{text}"
    );
}

#[tokio::test]
async fn a_held_job_is_neither_retried_nor_deleted_and_the_caller_is_told() {
    with_database(async |db| {
        let id = client(db)
            .enqueue(Do::new("a", What::Fail))
            .await
            .unwrap()
            .id;
        let held = hold(db, "select id from pipeline.jobs for update").await;
        assert_busy(
            hasty(db).job(id).delete().await,
            &format!("job {id} was not deleted"),
        );
        assert_busy(
            hasty(db).job(id).retry().await,
            &format!("job {id} was not retried"),
        );
        held.rollback().await.unwrap();
        hasty(db).job(id).delete().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_held_batch_is_neither_filled_nor_sealed_and_the_caller_is_told() {
    with_database(async |db| {
        let batch = hasty(db).batch().open().await.unwrap();
        let held = hold(db, "select id from pipeline.batch_sets for update").await;
        let new = || [NewJob::new(&Do::new("a", What::Succeed))];
        let id = batch.id();
        assert_busy(
            batch.add(new()).await,
            &format!("batch {id} was not filled"),
        );
        assert_busy(batch.seal().await, &format!("batch {id} was not sealed"));
        held.rollback().await.unwrap();
        assert_eq!(batch.state().await.unwrap().total, 0, "nothing was added");
        batch.add(new()).await.unwrap();
        batch.seal().await.unwrap();
        // The limit is that of one transaction, and not of the pool's connection.
        let mut connection = db.pool().acquire().await.unwrap();
        let limit: String = sqlx::query_scalar("show lock_timeout")
            .fetch_one(&mut *connection)
            .await
            .unwrap();
        assert_eq!(limit, "0");
    })
    .await;
}

#[tokio::test]
async fn a_held_queue_is_neither_paused_nor_resumed_and_the_caller_is_told() {
    with_database(async |db| {
        client(db).pause("media").await.unwrap();
        let held = hold(db, "select name from pipeline.queues for update").await;
        assert_busy(
            hasty(db).pause("media").await,
            "queue `media` was not paused",
        );
        assert_busy(
            hasty(db).resume("media").await,
            "queue `media` was not resumed",
        );
        held.rollback().await.unwrap();
        sql(db, "delete from pipeline.queues").await;
    })
    .await;
}
