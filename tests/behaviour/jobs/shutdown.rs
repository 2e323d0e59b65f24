//! Rule 26: a worker that stops claims no more jobs, gives running jobs a grace period, and hands the others back
//! without costing an attempt.

use std::sync::Arc;
use std::time::Duration;

use jobs::testing::Moment;
use jobs::{JobStatus, NewJob};
use rustix::process::Signal;
use tests::{Database, Errand, with_database};

use super::support::{Do, Running, Watch, What, began, client, ended, job, until, when};
use crate::processes::Staying;

/// It waits as if nothing had been.
async fn is_back_at_no_cost(db: &Database, id: jobs::JobId) {
    let job = job(db, id).await;
    assert_eq!((job.status, job.attempt), (JobStatus::Ready, 0));
    assert_eq!(job.error_class, None);
    assert!(client(db).job(id).attempts().await.unwrap().is_empty());
}

async fn runs_elsewhere_as_the_first_attempt(db: &Database, id: jobs::JobId) {
    let worker = Running::start(db, |worker| worker.queue("default", 1));
    worker.gate.let_through(1);
    let job = ended(db, id).await;
    assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
    worker.stop().await;
}

#[tokio::test]
async fn a_stopping_worker_claims_nothing_more_and_lets_running_jobs_end() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1).queue("other", 1));
        let listens = NewJob::new(&Do::new("listens", What::UntilAsked)).queue("other");
        let listens = client(db).enqueue(listens).await.unwrap().id;
        let first = client(db).enqueue(Do::new("a", What::AtGate)).await;
        worker.log.says("a 1").await;
        worker.log.says("listens 1").await;
        let second = client(db).enqueue(Do::new("b", What::Succeed)).await;

        worker.ask_to_stop();
        when(db, listens, |job| job.status == JobStatus::Ready).await;
        // Now it has heard, and has a slot free for `listens` and soon one for `b`.
        worker.gate.let_through(1);
        let log = worker.log.clone();
        worker.stop().await;
        let first = job(db, first.unwrap().id).await;
        assert_eq!((first.status, first.attempt), (JobStatus::Succeeded, 1));
        is_back_at_no_cost(db, second.unwrap().id).await;
        is_back_at_no_cost(db, listens).await;
        let begun = log.lines().iter().filter(|l| l.ends_with(" 1")).count();
        assert_eq!(begun, 2);
    })
    .await;
}

#[tokio::test]
async fn what_still_runs_after_the_grace_is_handed_back_at_no_cost() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| {
            worker.queue("default", 1).grace(Duration::from_millis(50))
        });
        let new = Do::new("a", What::AtGate);
        let id = client(db).enqueue(new).await.unwrap().id;
        worker.log.says("a 1").await;
        let log = worker.log.clone();
        worker.stop().await;
        assert_eq!(log.lines(), ["a 1", "a dropped"]);
        is_back_at_no_cost(db, id).await;
        runs_elsewhere_as_the_first_attempt(db, id).await;
    })
    .await;
}

#[tokio::test]
async fn a_job_that_stops_when_asked_is_handed_back_at_no_cost() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let new = NewJob::new(&Do::new("a", What::UntilAsked)).max_attempts(1);
        let id = client(db).enqueue(new).await.unwrap().id;
        worker.log.says("a 1").await;
        worker.stop().await;
        is_back_at_no_cost(db, id).await;
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_is_dropped_hands_its_jobs_back() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let new = Do::new("a", What::AtGate);
        let id = client(db).enqueue(new).await.unwrap().id;
        worker.log.says("a 1").await;
        let log = worker.log.clone();
        worker.abandon().await;
        when(db, id, |job| job.status == JobStatus::Ready).await;
        assert_eq!(log.lines(), ["a 1", "a dropped"]);
        is_back_at_no_cost(db, id).await;
        runs_elsewhere_as_the_first_attempt(db, id).await;
    })
    .await;
}

#[tokio::test]
async fn a_process_that_is_asked_to_stop_hands_back_and_exits_well() {
    for signal in [Signal::TERM, Signal::INT] {
        with_database(async |db| {
            Errand::prepare(db.pool()).await;
            let process = Staying::worker(db.url(), "obedient", "default", 1);
            let id = client(db).enqueue(Errand::new("a")).await.unwrap().id;
            began(db, "a", 1).await;
            process.signal(signal);
            assert!(process.wait().await.success());
            is_back_at_no_cost(db, id).await;
            let workers = client(db).workers().await.unwrap();
            assert!(workers[0].stopped_at.is_some(), "it has said goodbye");
        })
        .await;
    }
}

#[tokio::test]
async fn a_claim_that_is_on_its_way_when_the_worker_stops_comes_home_too() {
    // The claim arrives within the grace period, and after it.
    for (grace, moment) in [
        (Duration::from_secs(25), Moment::Draining),
        (Duration::ZERO, Moment::GraceOver),
    ] {
        with_database(async |db| {
            let watch = Arc::new(Watch::default());
            watch.hold(Moment::Claimed);
            let worker = Running::start(db, |worker| {
                let worker = worker.grace(grace).probe(watch.clone());
                worker.queue("default", 1)
            });
            let new = NewJob::new(&Do::new("a", What::AtGate)).max_attempts(1);
            let id = client(db).enqueue(new).await.unwrap().id;
            watch.held().await;
            assert_eq!(job(db, id).await.status, JobStatus::Running);
            worker.ask_to_stop();
            until(async || !watch.counts(moment).is_empty()).await;
            watch.let_go();
            worker.stop().await;
            is_back_at_no_cost(db, id).await;
            runs_elsewhere_as_the_first_attempt(db, id).await;
        })
        .await;
    }
}
