//! The end of an attempt: its effect on the step and the run, and a repeated end.

use std::time::Duration;

use ::jobs::testing::ManualEngine;
use ::jobs::testing::{Outcome, Slots};
use pipeline::{Continue, Ignore, Pipeline, RunStatus, StepStatus, Worker};
use tests::with_database;
use tokio_util::sync::CancellationToken;

use super::hand::{CLAIM, Hand, callbacks, declare, end_run, engine, failure, success};
use crate::runs::support::{Script, Told, act};

fn one(attempts: u16) -> Pipeline {
    declare(|p| {
        p.step("a", act("a")).max_attempts(attempts);
        callbacks(p);
    })
}

/// Scenarios: T045, T048, T060, T137, T168, T182
#[tokio::test]
async fn an_end_succeeds_its_step_and_the_last_its_run() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(one(1)).await;
        it.is(&run, "running", "a enqueued").await;
        it.succeed(&run, "a").await;
        it.is(&run, "succeeded", "a succeeded").await;
        assert!(it.is_stamped(&run).await);
    })
    .await;
}

/// Scenarios: T046, T104, T105, T183
#[tokio::test]
async fn a_failure_keeps_its_class_its_message_and_its_attempts() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        for (class, message) in [
            ("RuntimeError", "something broke"),
            ("Net::HTTPError", "404: Not Found"),
        ] {
            let run = it.start(one(3)).await;
            it.end(&run, "a", Outcome::Retry).await;
            it.end(&run, "a", Outcome::Retry).await;
            it.is(&run, "running", "a enqueued").await;
            it.end(&run, "a", Outcome::Fail(class.into(), message.into()))
                .await;
            it.is(&run, "halted", "a failed").await;
            let state = run.state().await.unwrap();
            let a = state.step("a").unwrap();
            let error = a.error.as_ref().unwrap();
            assert_eq!(
                (&*error.class, &*error.message, a.attempt),
                (class, message, 3)
            );
        }
    })
    .await;
}

/// Scenarios: T103, T106, T107, T108, T109
#[tokio::test]
async fn what_has_not_run_has_no_error_no_attempt_and_no_duration() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                let a = p.step("a", act("a"));
                p.following(&a).step("b", act("b"));
            }))
            .await;
        it.take().await;
        let state = run.state().await.unwrap();
        let (a, b) = (state.step("a").unwrap(), state.step("b").unwrap());
        assert!(a.error.is_none() && a.ran.is_none(), "it runs");
        assert!(b.error.is_none() && b.ran.is_none() && b.attempt == 0);
        it.succeed(&run, "a").await;
        let state = run.state().await.unwrap();
        let (a, b) = (state.step("a").unwrap(), state.step("b").unwrap());
        assert!(a.error.is_none() && a.attempt == 1);
        // What its worker has measured.
        assert_eq!(a.ran, Some(Duration::from_millis(1)));
        assert_eq!(a.started_at, a.ended_at.map(|end| end - a.ran.unwrap()));
        assert!(b.ran.is_none() && b.started_at.is_none());
    })
    .await;
}

/// Scenarios: T169, T267
#[tokio::test]
async fn a_discarded_attempt_is_the_last_and_fails_its_step() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                let a = p.step("a", act("a")).max_attempts(5);
                p.following(&a).step("b", act("b"));
            }))
            .await;
        it.fail(&run, "a").await;
        it.is(&run, "halted", "a failed, b skipped").await;
        assert!(it.is_halted(&run).await);
        let state = run.state().await.unwrap();
        let a = state.step("a").unwrap();
        assert_eq!(
            (a.attempt, &*a.error.as_ref().unwrap().class),
            (1, "Broken")
        );
    })
    .await;
}

/// Scenarios: T043, T051, T273, T274, T275, H078
#[tokio::test]
async fn an_end_that_comes_again_changes_nothing() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let rows = "select (select r::text from pipeline.runs r where id = $1)
                        || (select string_agg(s::text, '') from pipeline.steps s where run = $1)
                        || (select count(*) from pipeline.events where run = $1)";
        for (first, then) in [
            (success(), success()),
            (success(), failure()),
            (failure(), success()),
            (failure(), failure()),
        ] {
            let run = it.start(one(3)).await;
            it.end(&run, "a", first).await;
            let before: String = it.ask(&run, rows).await;
            db.move_clock(Duration::from_secs(1)).await;
            it.again(&run, "a", then).await;
            assert_eq!(it.ask::<_, String>(&run, rows).await, before);
        }
        // Nor one of a step that was left out: its attempt was one of an earlier round.
        let run = it
            .start(declare(|p| {
                let a = p.step("a", act("a")).failure_strategy(Ignore);
                p.following(&a).step("b", act("b"));
            }))
            .await;
        it.fail(&run, "a").await;
        it.fail(&run, "b").await;
        it.is(&run, "halted", "a failed, b failed").await;
        run.reopen().step("a").await.unwrap();
        it.take().await;
        it.end(&run, "a", end_run()).await;
        it.is(&run, "succeeded", "a ended_run, b skipped").await;
        it.again(&run, "b", success()).await;
        it.is(&run, "succeeded", "a ended_run, b skipped").await;
    })
    .await;
}

/// Scenarios: T009, T063
#[tokio::test]
async fn an_end_that_comes_again_enqueues_nothing_again() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                let (a, b) = (p.step("a", act("a")), p.step("b", act("b")));
                p.following(&a).step("c", act("c"));
                p.following((&a, &b)).step("d", act("d"));
            }))
            .await;
        it.succeed(&run, "a").await;
        let row = "select j::text from pipeline.jobs j where j.id =
                   (select batch from pipeline.run_steps where run = $1 and step = 'c')";
        let before: String = it.ask(&run, row).await;
        it.again(&run, "a", success()).await;
        assert_eq!(it.ask::<_, String>(&run, row).await, before);
        // The end of another starts what only that one waited for.
        it.succeed(&run, "b").await;
        it.is(
            &run,
            "running",
            "a succeeded, b succeeded, c enqueued, d enqueued",
        )
        .await;
        assert_eq!(it.queued(&run).await, 2);
    })
    .await;
}

/// The lease of the first worker ran out and another has taken the step over.
///
/// Scenarios: H077
#[tokio::test]
async fn the_end_of_an_attempt_that_was_taken_over_is_ignored() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(one(3)).await;
        let old = it.taken(&run, "a").await;
        let mut other = engine(db.pool()).await;
        db.move_clock_without_leases(Duration::from_secs(60)).await;
        let lost = other.tick().await.unwrap();
        assert_eq!(lost.len(), 1);
        other.turn(lost, Slots::default(), true).await.unwrap();
        db.move_clock(Duration::from_secs(60)).await;
        other.tick().await.unwrap();
        let taken = other.turn(Vec::new(), CLAIM, true).await.unwrap().claimed;
        assert_eq!((taken.len(), taken[0].id), (1, old.id));
        it.again(&run, "a", success()).await;
        it.is(&run, "running", "a enqueued").await;
        let end = vec![ManualEngine::end(&taken[0], &success())];
        let turn = other.turn(end, Slots::default(), true).await.unwrap();
        assert_eq!(turn.ended.len(), 1);
        it.is(&run, "succeeded", "a succeeded").await;
    })
    .await;
}

/// Scenarios: T047, T049, T138, T139
#[tokio::test]
async fn a_run_is_over_when_no_step_is_left_and_then_says_how() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let pipeline = |goes_on| {
            declare(move |p| {
                if goes_on {
                    p.failure_strategy(Continue);
                }
                p.step("a", act("a"));
                let b = p.step("b", act("b"));
                p.following(&b).step("c", act("c"));
            })
        };
        let run = it.start(pipeline(false)).await;
        it.succeed(&run, "a").await;
        it.is(&run, "running", "a succeeded, b enqueued, c pending")
            .await;
        it.fail(&run, "b").await;
        it.is(&run, "halted", "a succeeded, b failed, c skipped")
            .await;
        assert!(it.is_halted(&run).await);
        let run = it.start(pipeline(true)).await;
        it.fail(&run, "b").await;
        it.is(&run, "running", "a enqueued, b failed, c skipped")
            .await;
        it.succeed(&run, "a").await;
        it.is(&run, "failed", "a succeeded, b failed, c skipped")
            .await;
    })
    .await;
}

/// Scenarios: T125, T126, T127, T128, T129, T130, T131, T132, U018
#[test]
fn which_statuses_of_a_run_are_its_end() {
    for (scenario, status, ended) in [
        ("T125", RunStatus::Pending, false),
        ("T126", RunStatus::Running, false),
        ("T127", RunStatus::Cancelling, false),
        ("T128", RunStatus::Succeeded, true),
        ("T129", RunStatus::Failed, true),
        ("T130", RunStatus::Halted, true),
        ("T131", RunStatus::Skipped, true),
        ("T132", RunStatus::Cancelled, true),
    ] {
        assert_eq!(status.is_ended(), ended, "{scenario}");
    }
}

/// Scenarios: T173, T174, T175, T176, T177, T178
#[test]
fn which_statuses_of_a_step_are_its_end() {
    for (scenario, status, ended) in [
        ("T173", StepStatus::Pending, false),
        ("T174", StepStatus::Enqueued, false),
        ("T175", StepStatus::Succeeded, true),
        ("T176", StepStatus::Failed, true),
        ("T177", StepStatus::Skipped, true),
        ("T178", StepStatus::Cancelled, true),
    ] {
        assert_eq!(status.is_ended(), ended, "{scenario}");
    }
    // Those that the reference has, or has not, besides.
    assert!(!StepStatus::Waiting.is_ended());
    assert!(StepStatus::EndedRun.is_ended() && StepStatus::SkippedByBranch.is_ended());
}

/// Scenarios: T120, T121, T122, T133, T134, T170
#[tokio::test]
async fn a_chained_run_waits_and_then_begins_or_is_skipped() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        for (end, status, step) in [
            (success(), "running", "a enqueued"),
            (failure(), "skipped", "a skipped"),
        ] {
            let run = it.client.start(one(1)).then(one(1)).await.unwrap();
            let next = &run.chained().await.unwrap()[0];
            it.is(next, "pending", "a pending").await;
            assert!(!it.is_halted(next).await);
            let no_params: bool = it
                .ask(
                    next,
                    "select params is null from pipeline.runs where id = $1",
                )
                .await;
            assert!(no_params);
            it.end(&run, "a", end).await;
            it.is(next, status, step).await;
        }
    })
    .await;
}

/// Scenarios: T179, T180, T181, T184
#[tokio::test]
async fn where_a_pending_step_goes() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let pipeline = || {
            declare(|p| {
                p.step("a", act("a"));
                p.barrier();
                p.step("b", act("b"));
            })
        };
        let run = it.start(pipeline()).await;
        it.is(&run, "running", "a enqueued, barrier:1 pending, b pending")
            .await;
        it.succeed(&run, "a").await;
        it.is(
            &run,
            "running",
            "a succeeded, barrier:1 succeeded, b enqueued",
        )
        .await;
        let run = it.start(pipeline()).await;
        it.fail(&run, "a").await;
        it.is(&run, "halted", "a failed, barrier:1 skipped, b skipped")
            .await;
        let run = it.start(pipeline()).await;
        run.cancel().await.unwrap();
        it.is(
            &run,
            "cancelled",
            "a cancelled, barrier:1 cancelled, b cancelled",
        )
        .await;
    })
    .await;
}

/// The one way back is to open the run again, as its next round (rule 19).
///
/// Scenarios: T143, T144, T145, T146, T190, T191
#[tokio::test]
async fn an_ended_run_is_opened_again_only_if_it_did_not_succeed() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let pipeline = |goes_on| {
            declare(move |p| {
                if goes_on {
                    p.failure_strategy(Continue);
                }
                let a = p.step("a", act("a"));
                p.following(&a).step("b", act("b"));
            })
        };
        let good = it.client.start(pipeline(false)).await.unwrap();
        it.drain(&[]).await;
        let start = it.client.start(pipeline(false)).then(pipeline(false));
        let halted = start.await.unwrap();
        it.fail(&halted, "a").await;
        let skipped = &halted.chained().await.unwrap()[0];
        for (run, status) in [(&good, "succeeded"), (skipped, "skipped")] {
            let refused = run.reopen().await.unwrap_err().to_string();
            let names = format!("run {} is {status} and cannot be reopened", run.id());
            assert!(refused.starts_with(&names), "{refused}");
            assert!(refused.contains("`run.rerun()`"), "{refused}");
            assert_eq!(it.status(run.id()).await, status);
        }
        let failed = it.start(pipeline(true)).await;
        it.fail(&failed, "a").await;
        for (run, status) in [(&halted, "halted"), (&failed, "failed")] {
            it.is(run, status, "a failed, b skipped").await;
            run.reopen().await.unwrap();
            it.is(run, "running", "a enqueued, b pending").await;
            assert!(!it.is_halted(run).await);
            assert_eq!(run.state().await.unwrap().round, 2);
        }
        it.drain(&[]).await;
        for run in [&halted, &failed, skipped] {
            it.is(run, "succeeded", "a succeeded, b succeeded").await;
        }
    })
    .await;
}

/// A step and its run end in one transaction. If somebody's hands have come between them, the reconciler
/// makes good for it, callbacks included; a run that waits for a step it leaves alone.
///
/// Scenarios: T044, T118, T119, H079
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_steps_have_all_ended_is_ended() {
    with_database(async |db| {
        let it = Hand::new(db).await;
        let waiting = it
            .start(declare(|p| {
                let a = p.step("a", act("slow")).queue("nobodys");
                p.following(&a).step("b", act("b"));
            }))
            .await;
        let run = it.start(one(1)).await;
        for change in [
            "delete from pipeline.jobs where pipeline.run_of(id) = $1",
            "update pipeline.steps set status = 'succeeded', output = '1', ended_at = pipeline.now()
             where run = $1",
        ] {
            let changed = sqlx::query(change).bind(run.id()).execute(db.pool()).await;
            assert_eq!(changed.unwrap().rows_affected(), 1);
        }
        it.is(&run, "running", "a succeeded").await;
        let stop = CancellationToken::new();
        let worker = Worker::new(db.pool().clone())
            .register::<Told>()
            .data(Script::default())
            .reconcile_every(Duration::from_millis(10))
            .queue("told", 1);
        let worker = tokio::spawn(worker.run_until(stop.clone().cancelled_owned()));
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        it.is(&run, "succeeded", "a succeeded").await;
        assert!(it.is_stamped(&run).await);
        assert_eq!(it.fired(&run).await, "complete, success");
        stop.cancel();
        worker.await.unwrap().unwrap();
        it.is(&waiting, "running", "a enqueued, b pending").await;
    })
    .await;
}
