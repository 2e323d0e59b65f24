//! Cancelling: M's statuses, and rule 18 where they differ: what no worker has taken is withdrawn.

use std::time::Duration;

use ::jobs::testing::Outcome;
use pipeline::{Error, Pipeline, RunStatus};
use tests::with_database;

use super::hand::{Hand, callbacks, declare, end_run, failure, named, success};
use crate::runs::support::act;

/// `a`, then `b`, with callbacks.
fn two() -> Pipeline {
    declare(|p| {
        let a = p.step("a", act("a")).max_attempts(3);
        p.following(&a).step("b", act("b"));
        callbacks(p);
    })
}

/// Scenarios: T017, T135
#[tokio::test]
async fn a_run_that_waits_in_a_chain_is_cancelled_at_once() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.client.start(two()).then(two()).await.unwrap();
        let waits = &run.chained().await.unwrap()[0];
        it.is(waits, "pending", "a pending, b pending").await;
        waits.cancel().await.unwrap();
        it.is(waits, "cancelled", "a cancelled, b cancelled").await;
        assert!(it.is_stamped(waits).await);
        assert_eq!(it.fired(waits).await, "complete");
        it.drain(&[]).await;
        it.is(waits, "cancelled", "a cancelled, b cancelled").await;
    })
    .await;
}

/// In the reference this takes a run whose step was not enqueued. Here the first step always is, and is
/// withdrawn while no worker has taken it.
///
/// Scenarios: T018, H060
#[tokio::test]
async fn a_run_of_which_nothing_has_been_taken_is_cancelled_at_once() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(two()).await;
        run.cancel().await.unwrap();
        it.is(&run, "cancelled", "a cancelled, b cancelled").await;
        assert_eq!(it.queued(&run).await, 0);
        assert_eq!(it.fired(&run).await, "complete");
        // What has succeeded stays.
        let run = it.start(two()).await;
        it.succeed(&run, "a").await;
        run.cancel().await.unwrap();
        it.is(&run, "cancelled", "a succeeded, b cancelled").await;
    })
    .await;
}

/// Scenarios: T019, T025, T136, H061, H062
#[tokio::test]
async fn work_that_runs_ends_first_and_then_the_run_is_cancelled() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(two()).await;
        it.take().await;
        run.cancel().await.unwrap();
        it.is(&run, "cancelling", "a enqueued, b cancelled").await;
        assert!(!it.is_stamped(&run).await);
        it.succeed(&run, "a").await;
        it.is(&run, "cancelled", "a succeeded, b cancelled").await;
        assert!(it.is_stamped(&run).await);

        // Also when everything has succeeded.
        let run = it
            .start(declare(|p| {
                p.step("a", act("a"));
            }))
            .await;
        it.take().await;
        run.cancel().await.unwrap();
        it.succeed(&run, "a").await;
        it.is(&run, "cancelled", "a succeeded").await;
    })
    .await;
}

/// Scenarios: T020, H064, H066
#[tokio::test]
async fn cancelling_twice_is_fine_and_fires_once() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(two()).await;
        it.take().await;
        for _ in 0..2 {
            run.cancel().await.unwrap();
            it.is(&run, "cancelling", "a enqueued, b cancelled").await;
        }
        it.succeed(&run, "a").await;
        let times = "select (callbacks_dispatched_at, ended_at, events)::text
                     from pipeline.runs where id = $1";
        let before: String = it.ask(&run, times).await;
        db.move_clock(Duration::from_secs(60)).await;
        run.cancel().await.unwrap();
        it.is(&run, "cancelled", "a succeeded, b cancelled").await;
        assert_eq!(it.ask::<_, String>(&run, times).await, before);
        assert_eq!(it.fired(&run).await, "complete");
    })
    .await;
}

/// Scenarios: T021, H063
#[tokio::test]
async fn cancelling_an_ended_run_names_it_and_its_status() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let single = |name: &str, goes_on: bool| {
            named(name, |p| {
                if goes_on {
                    p.failure_strategy(pipeline::Continue);
                }
                p.step("a", act("a"));
            })
        };
        let good = it.start(single("good", false)).await;
        it.succeed(&good, "a").await;
        let failed = it.start(single("failed", true)).await;
        it.fail(&failed, "a").await;
        let start = it.client.start(single("halted", false));
        let halted = start.then(single("skipped", false)).await.unwrap();
        it.fail(&halted, "a").await;
        let skipped = &halted.chained().await.unwrap()[0];
        for (run, wanted, steps) in [
            (&good, RunStatus::Succeeded, "a succeeded"),
            (&failed, RunStatus::Failed, "a failed"),
            (&halted, RunStatus::Halted, "a failed"),
            (skipped, RunStatus::Skipped, "a skipped"),
        ] {
            match run.cancel().await.unwrap_err() {
                Error::NotCancellable {
                    run: id, status, ..
                } => {
                    assert_eq!((id, status), (run.id(), wanted));
                }
                other => panic!("{other}"),
            }
            it.is(run, wanted.as_str(), steps).await;
        }
    })
    .await;
}

/// Scenarios: T022
#[tokio::test]
async fn a_cancel_that_is_rolled_back_never_was() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.client.start(two()).then(two()).await.unwrap();
        let waits = &run.chained().await.unwrap()[0];
        let mut tx = db.pool().begin().await.unwrap();
        waits.cancel_in(&mut tx).await.unwrap();
        tx.rollback().await.unwrap();
        let requests: i64 = it
            .ask(
                waits,
                "select count(*) from pipeline.requests where run = $1",
            )
            .await;
        assert_eq!(requests, 0);
        it.is(waits, "pending", "a pending, b pending").await;
        assert!(!it.is_stamped(waits).await);
        assert_eq!(it.fired(waits).await, "");
        it.drain(&[]).await;
        it.is(waits, "succeeded", "a succeeded, b succeeded").await;
    })
    .await;
}

/// Scenarios: T023, T024, H068, H070, H082
#[tokio::test]
async fn nothing_is_enqueued_once_a_run_is_cancelled() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(two()).await;
        it.take().await;
        run.cancel().await.unwrap();
        it.succeed(&run, "a").await;
        it.is(&run, "cancelled", "a succeeded, b cancelled").await;
        it.again(&run, "a", success()).await;
        it.is(&run, "cancelled", "a succeeded, b cancelled").await;
        assert_eq!(it.queued(&run).await, 0);
        assert_eq!(it.take().await, 1, "the callback alone");
    })
    .await;
}

/// Scenarios: T026, H067
#[tokio::test]
async fn a_failure_during_a_cancel_is_kept_and_halts_nothing() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(two()).await;
        it.end(&run, "a", Outcome::Retry).await;
        it.take().await;
        run.cancel().await.unwrap();
        it.end(&run, "a", Outcome::Fail("Broken".into(), "for good".into()))
            .await;
        it.is(&run, "cancelled", "a failed, b cancelled").await;
        assert!(!it.is_halted(&run).await);
        let state = run.state().await.unwrap();
        let a = state.step("a").unwrap();
        let error = a.error.as_ref().unwrap();
        assert_eq!(
            (&*error.class, &*error.message, a.attempt),
            ("Broken", "for good", 2)
        );
        assert_eq!(it.fired(&run).await, "complete");
    })
    .await;
}

/// Scenarios: T027
#[tokio::test]
async fn a_halt_from_inside_during_a_cancel_is_kept() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(two()).await;
        it.take().await;
        run.cancel().await.unwrap();
        it.end(&run, "a", end_run()).await;
        it.is(&run, "cancelled", "a ended_run, b cancelled").await;
    })
    .await;
}

/// Scenarios: T028
#[tokio::test]
async fn the_last_one_turns_the_run_cancelled() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                p.step("a", act("a"));
                p.step("b", act("b"));
                callbacks(p);
            }))
            .await;
        it.take().await;
        run.cancel().await.unwrap();
        it.succeed(&run, "a").await;
        it.is(&run, "cancelling", "a succeeded, b enqueued").await;
        assert!(!it.is_stamped(&run).await);
        it.end(&run, "b", failure()).await;
        it.is(&run, "cancelled", "a succeeded, b failed").await;
        assert!(it.is_stamped(&run).await);
        assert_eq!(it.fired(&run).await, "complete");
    })
    .await;
}

/// The reference leaves it in the queue for an hour. Here it is withdrawn.
///
/// Scenarios: T030, T188
#[tokio::test]
async fn work_that_waits_for_its_time_is_withdrawn() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                let a = p.step("a", act("a")).queue("slow");
                let a = a.delay(Duration::from_secs(3_600));
                p.following(&a).step("b", act("b"));
                callbacks(p);
            }))
            .await;
        assert_eq!(it.take().await, 0);
        it.is(&run, "running", "a enqueued, b pending").await;
        run.cancel().await.unwrap();
        it.is(&run, "cancelled", "a cancelled, b cancelled").await;
        assert_eq!(it.queued(&run).await, 0);
        assert_eq!(it.fired(&run).await, "complete");
        db.move_clock(Duration::from_secs(3_601)).await;
        it.drain(&[]).await;
        it.is(&run, "cancelled", "a cancelled, b cancelled").await;
    })
    .await;
}
