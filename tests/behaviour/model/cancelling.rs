//! Rule 18: cancel and deadline.

use tests::model::{Outcome, Why};

use super::support::*;

#[test]
fn rule_18_pending_waiting_and_untaken_work_is_cancelled_at_once() {
    let steps = [
        job("untaken"),
        job("backoff"),
        job("later").after("untaken"),
        timer("t", 5),
        child("c"),
    ];
    let (mut model, run) = started(&graph(steps));
    model.run_attempt(run, "backoff", Outcome::Retry);
    let effects = model.cancel(run);
    assert_eq!(
        model.are(run, ["untaken", "backoff", "later", "t", "c"]),
        [S::Cancelled; 5]
    );
    for step in ["untaken", "backoff"] {
        assert!(effects.contains(&Effect::Withdrawn {
            run,
            step: step.into()
        }));
    }
    assert!(
        effects.contains(&Effect::CancelChild {
            run,
            step: "c".into()
        }),
        "children with it"
    );
    assert_eq!(model.status(run), R::Cancelled);
}

#[test]
fn rule_18_running_work_is_asked_to_stop_and_ends_as_it_did() {
    for (outcome, status) in [
        (Outcome::Success(1), S::Succeeded),
        (Outcome::EndRun(1), S::EndedRun),
        (Outcome::Stopped, S::Cancelled),
        (Outcome::Failed, S::Failed),
        (Outcome::Retry, S::Failed),
        (Outcome::Child, S::Cancelled),
    ] {
        let (mut model, run) = started(&graph([job("a"), job("b").after("a")]));
        let token = model.take(run, "a");
        let effects = model.cancel(run);
        assert!(effects.contains(&Effect::AskedToStop {
            run,
            step: "a".into(),
            token
        }));
        assert_eq!(model.status(run), R::Cancelling);
        let step = "a".into();
        model.must(Event::Ended {
            run,
            step,
            token,
            outcome: outcome.clone(),
        });
        assert_eq!(
            model.are(run, ["a", "b"]),
            [status, S::Cancelled],
            "{outcome:?}"
        );
        assert_eq!(model.status(run), R::Cancelled, "{outcome:?}");
    }
}

#[test]
fn rule_18_a_stop_that_nobody_asked_for_is_a_failure() {
    let (mut model, run) = started(&graph([job("a")]));
    model.run_attempt(run, "a", Outcome::Stopped);
    assert_eq!(
        (model.is(run, "a"), model.status(run)),
        (S::Failed, R::Halted)
    );
}

#[test]
fn rule_18_no_attempt_is_followed_by_another() {
    let (mut model, run) = started(&graph([job("a"), job("b")]));
    model.take(run, "a");
    model.cancel(run);
    for step in ["a", "b"] {
        let taken = Event::Taken {
            run,
            step: step.into(),
        };
        assert!(model.apply(&taken).is_err());
    }
}

#[test]
fn rule_18_the_last_one_turns_the_run_cancelled() {
    let (mut model, run) = started(&graph([job("a"), job("b")]));
    let (a, b) = (model.take(run, "a"), model.take(run, "b"));
    model.cancel(run);
    let ended = |step: &str, token| Event::Ended {
        run,
        step: step.into(),
        token,
        outcome: Outcome::Failed,
    };
    assert_eq!(callbacks(&model.must(ended("a", a))), []);
    assert_eq!(model.status(run), R::Cancelling);
    assert_eq!(callbacks(&model.must(ended("b", b))).len(), 1);
    assert_eq!(model.status(run), R::Cancelled);
    assert!(!model.run(run).halt_triggered);
}

#[test]
fn rule_18_cancelling_twice_is_fine() {
    let (mut model, run) = started(&graph([job("a")]));
    let token = model.take(run, "a");
    model.cancel(run);
    assert_eq!(model.cancel(run), []);
    let step = "a".into();
    model.must(Event::Ended {
        run,
        step,
        token,
        outcome: Outcome::Stopped,
    });
    assert_eq!(
        model.cancel(run),
        [],
        "also when the first has done its work"
    );
}

#[test]
fn rule_18_cancelling_an_ended_run_is_an_error_that_names_its_status() {
    let (mut model, run) = started(&graph([job("a")]));
    let next = then(&mut model, &[run]);
    model.fail(run, "a");
    let refusal = model.apply(&Event::Cancel { run }).unwrap_err();
    assert!(refusal.to_string().contains("halted"), "{refusal}");
    let refusal = model.apply(&Event::Cancel { run: next }).unwrap_err();
    assert!(refusal.to_string().contains("skipped"), "{refusal}");
}

#[test]
fn rule_18_a_run_that_waits_in_a_chain_is_cancelled_with_its_steps() {
    let (mut model, first) = started(&graph([job("a")]));
    let next = then(&mut model, &[first]);
    let last = then(&mut model, &[next]);
    model.cancel(next);
    assert_eq!(
        (model.status(next), model.is(next, "a")),
        (R::Cancelled, S::Cancelled)
    );
    assert_eq!(model.status(last), R::Skipped);
    model.ok(first, "a");
    assert_eq!(model.status(next), R::Cancelled);
}

#[test]
fn rule_18_a_deadline_drains_the_run_and_it_ends_failed() {
    let (mut model, run) = started(&within(10, graph([job("a"), job("b").after("a")])));
    let token = model.take(run, "a");
    let passed = Event::DeadlinePassed { run };
    model.must(Event::Time { ms: 9 });
    assert!(model.apply(&passed).is_err(), "not yet");
    model.must(Event::Time { ms: 1 });
    assert_eq!(model.due().first(), Some(&passed));
    model.must(passed);
    assert_eq!(
        (model.status(run), model.is(run, "b")),
        (R::Cancelling, S::Cancelled)
    );
    assert_eq!(model.step(run, "b").why, Some(Why::DeadlineExceeded));
    let step = "a".into();
    model.must(Event::Ended {
        run,
        step,
        token,
        outcome: Outcome::Stopped,
    });
    assert_eq!(
        (model.status(run), model.is(run, "a")),
        (R::Failed, S::Cancelled)
    );
}

#[test]
fn rule_18_a_deadline_that_passes_after_a_cancel_does_not_count() {
    let (mut model, run) = started(&within(10, graph([job("a")])));
    let token = model.take(run, "a");
    model.cancel(run);
    model.must(Event::Time { ms: 10 });
    assert_eq!(model.must(Event::DeadlinePassed { run }), []);
    let step = "a".into();
    model.must(Event::Ended {
        run,
        step,
        token,
        outcome: Outcome::Success(1),
    });
    assert_eq!(model.status(run), R::Cancelled);
}

#[test]
fn rule_18_a_deadline_counts_from_the_start_anew_each_round() {
    let spec = within(10, graph([job("a")]));
    let (mut model, first) = started(&spec);
    let next = then(&mut model, &[first]);
    model.must(Event::Time { ms: 8 });
    model.ok(first, "a");
    model.must(Event::Time { ms: 9 });
    assert_eq!(model.due(), [], "the chained run started at 8");
    model.must(Event::Time { ms: 1 });
    model.must(Event::DeadlinePassed { run: next });
    model.reopen(next, &[]);
    assert_eq!((model.status(next), model.due().len()), (R::Running, 0));
    model.must(Event::Time { ms: 10 });
    assert_eq!(model.due().len(), 1);
}
