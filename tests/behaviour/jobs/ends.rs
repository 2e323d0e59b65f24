//! Every way an attempt can end.

use std::time::Duration;

use jobs::JobStatus;
use tests::with_database;

use super::support::{Do, Running, What, client, ended};

#[tokio::test]
async fn a_job_that_succeeds_is_done_after_one_attempt() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 4));
        let job = client(db)
            .enqueue(Do::new("a", What::Succeed))
            .await
            .unwrap();
        let job = ended(db, job.id).await;
        assert_eq!(job.status, JobStatus::Succeeded);
        assert_eq!(worker.log.lines(), ["a 1"]);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn an_error_is_retried_until_the_attempts_are_used_up() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 4));
        let job = client(db).enqueue(Do::new("a", What::Fail)).await.unwrap();
        let job = ended(db, job.id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Failed, 3));
        assert_eq!(job.error_class.as_deref(), Some("Error"));
        assert_eq!(job.error_message.as_deref(), Some("told to fail"));
        assert_eq!(worker.log.lines(), ["a 1", "a 2", "a 3"]);
        let attempts = client(db).job(job.id).attempts().await.unwrap();
        let outcomes: Vec<_> = attempts.iter().map(|a| a.outcome.as_str()).collect();
        assert_eq!(outcomes, ["retried", "retried", "failed"]);
        let json = serde_json::to_value(&job).unwrap();
        assert_eq!(
            (&json["status"], &json["args"]["name"]),
            (&"failed".into(), &"a".into())
        );
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_job_can_fail_twice_and_then_succeed() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 4));
        let job = client(db)
            .enqueue(Do::new("a", What::FailTimes(2)))
            .await
            .unwrap();
        assert_eq!(ended(db, job.id).await.status, JobStatus::Succeeded);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_discarded_job_is_not_tried_again() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 4));
        let job = client(db)
            .enqueue(Do::new("a", What::Discard))
            .await
            .unwrap();
        let job = ended(db, job.id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Discarded, 1));
        assert_eq!(job.error_class.as_deref(), Some("Hopeless"));
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_snooze_costs_no_attempt() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 4));
        let job = client(db)
            .enqueue(Do::new("a", What::SnoozeTimes(5)))
            .await
            .unwrap();
        let job = ended(db, job.id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
        assert_eq!(worker.log.lines(), ["a 1"; 6]);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_panic_is_a_failed_attempt_with_its_file_and_line() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 4));
        let job = client(db).enqueue(Do::new("a", What::Panic)).await.unwrap();
        let job = ended(db, job.id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Failed, 3));
        assert_eq!(job.error_class.as_deref(), Some("Panic"));
        // The message names the place of the panic.
        let message = job.error_message.unwrap();
        let place = "told to panic at tests/behaviour/jobs/support.rs:";
        assert!(message.starts_with(place), "{message}");
        let position = message.trim_start_matches(place).split(':');
        assert!(position.clone().count() == 2, "{message}");
        assert!(
            position.clone().all(|part| part.parse::<u32>().is_ok()),
            "{message}"
        );
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_timeout_is_a_failed_attempt() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 4));
        let job = client(db)
            .enqueue(Do::new("a", What::Sleep(Duration::from_secs(600))))
            .timeout(Duration::from_millis(5))
            .max_attempts(1)
            .await
            .unwrap();
        let job = ended(db, job.id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Failed, 1));
        assert_eq!(job.error_class.as_deref(), Some("Timeout"));
        worker.stop().await;
    })
    .await;
}
