//! Rule 3: a worker that has lost a lease changes nothing, and is told so.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use jobs::{JobStatus, NewJob};
use rustix::process::Signal;
use tests::{Database, Errand, with_database};

use super::support::{
    Do, Running, What, ask, began, client, ended, errands, eventually, job, sql, when,
};
use crate::processes::Staying;

const SHORT: Duration = Duration::from_secs(2);

/// A process has begun the errand and is stopped; a worker of ours has taken it over.
async fn stopped_and_taken_over(db: &Database, errand: &Errand) -> (Staying, Running, jobs::JobId) {
    Errand::prepare(db.pool()).await;
    let process = Staying::worker(db.url(), "sleeper", "default", 1);
    let new = NewJob::new(errand).lease(SHORT);
    let id = client(db).enqueue(new).await.unwrap().id;
    assert_eq!(began(db, &errand.name, 1).await, process.pid());
    process.signal(Signal::STOP);
    let worker = Running::start(db, |worker| errands(db, worker));
    when(db, id, |job| {
        job.attempt == 2 && job.status == JobStatus::Running
    })
    .await;
    (process, worker, id)
}

async fn the_second_attempt_goes_on_and_succeeds(db: &Database, id: jobs::JobId) {
    assert_eq!(job(db, id).await.status, JobStatus::Running);
    Errand::let_go(db.pool(), "a").await;
    let job = ended(db, id).await;
    assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 2));
    let attempts = client(db).job(id).attempts().await.unwrap();
    let classes: Vec<_> = attempts.iter().map(|a| a.error_class.as_deref()).collect();
    assert_eq!(classes, [Some("WorkerDied")]);
}

#[tokio::test]
async fn a_process_stopped_beyond_its_lease_cannot_end_what_another_took_over() {
    with_database(async |db| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("go");
        let stubborn = Errand::stubborn("a", file.clone());
        let (process, worker, id) = stopped_and_taken_over(db, &stubborn).await;
        // In the stopped process the job ends well before anything else can happen, and says so.
        std::fs::write(&file, "").unwrap();
        process.signal(Signal::CONT);
        process.signal(Signal::TERM);
        assert!(process.wait().await.success());
        the_second_attempt_goes_on_and_succeeds(db, id).await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_process_that_comes_back_too_late_leaves_its_job_alone() {
    with_database(async |db| {
        let (process, worker, id) = stopped_and_taken_over(db, &Errand::new("a")).await;
        process.signal(Signal::CONT);
        process.signal(Signal::TERM);
        assert!(process.wait().await.success());
        the_second_attempt_goes_on_and_succeeds(db, id).await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_job_longer_than_its_lease_is_not_taken_over() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let other = Running::start(db, |worker| worker.queue("default", 1));
        let new = NewJob::new(&Do::new("a", What::AtGate)).lease(SHORT);
        let id = client(db).enqueue(new).await.unwrap().id;
        when(db, id, |job| job.status == JobStatus::Running).await;
        let lease = "select lease_until from pipeline.jobs";
        let token = "select token from pipeline.jobs";
        let (first, mine): (DateTime<Utc>, i64) = (ask(db, lease).await, ask(db, token).await);
        eventually("the lease is twice as long", async || {
            let now: DateTime<Utc> = ask(db, lease).await;
            (now >= first + TimeDelta::from_std(SHORT).unwrap()).then_some(())
        })
        .await;
        assert_eq!(ask::<i64>(db, token).await, mine);
        worker.gate.let_through(1);
        other.gate.let_through(1);
        let job = ended(db, id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
        assert_eq!(worker.log.lines().len() + other.log.lines().len(), 2);
        worker.stop().await;
        other.stop().await;
    })
    .await;
}

/// While this statement of the test's own holds, the lease cannot be renewed; the worker stops the
/// job itself. Afterwards it is an orphan like any other.
async fn the_job_is_stopped_while(db: &Database, in_the_way: &'static str) {
    let worker = Running::start(db, |worker| worker.queue("default", 1));
    let new = NewJob::new(&Do::new("a", What::AtGate)).lease(SHORT);
    let id = client(db).enqueue(new).await.unwrap().id;
    worker.log.says("a 1").await;

    let mut tx = db.pool().begin().await.unwrap();
    sqlx::raw_sql(in_the_way).execute(&mut *tx).await.unwrap();
    worker.log.says("a dropped").await;
    let (status, attempt): (String, i16) =
        sqlx::query_as("select status::text, attempt from pipeline.jobs")
            .fetch_one(&mut *tx)
            .await
            .unwrap();
    assert_eq!(
        (status.as_str(), attempt),
        ("running", 1),
        "it ends nothing"
    );
    tx.rollback().await.unwrap();

    worker.log.says("a 2").await;
    worker.gate.let_through(1);
    let job = ended(db, id).await;
    assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 2));
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_that_gets_no_answer_in_time_stops_its_job_itself() {
    with_database(async |db| {
        the_job_is_stopped_while(db, "lock table pipeline.jobs in access exclusive mode").await;
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_another_transaction_keeps_from_being_renewed_is_not_taken_for_renewed() {
    with_database(async |db| {
        the_job_is_stopped_while(db, "select from pipeline.jobs for update").await;
    })
    .await;
}

#[tokio::test]
async fn a_lease_taken_from_a_worker_stops_its_job() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let new = NewJob::new(&Do::new("a", What::AtGate)).lease(SHORT);
        let id = client(db).enqueue(new).await.unwrap().id;
        worker.log.says("a 1").await;
        client(db).pause("default").await.unwrap();
        sql(
            db,
            "update pipeline.jobs set status = 'ready', token = null, lease_until = null",
        )
        .await;
        worker.log.says("a dropped").await;
        assert_eq!(job(db, id).await.status, JobStatus::Ready);
        worker.stop().await;
    })
    .await;
}
