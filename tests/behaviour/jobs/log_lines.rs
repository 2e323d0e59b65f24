//! What a worker logs: each end for good and each retry once, its connections, and when it has stopped.
//!
//! These tests run on one thread each, on which the log is captured.

use std::time::Duration;

use jobs::{JobStatus, NewJob};
use tests::{Database, Errand, with_database};

use super::support::{Do, Running, What, ask, client, ended, when};
use crate::logged::Captured;

/// The captured lines of a job.
fn lines_of(id: jobs::JobId) -> Vec<String> {
    let job = format!("job.id={id} ");
    let log = Captured::so_far();
    // A span repeats the fields of its job; only events are of interest.
    let of_it = |line: &&str| {
        line.contains(&job)
            && (line.contains("failed for good") || line.contains("will be retried"))
    };
    log.lines().filter(of_it).map(str::to_owned).collect()
}

fn assert_one_line(id: jobs::JobId, parts: &[&str]) {
    let lines = lines_of(id);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    for part in parts {
        assert!(lines[0].contains(part), "{part}: {}", lines[0]);
    }
}

#[tokio::test]
async fn a_job_that_no_worker_knows_is_one_log_line_when_it_fails() {
    Captured::begin();
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let id = client(db).enqueue(Errand::new("a")).await.unwrap().id;
        when(db, id, |job| job.status == JobStatus::Scheduled).await;
        db.move_clock(Duration::from_secs(660)).await;
        ended(db, id).await;
        worker.stop().await;
        let class = "error.class=\"NoHandler\"";
        assert_one_line(
            id,
            &[
                " WARN ",
                "job failed for good",
                "job.type=\"errand\"",
                class,
                "register it",
            ],
        );
    })
    .await;
    Captured::text();
}

/// A job whose worker died in its first attempt.
async fn orphan(db: &Database, attempts: u16) -> jobs::JobId {
    let new = NewJob::new(&Do::new("a", What::Succeed)).max_attempts(attempts);
    let id = client(db).enqueue(new).await.unwrap().id;
    sqlx::query(
        "update pipeline.jobs set status = 'running', token = id, worker = 99, attempt = 1,
                claimed_at = pipeline.now() - interval '2 hours',
                lease_until = pipeline.now() - interval '1 hour' where id = $1",
    )
    .bind(id)
    .execute(db.pool())
    .await
    .unwrap();
    id
}

#[tokio::test]
async fn a_takeover_is_logged_as_the_retry_or_the_failure_that_it_is() {
    Captured::begin();
    with_database(async |db| {
        let (last, first) = (orphan(db, 1).await, orphan(db, 2).await);
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        assert_eq!(ended(db, last).await.status, JobStatus::Failed);
        assert_eq!(ended(db, first).await.status, JobStatus::Succeeded);
        worker.stop().await;
        let class = "error.class=\"WorkerDied\"";
        let parts = [" WARN ", "job failed for good", "job.type=\"do\"", class];
        assert_one_line(last, &parts);
        let parts = [
            " INFO ",
            "will be retried",
            "job.type=\"do\"",
            class,
            "attempt=1",
        ];
        assert_one_line(first, &parts);
    })
    .await;
    Captured::text();
}

#[tokio::test]
async fn a_retry_is_logged_at_info() {
    Captured::begin();
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let new = Do::new("a", What::FailTimes(1));
        let id = client(db).enqueue(new).await.unwrap().id;
        assert_eq!(ended(db, id).await.attempt, 2);
        worker.stop().await;
        let message = "error.message=\"told to fail\"";
        assert_one_line(id, &[" INFO ", "will be retried", "attempt=1", message]);
    })
    .await;
    Captured::text();
}

#[tokio::test]
async fn a_worker_logs_how_many_connections_it_may_hold_and_holds_no_more() {
    Captured::begin();
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 4));
        let jobs = (0..200).map(|n| Do::new(&format!("a{n}"), What::Succeed));
        for job in client(db).enqueue_many(jobs).await.unwrap() {
            ended(db, job.id).await;
        }
        let sessions: i64 = ask(
            db,
            "select count(*) from pg_stat_activity
             where application_name like 'pipeline %' and datname = current_database()",
        )
        .await;
        let log = Captured::so_far();
        let has_count = |line: &&str| line.contains("worker started; it holds at most");
        let line = log.lines().find(has_count);
        let (_, fields) = line.unwrap().split_once("connections=").unwrap();
        let digits = fields.chars().take_while(char::is_ascii_digit);
        let connections: i64 = digits.collect::<String>().parse().unwrap();
        assert!(
            (1..=connections).contains(&sessions),
            "{sessions}: {fields}"
        );
        worker.stop().await;
    })
    .await;
    Captured::text();
}

#[tokio::test]
async fn a_worker_says_that_it_has_stopped_after_its_last_end_is_written() {
    Captured::begin();
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let job = Do::new("a", What::UntilAsked);
        client(db).enqueue(job).await.unwrap();
        worker.log.says("a 1").await;
        worker.stop().await;
        let log = Captured::so_far();
        let stopped = log.find("worker stopped").expect("it says so");
        let last_end = log
            .rfind("pipeline.end_jobs_v1(")
            .expect("an end was written");
        assert!(last_end < stopped, "{log}");
        assert!(log[stopped..].find("update pipeline.workers").is_none());
    })
    .await;
    Captured::text();
}
