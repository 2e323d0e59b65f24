//! Retries of jobs, job types that no worker knows, and params that do not decode.

use std::time::Duration;

use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Continue, Ignore, Pipeline, Run, RunStatus};
use serde::{Deserialize, Serialize};
use tests::with_database;

use super::hand::{callbacks, declare};
use crate::runs::support::{Running, What, act, eventually};

/// Fails twice, then succeeds.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(max_attempts = 5, backoff = "fixed(1ms)")]
struct Flaky;

impl Perform for Flaky {
    type Input = ();
    type Output = ();
    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        if cx.attempt() < 3 {
            return Err("not yet".into());
        }
        Ok(())
    }
}

/// Scenarios: T265
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_tried_again_is_enqueued_meanwhile_and_never_failed() {
    with_database(async |db| {
        let it = Running::start_with(db, |worker| worker.register::<Flaky>());
        let pipeline = declare(|p| {
            let a = p.step("a", Flaky);
            p.following(&a).step("b", act("b"));
        });
        let run = it.client.start(pipeline).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        assert_eq!(it.steps(&run).await, ["a succeeded", "b succeeded"]);
        assert_eq!(run.state().await.unwrap().step("a").unwrap().attempt, 3);
        let events = run.events().await.unwrap();
        let of_a: Vec<&str> = events
            .iter()
            .filter(|event| event.step.as_deref() == Some("a"))
            .map(|event| event.status.as_str())
            .collect();
        assert_eq!(of_a, ["succeeded"]);
        it.stop().await;
    })
    .await;
}

/// Scenarios: T266
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_each_time_has_failed_when_its_attempts_are_used_up() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("a", What::Fail);
        let pipeline = declare(|p| {
            p.step("a", act("a")).max_attempts(3);
        });
        let run = it.client.start(pipeline).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Halted);
        assert_eq!(it.script.count("a"), 3);
        let state = run.state().await.unwrap();
        let a = state.step("a").unwrap();
        let error = a.error.as_ref().unwrap();
        assert_eq!(
            (a.attempt, &*error.class, &*error.message),
            (3, "Told", "told to fail")
        );
        it.stop().await;
    })
    .await;
}

/// No worker knows it.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(queue = "apart")]
struct Unknown(String);

impl Perform for Unknown {
    type Input = ();
    type Output = ();
    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

fn unknown(key: &str) -> Unknown {
    Unknown(key.to_owned())
}

/// Runs it until nobody has known a type for too long (rule 25).
async fn gives_up(it: &Running, db: &tests::Database, pipeline: Pipeline) -> (Run, RunStatus) {
    let run = it.client.start(pipeline).await.unwrap();
    for _ in 0..2 {
        // Unknown since its first claim; it is asked about again when its time has come.
        eventually("it was put back", async || {
            let waits: bool = sqlx::query_scalar(
                "select not exists (select from pipeline.jobs
                 where job_type = 'unknown' and (status <> 'scheduled' or unknown_since is null))",
            )
            .fetch_one(db.pool())
            .await
            .unwrap();
            waits.then_some(())
        })
        .await;
        db.move_clock(Duration::from_secs(660)).await;
    }
    let status = run.wait().await.unwrap();
    (run, status)
}

/// In the reference a missing class fails its step when it is enqueued. Here the job waits for a worker
/// that knows it, and fails when there has been none for ten minutes; then all goes as after any failure.
///
/// Scenarios: T015, H019, H022, H024
#[tokio::test(flavor = "multi_thread")]
async fn a_type_that_no_worker_knows_fails_its_step_after_a_while() {
    with_database(async |db| {
        let it = Running::start(db);
        let (run, status) = gives_up(
            &it,
            db,
            declare(|p| {
                p.step("bad", unknown("bad"));
                p.step("good", act("good"));
            }),
        )
        .await;
        assert_eq!(status, RunStatus::Halted);
        assert_eq!(it.steps(&run).await, ["bad failed", "good succeeded"]);
        let state = run.state().await.unwrap();
        let error = state.step("bad").unwrap().error.clone().unwrap();
        assert_eq!(error.class, "NoHandler");
        assert!(error.message.contains("`unknown`"), "{error:?}");

        let (run, status) = gives_up(
            &it,
            db,
            declare(|p| {
                p.failure_strategy(Continue);
                let a = p.step("a", unknown("a"));
                p.step("b", unknown("b"));
                p.following(&a).step("child", act("child"));
            }),
        )
        .await;
        assert_eq!(status, RunStatus::Failed);
        assert_eq!(
            it.steps(&run).await,
            ["a failed", "b failed", "child skipped"]
        );
        it.stop().await;
    })
    .await;
}

/// Scenarios: H023
#[tokio::test(flavor = "multi_thread")]
async fn two_types_that_no_worker_knows_fail_both() {
    with_database(async |db| {
        let it = Running::start(db);
        let (run, status) = gives_up(
            &it,
            db,
            declare(|p| {
                p.step("a", unknown("a"));
                p.step("b", unknown("b"));
            }),
        )
        .await;
        assert_eq!(status, RunStatus::Halted);
        assert_eq!(it.steps(&run).await, ["a failed", "b failed"]);
        it.stop().await;
    })
    .await;
}

/// Scenarios: T210, T211, T212
#[tokio::test(flavor = "multi_thread")]
async fn a_type_that_no_worker_knows_before_a_barrier() {
    with_database(async |db| {
        let it = Running::start(db);
        let phases = |goes_on: bool, two: bool| {
            declare(move |p| {
                if goes_on {
                    p.failure_strategy(Continue);
                } else {
                    p.failure_strategy(Ignore);
                }
                p.step("a", unknown("a"));
                if two {
                    p.step("b", unknown("b"));
                }
                p.barrier();
                p.step("publish", act("publish"));
                callbacks(p);
            })
        };
        for (goes_on, two, steps) in [
            (
                true,
                false,
                &["a failed", "barrier:1 skipped", "publish skipped"][..],
            ),
            (
                false,
                false,
                &["a failed", "barrier:1 succeeded", "publish succeeded"],
            ),
            (
                false,
                true,
                &[
                    "a failed",
                    "b failed",
                    "barrier:1 succeeded",
                    "publish succeeded",
                ],
            ),
        ] {
            let (run, status) = gives_up(&it, db, phases(goes_on, two)).await;
            assert_eq!(status, RunStatus::Failed);
            assert_eq!(it.steps(&run).await, steps);
        }
        it.stop().await;
    })
    .await;
}

/// As it is declared, and as another version of the program stores it.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(name = "sized")]
struct Sized1 {
    size: u64,
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(name = "sized")]
struct Sized2 {
    size: String,
}

macro_rules! quiet {
    ($($job:ident)*) => {$(
        impl Perform for $job {
            type Input = ();
            type Output = ();
            async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
                Ok(())
            }
        }
    )*};
}
quiet!(Sized1 Sized2);

/// The counterpart of a constructor that raises.
///
/// Scenarios: H025
#[tokio::test(flavor = "multi_thread")]
async fn params_that_do_not_decode_fail_their_step_and_name_the_field() {
    with_database(async |db| {
        let it = Running::start_with(db, |worker| worker.register::<Sized1>());
        let pipeline = declare(|p| {
            p.failure_strategy(Continue);
            let a = p.step(
                "a",
                Sized2 {
                    size: "large".into(),
                },
            );
            p.following(&a).step("child", act("child"));
        });
        let run = it.client.start(pipeline).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Failed);
        assert_eq!(it.steps(&run).await, ["a failed", "child skipped"]);
        let state = run.state().await.unwrap();
        let error = state.step("a").unwrap().error.clone().unwrap();
        assert_eq!(error.class, "Undecodable");
        assert!(error.message.contains("size"), "{error:?}");
        let left: i64 = sqlx::query_scalar("select count(*) from pipeline.jobs")
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(left, 0);
        it.stop().await;
    })
    .await;
}
