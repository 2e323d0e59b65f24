//! What a worker logs while a row or a renewal makes it wait.
//!
//! These tests run on one thread each, on which the log is captured.

use std::time::Duration;

use jobs::{JobStatus, NewJob};
use tests::{Database, with_database};

use super::support::{Do, Running, What, client, ended, eventually, sql};
use crate::logged::Captured;

/// Waits until a line with all these parts is logged, and returns it.
async fn logged(parts: &[&str]) -> String {
    eventually(&parts.join(" "), async || {
        let log = Captured::so_far();
        let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
        log.lines().find(has_all).map(str::to_owned)
    })
    .await
}

/// Replaces a function by one that first waits: the database is slow, and answers.
async fn slow_renewals(db: &Database) {
    sql(
        db,
        "alter function pipeline.renew_leases_v1(bigint[], bigint[]) rename to renew_at_once_v1;
         create function pipeline.renew_leases_v1(
             p_ids bigint[], p_tokens bigint[], out lost bigint[], out held bigint[]
         ) language plpgsql as $$
         begin
             perform pg_sleep(1.5);
             select r.lost, r.held into lost, held from pipeline.renew_at_once_v1(p_ids, p_tokens) as r;
         end $$",
    )
    .await;
}

/// The limit of a renewal is its own: the lease that runs out first stops its job, and is no outage.
#[tokio::test]
async fn a_job_whose_lease_runs_out_is_stopped_during_a_renewal_and_no_outage_is_logged() {
    Captured::begin();
    with_database(async |db| {
        slow_renewals(db).await;
        let worker = Running::start(db, |worker| worker.queue("default", 2));
        let short = NewJob::new(&Do::new("short", What::AtGate)).lease(Duration::from_secs(1));
        let id = client(db).enqueue(short).await.unwrap().id;
        logged(&[
            "lease could not be renewed; job stopped",
            &format!("job.id={id}"),
        ])
        .await;
        worker.log.says("short dropped").await;
        // The same connection goes on: a job with a longer lease keeps its lease.
        let long = NewJob::new(&Do::new("long", What::AtGate)).lease(Duration::from_secs(6));
        let long = client(db).enqueue(long).await.unwrap().id;
        worker.log.says("long 1").await;
        let renewed = "select exists (select from pipeline.jobs where id = $1
                                      and lease_until > claimed_at + interval '7 s')";
        eventually("the lease is renewed", async || {
            let renewed = sqlx::query_scalar::<_, bool>(renewed).bind(long);
            renewed.fetch_one(db.pool()).await.unwrap().then_some(())
        })
        .await;
        worker.gate.let_through(2);
        assert_eq!(ended(db, long).await.attempt, 1);
        ended(db, id).await;
        worker.stop().await;
        let log = Captured::so_far();
        assert!(!log.contains("database unreachable"), "{log}");
    })
    .await;
    Captured::text();
}

const JOB: &str = "select id from pipeline.jobs where id = $1 for update";
const BATCH: &str = "select id from pipeline.batch_sets where id = $1 for update";

#[tokio::test]
async fn rows_that_a_session_holds_for_long_are_logged_with_their_ids_once() {
    Captured::begin();
    with_database(async |db| {
        let client = client(db);
        let worker = Running::start(db, |worker| {
            let after = Duration::from_millis(300);
            worker.queue("default", 4).held_warning(after)
        });
        let batch = client.batch().open().await.unwrap();
        let in_batch = ["b", "c"].map(|name| Do::new(name, What::AtGate));
        let in_batch = batch.add(in_batch).await.unwrap();
        let job = client.enqueue(Do::new("a", What::AtGate)).await.unwrap().id;
        for line in ["a 1", "b 1", "c 1"] {
            worker.log.says(line).await;
        }
        let mut held = db.pool().begin().await.unwrap();
        for (statement, id) in [(JOB, job), (BATCH, batch.id().get().into())] {
            let locked = sqlx::query(statement).bind(id).fetch_all(&mut *held).await;
            assert_eq!(locked.unwrap().len(), 1);
        }
        worker.gate.let_through(3);
        let text = "wait for a row that another session holds";
        let either = [
            format!("job.id={job} "),
            format!("batch{{batch.id={}}}", batch.id()),
        ];
        let either = |line: &&str| either.iter().any(|id| line.contains(id.as_str()));
        logged(&[" WARN ", text]).await;
        let log = Captured::so_far();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(text)).collect();
        assert!(
            (1..=2).contains(&lines.len()) && lines.iter().all(either),
            "{lines:#?}"
        );
        held.rollback().await.unwrap();
        for id in in_batch.iter().map(|job| job.id).chain([job]) {
            assert_eq!(ended(db, id).await.status, JobStatus::Succeeded);
        }
        worker.stop().await;
        let log = Captured::so_far();
        assert_eq!(
            log.matches(text).count(),
            lines.len(),
            "not repeated at once"
        );
    })
    .await;
    Captured::text();
}

#[tokio::test]
async fn a_stop_that_leaves_an_end_unwritten_names_its_job_and_the_reason() {
    Captured::begin();
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let new = Do::new("a", What::AtGate);
        let job = client(db).enqueue(new).await.unwrap().id;
        worker.log.says("a 1").await;
        let mut held = db.pool().begin().await.unwrap();
        sqlx::query(JOB)
            .bind(job)
            .execute(&mut *held)
            .await
            .unwrap();
        worker.gate.let_through(1);
        worker.log.says("a through").await;
        worker.stop().await;
        logged(&[
            "ERROR",
            "ends of attempts could not be written in time",
            "count=1",
            &format!("jobs=[{job}]"),
            "reason=\"other sessions hold their rows\"",
        ])
        .await;
        held.rollback().await.unwrap();
    })
    .await;
    Captured::text();
}
