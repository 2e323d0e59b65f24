//! A batch in the caller's transaction; and what a batch holds while jobs are added to it.

use jobs::{BatchEnded, Client, Context, Error, Job, JobError, NewJob, Perform};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection};
use tests::{Database, with_database};

use super::support::{Do, Log, Running, What, client, count, eventually, impatient};

/// A callback whose data is a number that no float holds.
#[derive(Debug, Serialize, Deserialize, Job)]
struct Tell(i128);

impl Perform for Tell {
    type Input = BatchEnded;
    type Output = ();

    async fn perform(self, ended: BatchEnded, cx: &Context) -> Result<(), JobError> {
        let (total, failed) = (ended.total, ended.failed);
        cx.data::<Log>()?
            .write(format!("{}: {total}, {failed}", self.0));
        Ok(())
    }
}

fn jobs(count: usize) -> Vec<Do> {
    vec![Do::new("a", What::Succeed); count]
}

async fn batches(db: &Database) -> i64 {
    sqlx::query_scalar("select count(*) from pipeline.batch_sets")
        .fetch_one(db.pool())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_appears_with_the_callers_rows() {
    with_database(async |db| {
        let it = Running::start(db, |worker| worker.register::<Tell>().queue("*", 4));
        let client = client(db);
        let mut tx = db.pool().begin().await.unwrap();
        let batch = client
            .batch_in(&mut tx)
            .on_finish(Tell(i128::MAX))
            .jobs(jobs(3))
            .await
            .unwrap();
        assert!(matches!(
            batch.state().await.unwrap_err(),
            Error::NoBatch { .. }
        ));
        assert_eq!(count(db, "do").await, 0);
        tx.commit().await.unwrap();
        it.log.says(&format!("{}: 3, 0", i128::MAX)).await;
        assert!(batch.state().await.unwrap().finished);

        // Without jobs it finishes with the commit.
        let mut tx = db.pool().begin().await.unwrap();
        client
            .batch_in(&mut tx)
            .on_finish(Tell(i128::MIN))
            .jobs(jobs(0))
            .await
            .unwrap();
        tx.commit().await.unwrap();
        it.log.says(&format!("{}: 0, 0", i128::MIN)).await;
        it.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_batch_that_is_rolled_back_never_was() {
    with_database(async |db| {
        let client = client(db);
        let mut tx = db.pool().begin().await.unwrap();
        client
            .batch_in(&mut tx)
            .on_finish(Tell(1))
            .jobs(jobs(3))
            .await
            .unwrap();
        client.batch_in(&mut tx).open().await.unwrap();
        tx.rollback().await.unwrap();
        assert_eq!((batches(db).await, count(db, "do").await), (0, 0));
        // A mistake is said before anything is written, and the transaction goes on.
        let mut tx = db.pool().begin().await.unwrap();
        let wrong = NewJob::new(&Do::new("a", What::Succeed)).max_attempts(0);
        client.batch_in(&mut tx).jobs([wrong]).await.unwrap_err();
        let open = client.batch_in(&mut tx).open().await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(batches(db).await, 1);
        open.add(jobs(2)).await.unwrap();
        assert_eq!(open.state().await.unwrap().total, 2);
    })
    .await;
}

#[tokio::test]
async fn a_batch_on_a_connection_without_a_transaction_is_one_of_its_own() {
    with_database(async |db| {
        let client = client(db);
        let mut connection = PgConnection::connect_with(&db.pool().connect_options())
            .await
            .unwrap();
        client
            .batch_in(&mut connection)
            .jobs(jobs(2))
            .await
            .unwrap();
        assert_eq!((batches(db).await, count(db, "do").await), (1, 2));
        sqlx::raw_sql("begin")
            .execute(&mut connection)
            .await
            .unwrap();
        client
            .batch_in(&mut connection)
            .jobs(jobs(2))
            .await
            .unwrap();
        sqlx::raw_sql("rollback")
            .execute(&mut connection)
            .await
            .unwrap();
        assert_eq!((batches(db).await, count(db, "do").await), (1, 2));
        connection.close().await.unwrap();
    })
    .await;
}

fn keyed() -> NewJob {
    NewJob::new(&Do::new("held", What::Succeed)).key("k")
}

/// Adds a job whose key an open transaction has taken, and comes back when the call waits for it.
async fn add_that_waits(
    db: &Database,
    client: &Client,
    batch: &jobs::Batch,
) -> (
    sqlx::PgTransaction<'static>,
    tokio::task::JoinHandle<jobs::Result<Vec<jobs::Enqueued>>>,
) {
    let mut tx = db.pool().begin().await.unwrap();
    client.enqueue_in(&mut tx, keyed()).await.unwrap();
    let adding = tokio::spawn({
        let batch = batch.clone();
        async move { batch.add([keyed()]).await }
    });
    eventually("the call waits for the key", async || {
        let waiting =
            "select exists (select from pg_stat_activity where datname = current_database()
                       and wait_event_type = 'Lock' and query like '%enqueue_jobs_v1%')";
        let waits: bool = sqlx::query_scalar(waiting)
            .fetch_one(db.pool())
            .await
            .unwrap();
        waits.then_some(())
    })
    .await;
    (tx, adding)
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_added_without_holding_the_batch() {
    with_database(async |db| {
        let client = client(db);
        let batch = client.batch().open().await.unwrap();
        let (tx, adding) = add_that_waits(db, &client, &batch).await;
        // An end of one of its jobs could be counted now.
        sqlx::query("select from pipeline.batch_sets where id = $1 for no key update nowait")
            .bind(batch.id())
            .execute(db.pool())
            .await
            .unwrap();
        tx.rollback().await.unwrap();
        assert!(adding.await.unwrap().unwrap()[0].is_new());
        assert_eq!(batch.state().await.unwrap().total, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_added_to_a_batch_that_is_sealed_meanwhile() {
    with_database(async |db| {
        let client = Client::new(impatient(db, 5));
        let batch = client.batch().open().await.unwrap();
        let (tx, adding) = add_that_waits(db, &client, &batch).await;
        batch.seal().await.unwrap();
        tx.rollback().await.unwrap();
        let error = adding.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::BatchClosed { .. }), "{error}");
        assert_eq!(count(db, "do").await, 0);
    })
    .await;
}
