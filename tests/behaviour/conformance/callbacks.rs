//! Callbacks: which fire, once, and that they do not stop one another.

use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Continue, Pipeline, RunEnded};
use serde::{Deserialize, Serialize};
use tests::with_database;

use super::hand::{Hand, callbacks, declare, failure, success};
use crate::runs::support::{Running, Script, Told, act};

/// One step, with the three callbacks.
fn one(goes_on: bool) -> Pipeline {
    declare(|p| {
        if goes_on {
            p.failure_strategy(Continue);
        }
        p.step("a", act("a"));
        callbacks(p);
    })
}

/// Scenarios: T053, T110, T111, T112, T113
#[tokio::test]
async fn callbacks_fire_by_how_the_run_ended() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        for (goes_on, end, status, fired) in [
            (false, success(), "succeeded", "complete, success"),
            (true, failure(), "failed", "complete, failure"),
            (false, failure(), "halted", "complete, failure"),
        ] {
            let run = it.start(one(goes_on)).await;
            assert!(!it.is_stamped(&run).await);
            it.end(&run, "a", end).await;
            assert_eq!(it.status(run.id()).await, status);
            assert_eq!(it.fired(&run).await, fired, "{status}");
            assert!(it.is_stamped(&run).await);
        }
        let run = it.start(one(false)).await;
        run.cancel().await.unwrap();
        assert_eq!(it.fired(&run).await, "complete");
    })
    .await;
}

/// Scenarios: T054
#[tokio::test]
async fn an_end_that_comes_again_fires_nothing_again() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(one(false)).await;
        it.succeed(&run, "a").await;
        let stamp = "select callbacks_dispatched_at::text from pipeline.runs where id = $1";
        let before: String = it.ask(&run, stamp).await;
        db.move_clock(std::time::Duration::from_secs(60)).await;
        it.again(&run, "a", success()).await;
        assert_eq!(it.ask::<_, String>(&run, stamp).await, before);
        assert_eq!(it.fired(&run).await, "complete, success");
    })
    .await;
}

/// Scenarios: T114
#[tokio::test]
async fn a_run_without_callbacks_ends_without() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                p.step("a", act("a"));
            }))
            .await;
        it.succeed(&run, "a").await;
        it.is(&run, "succeeded", "a succeeded").await;
        assert_eq!(it.fired(&run).await, "");
        assert_eq!(it.take().await, 0);
    })
    .await;
}

/// A callback that fails each time.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(max_attempts = 2, backoff = "fixed(1ms)", queue = "told.apart")]
struct Raise;

impl Perform for Raise {
    type Input = RunEnded;
    type Output = ();

    async fn perform(self, _: RunEnded, cx: &Context) -> Result<(), JobError> {
        cx.data::<Script>()?.write("raised".to_owned());
        Err(JobError::new("Raised", "made to"))
    }
}

/// Scenarios: T116, T117
#[tokio::test(flavor = "multi_thread")]
async fn a_callback_that_fails_stops_no_other_and_changes_no_run() {
    with_database(async |db| {
        let it = Running::start_with(db, |worker| worker.register::<Raise>());
        let pipeline = declare(|p| {
            p.step("a", act("a"));
            p.on_complete(Raise);
            p.on_success(Told("success".into()));
        });
        let run = it.client.start(pipeline).await.unwrap();
        it.becomes(&run, "succeeded").await;
        it.script.says("success p succeeded 1 []").await;
        crate::runs::support::eventually("it has failed for good", async || {
            let failed: Option<String> = sqlx::query_scalar(
                "select error_class || ': ' || error_message from pipeline.jobs
                 where job_type = 'raise' and status = 'failed'",
            )
            .fetch_optional(db.pool())
            .await
            .unwrap();
            failed.map(|failed| assert_eq!(failed, "Raised: made to"))
        })
        .await;
        assert_eq!(
            it.script.count("raised"),
            2,
            "it is tried again like any job"
        );
        assert_eq!(it.status(&run).await, "succeeded");
        it.stop().await;
    })
    .await;
}

/// A callback is a job: its type says where it goes.
///
/// Scenarios: T160
#[tokio::test]
async fn a_callback_is_in_the_queue_of_its_type() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                p.step("a", act("a"));
                p.on_complete(Raise);
            }))
            .await;
        it.succeed(&run, "a").await;
        let queue: String = it
            .ask(
                &run,
                "select j.queue from pipeline.dispatched_callbacks f join pipeline.jobs j on j.id = f.job
                 where f.run = $1",
            )
            .await;
        assert_eq!(queue, "told.apart");
    })
    .await;
}
