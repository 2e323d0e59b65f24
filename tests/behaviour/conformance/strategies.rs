//! The strategies Halt, Continue and Ignore, and the early end of a run by one of its steps.

use pipeline::{Continue, Ignore};
use tests::with_database;

use super::hand::{Hand, declare, end_run, failure};
use crate::runs::support::act;

/// Scenarios: T055, T232
#[tokio::test]
async fn halt_skips_every_pending_step_and_the_run_is_halted() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                let a = p.step("a", act("a"));
                p.following(&a).step("b", act("b"));
                p.following(&a).step("c", act("c"));
            }))
            .await;
        it.fail(&run, "a").await;
        it.is(&run, "halted", "a failed, b skipped, c skipped")
            .await;
        assert!(it.is_halted(&run).await);
    })
    .await;
}

/// The reference goes on to skip `c` and `d`, and halts: there a step's own strategy governs its edges
/// only. Here it alone decides.
///
/// Scenarios: T056, T057, T245
#[tokio::test]
async fn a_steps_own_ignore_under_halt_halts_nothing() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                let a = p.step("a", act("a")).failure_strategy(Ignore);
                let b = p.following(&a).step("b", act("b"));
                p.following(&b).step("c", act("c"));
                let d = p.step("d", act("d"));
                p.following(&d).step("e", act("e"));
            }))
            .await;
        it.fail(&run, "a").await;
        let after = "a failed, b enqueued, c pending, d enqueued, e pending";
        it.is(&run, "running", after).await;
        assert!(!it.is_halted(&run).await);
        it.drain(&[]).await;
        let end = "a failed, b succeeded, c succeeded, d succeeded, e succeeded";
        it.is(&run, "failed", end).await;
    })
    .await;
}

/// Scenarios: T244, T246
#[tokio::test]
async fn what_comes_after_an_ignored_failure_runs_all_the_way_down() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                let a = p.step("a", act("a")).failure_strategy(Ignore);
                let b = p.following(&a).step("b", act("b"));
                p.following(&b).step("c", act("c"));
            }))
            .await;
        it.drain(&[("a", failure())]).await;
        it.is(&run, "failed", "a failed, b succeeded, c succeeded")
            .await;
    })
    .await;
}

/// Scenarios: T050, T058, T066, T233
#[tokio::test]
async fn continue_breaks_only_the_edges_of_what_failed() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                p.failure_strategy(Continue);
                let a = p.step("a", act("a"));
                p.step("b", act("b"));
                p.following(&a).step("c", act("c"));
            }))
            .await;
        it.succeed(&run, "b").await;
        it.fail(&run, "a").await;
        it.is(&run, "failed", "a failed, b succeeded, c skipped")
            .await;
        assert!(!it.is_halted(&run).await);
    })
    .await;
}

/// Scenarios: T059
#[tokio::test]
async fn ignore_skips_nothing() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                p.failure_strategy(Ignore);
                let a = p.step("a", act("a"));
                p.following(&a).step("b", act("b"));
            }))
            .await;
        it.fail(&run, "a").await;
        it.is(&run, "running", "a failed, b enqueued").await;
        assert!(!it.is_halted(&run).await);
        it.succeed(&run, "b").await;
        it.is(&run, "failed", "a failed, b succeeded").await;
    })
    .await;
}

/// Scenarios: T208
#[tokio::test]
async fn a_step_that_continues_under_ignore_breaks_all_that_comes_after_it() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                p.failure_strategy(Ignore);
                let a = p.step("a", act("a")).failure_strategy(Continue);
                let b = p.following(&a).step("b", act("b"));
                p.following(&b).step("c", act("c"));
            }))
            .await;
        it.fail(&run, "a").await;
        it.is(&run, "failed", "a failed, b skipped, c skipped")
            .await;
    })
    .await;
}

/// Scenarios: T065
#[tokio::test]
async fn a_step_with_a_pending_upstream_stays_pending() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                p.failure_strategy(Continue);
                let (a, b) = (p.step("a", act("a")), p.step("b", act("b")));
                p.following((&a, &b)).step("c", act("c"));
            }))
            .await;
        // Also when one of two has failed: it is decided about when the last has ended.
        it.fail(&run, "a").await;
        it.is(&run, "running", "a failed, b enqueued, c pending")
            .await;
        it.succeed(&run, "b").await;
        it.is(&run, "failed", "a failed, b succeeded, c skipped")
            .await;
    })
    .await;
}

/// Scenarios: T224
#[tokio::test]
async fn halt_lets_what_is_enqueued_run_on() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                let [a, b, c] = ["a", "b", "c"].map(|key| p.step(key, act(key)));
                p.following((&a, &b, &c)).step("collect", act("collect"));
            }))
            .await;
        it.fail(&run, "b").await;
        let after = "a enqueued, b failed, c enqueued, collect skipped";
        it.is(&run, "running", after).await;
        it.drain(&[]).await;
        let end = "a succeeded, b failed, c succeeded, collect skipped";
        it.is(&run, "halted", end).await;
    })
    .await;
}

/// Scenarios: T237, T238, T239, T240
#[tokio::test]
async fn halting_from_inside_ends_a_run_early_and_well() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                let a = p.step("a", act("a"));
                p.following(&a).step("after", act("after"));
            }))
            .await;
        it.end(&run, "a", end_run()).await;
        it.is(&run, "succeeded", "a ended_run, after skipped").await;
        // For the queue it is a success: tried once, and no error.
        let attempts = run.attempts("a").await.unwrap();
        assert_eq!(attempts.len(), 1);
        assert_eq!(
            (attempts[0].attempt, attempts[0].error_class.is_none()),
            (1, true)
        );
        assert_eq!(it.queued(&run).await, 0);
    })
    .await;
}

/// Scenarios: T241
#[tokio::test]
async fn what_runs_beside_a_halt_from_inside_ends_as_ever() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                p.failure_strategy(Continue);
                let (a, b) = (p.step("a", act("a")), p.step("b", act("b")));
                p.following((&a, &b)).step("after", act("after"));
            }))
            .await;
        it.end(&run, "a", end_run()).await;
        it.is(&run, "running", "a ended_run, b enqueued, after skipped")
            .await;
        it.succeed(&run, "b").await;
        it.is(&run, "succeeded", "a ended_run, b succeeded, after skipped")
            .await;
    })
    .await;
}
