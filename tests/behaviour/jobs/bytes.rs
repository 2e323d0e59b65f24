//! Rule 31: a bulk enqueue is bounded in bytes. Statements are cut into pages, and one call has a limit.

use jobs::extension::limits::Bytes;
use jobs::{Client, Error, NewJob};
use tests::{Database, with_database};

use super::support::{Do, What, client, count};

const PAGE: usize = 4_000;

fn small(db: &Database) -> Client {
    let (page, call) = (PAGE, 100_000);
    client(db).with_bytes(Bytes { page, call })
}

fn new(no: usize) -> NewJob {
    let name = format!("{no} {}", "x".repeat(500));
    let job = NewJob::new(&Do::new(&name, What::Succeed));
    match no % 2 {
        0 => job,
        _ => job.key(format!("k{}", 1_000 - no)),
    }
}

/// A table of how many bytes each statement has inserted; and one job that no statement can insert.
async fn measure(db: &Database) {
    sqlx::raw_sql(
        "create table pages (bytes bigint);
         create function measure() returns trigger language plpgsql as $$
         begin
             insert into pages select sum(octet_length(args::text)) from inserted;
             return null;
         end $$;
         create trigger measure after insert on pipeline.jobs
             referencing new table as inserted for each statement execute function measure();
         create function refuse() returns trigger language plpgsql as $$
         begin raise 'refused'; end $$;
         create trigger refuse before insert on pipeline.jobs for each row
             when (new.args ->> 'name' = 'bad') execute function refuse()",
    )
    .execute(db.pool())
    .await
    .unwrap();
}

#[tokio::test]
async fn many_jobs_are_enqueued_in_several_statements_and_returned_in_order() {
    with_database(async |db| {
        measure(db).await;
        let client = small(db);
        let taken = client.enqueue(new(7)).await.unwrap();
        let added = client.enqueue_many((0..40).map(new)).await.unwrap();
        assert_eq!(added[7].id, taken.id);
        assert!(!added[7].is_new());
        let mut ids: Vec<(jobs::JobId, String)> =
            sqlx::query_as("select id, split_part(args ->> 'name', ' ', 1) from pipeline.jobs")
                .fetch_all(db.pool())
                .await
                .unwrap();
        ids.sort_by_key(|(_, name)| name.parse::<usize>().unwrap());
        let sent: Vec<_> = added
            .iter()
            .zip(0..)
            .map(|(job, no)| (job.id, no.to_string()))
            .collect();
        assert_eq!(ids, sent);
        let largest: i64 = sqlx::query_scalar("select max(bytes) from pages")
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert!((500..=PAGE as i64).contains(&largest), "{largest}");
    })
    .await;
}

#[tokio::test]
async fn a_page_that_is_refused_takes_back_the_others() {
    with_database(async |db| {
        measure(db).await;
        let client = small(db);
        let bad = || NewJob::new(&Do::new("bad", What::Succeed)).key("z");
        let jobs = || (0..40).map(new).chain([bad()]);
        client.enqueue_many(jobs()).await.unwrap_err();
        client.batch().jobs(jobs()).await.unwrap_err();
        let batch = client.batch().open().await.unwrap();
        batch.add(jobs()).await.unwrap_err();
        assert_eq!(batch.state().await.unwrap().total, 0);
        // The caller's transaction goes on without them.
        let mut tx = db.pool().begin().await.unwrap();
        client.enqueue_in(&mut tx, new(0)).await.unwrap();
        client.enqueue_many_in(&mut tx, jobs()).await.unwrap_err();
        client.batch_in(&mut tx).jobs(jobs()).await.unwrap_err();
        tx.commit().await.unwrap();
        assert_eq!(count(db, "do").await, 1);
    })
    .await;
}

#[tokio::test]
async fn one_call_has_a_limit_in_bytes() {
    with_database(async |db| {
        let client = small(db);
        let error = client.enqueue_many((0..300).map(new)).await.unwrap_err();
        assert!(
            matches!(error, Error::TooManyBytes { limit: 100_000, .. }),
            "{error}"
        );
        let said =
            "and 100000 is the limit: enqueue them in several calls, or store their data elsewhere";
        assert!(error.to_string().contains(said), "{error}");
        client.batch().jobs((0..300).map(new)).await.unwrap_err();
        assert_eq!(count(db, "do").await, 0);
    })
    .await;
}
