//! Rule 19: reopening.

use tests::model::Outcome;

use super::support::*;

#[test]
fn rule_19_failed_skipped_and_cancelled_steps_are_pending_again_and_outputs_are_kept() {
    let steps = [
        job("done"),
        job("bad").after("done"),
        job("next").after("bad"),
        job("beside").after("done"),
    ];
    let (mut model, run) = started(&under(Strategy::Continue, steps));
    model.ok(run, "done");
    model.fail(run, "bad");
    let token = model.take(run, "beside");
    model.cancel(run);
    model.must(Event::Ended {
        run,
        step: "beside".into(),
        token,
        outcome: Outcome::Stopped,
    });
    let effects = model.reopen(run, &[]);
    assert_eq!(released(&effects), ["bad", "beside"]);
    assert_eq!((model.status(run), model.run(run).round), (R::Running, 2));
    assert_eq!(model.run(run).drain, None);
    for step in ["bad", "next", "beside"] {
        model.ok(run, step);
    }
    assert_eq!(model.status(run), R::Succeeded);
}

#[test]
fn rule_19_flags_are_cleared() {
    let (mut model, run) = started(&graph([job("a"), job("b").after("a")]));
    model.fail(run, "a");
    model.reopen(run, &[]);
    assert!(!model.run(run).halt_triggered);
    assert_eq!(model.are(run, ["a", "b"]), [S::Enqueued, S::Pending]);
}

#[test]
fn rule_19_ignored_failures_only_when_named() {
    let steps = [job("ignored").on_failure(Strategy::Ignore), job("bad")];
    let spec = graph(steps);
    for (named, status, end) in [
        (&[][..], S::Failed, R::Failed),
        (&["ignored"], S::Enqueued, R::Succeeded),
    ] {
        let (mut model, run) = started(&spec);
        model.fail(run, "ignored");
        model.fail(run, "bad");
        model.reopen(run, named);
        assert_eq!(model.are(run, ["ignored", "bad"]), [status, S::Enqueued]);
        for step in ["ignored", "bad"] {
            if model.is(run, step) == S::Enqueued {
                model.ok(run, step);
            }
        }
        assert_eq!(model.status(run), end);
    }
}

#[test]
fn rule_19_naming_anything_else_is_refused() {
    let (mut model, run) = started(&graph([job("a")]));
    model.fail(run, "a");
    let refusal = model
        .apply(&Event::Reopen {
            run,
            named: vec!["a".into()],
        })
        .unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "step a of run 0 is failed, not an ignored failure"
    );
    let refusal = model
        .apply(&Event::Reopen {
            run,
            named: vec!["x".into()],
        })
        .unwrap_err();
    assert_eq!(refusal.to_string(), "run 0 has no step x");
}

#[test]
fn rule_19_only_failed_halted_and_cancelled_runs_are_reopened() {
    let (mut model, run) = started(&graph([job("a")]));
    let next = then(&mut model, &[run]);
    let refused = |model: &mut Model, run| {
        let reopen = Event::Reopen { run, named: vec![] };
        model.apply(&reopen).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&mut model, run),
        "run 0 is running and cannot become running"
    );
    assert_eq!(
        refused(&mut model, next),
        "run 1 is pending and cannot become running"
    );
    model.fail(run, "a");
    assert_eq!(
        refused(&mut model, next),
        "run 1 is skipped and cannot become running"
    );
    model.reopen(run, &[]);
    model.ok(run, "a");
    assert_eq!(
        refused(&mut model, run),
        "run 0 is succeeded and cannot become running"
    );
}

#[test]
fn rule_19_what_is_skipped_by_branch_or_halted_stays() {
    let steps = [
        branch("b", &["x", "y"]),
        job("in_x").arm("b", "x"),
        job("in_y").arm("b", "y"),
        job("early").following("in_x"),
        job("bad"),
        job("after_early").after("early"),
    ];
    let (mut model, run) = started(&under(Strategy::Continue, steps));
    model.choose(run, "b", "x");
    model.ok(run, "in_x");
    model.run_attempt(run, "early", Outcome::Halt(1));
    model.fail(run, "bad");
    assert_eq!(model.status(run), R::Failed);
    model.reopen(run, &[]);
    assert_eq!(
        model.are(run, ["b", "in_y", "early", "after_early", "bad"]),
        [
            S::Succeeded,
            S::SkippedByBranch,
            S::Halted,
            S::Enqueued,
            S::Enqueued
        ],
        "what was skipped for the halt runs now"
    );
}

#[test]
fn rule_19_a_branch_that_failed_decides_again() {
    let steps = [
        branch("b", &["x", "y"]),
        job("in_x").arm("b", "x"),
        job("in_y").arm("b", "y"),
    ];
    let (mut model, run) = started(&graph(steps));
    model.fail(run, "b");
    model.reopen(run, &[]);
    model.choose(run, "b", "y");
    assert_eq!(
        model.are(run, ["in_x", "in_y"]),
        [S::SkippedByBranch, S::Enqueued]
    );
}

#[test]
fn rule_19_a_reopened_run_with_nothing_to_do_ends_at_once() {
    let (mut model, run) = started(&graph([job("a")]));
    let token = model.take(run, "a");
    model.cancel(run);
    model.must(Event::Ended {
        run,
        step: "a".into(),
        token,
        outcome: Outcome::Success(1),
    });
    assert_eq!(model.status(run), R::Cancelled);
    let effects = model.reopen(run, &[]);
    assert_eq!((model.status(run), model.run(run).round), (R::Succeeded, 2));
    assert_eq!(callbacks(&effects).len(), 2);
}

#[test]
fn rule_19_chained_runs_that_were_skipped_because_of_it_are_pending_again() {
    let (mut model, first) = started(&graph([job("a")]));
    let next = then(&mut model, &[first]);
    let last = then(&mut model, &[next]);
    model.fail(first, "a");
    model.reopen(first, &[]);
    for run in [next, last] {
        assert_eq!(
            (model.status(run), model.is(run, "a")),
            (R::Pending, S::Pending)
        );
        assert_eq!(model.run(run).round, 2);
    }
    for run in [first, next, last] {
        model.ok(run, "a");
    }
    assert_eq!(model.status(last), R::Succeeded);
}

#[test]
fn rule_19_a_run_skipped_for_two_needs_both_reopened_in_any_order() {
    for swap in [false, true] {
        let (mut model, one) = started(&graph([job("a")]));
        let two = model.start();
        let next = then(&mut model, &[one, two]);
        model.fail(one, "a");
        model.fail(two, "a");
        let (first, second) = if swap { (two, one) } else { (one, two) };
        model.reopen(first, &[]);
        assert_eq!((model.status(next), model.run(next).round), (R::Skipped, 1));
        model.reopen(second, &[]);
        assert_eq!((model.status(next), model.run(next).round), (R::Pending, 2));
    }
}

#[test]
fn rule_19_a_run_cancelled_in_its_chain_waits_in_it_again() {
    let (mut model, first) = started(&graph([job("a")]));
    let next = then(&mut model, &[first]);
    model.cancel(next);
    model.reopen(next, &[]);
    assert_eq!((model.status(next), model.run(next).round), (R::Pending, 2));
    model.ok(first, "a");
    assert_eq!(model.status(next), R::Running);

    let (mut model, first) = started(&graph([job("a")]));
    let next = then(&mut model, &[first]);
    model.cancel(next);
    model.fail(first, "a");
    model.reopen(next, &[]);
    assert_eq!(
        model.status(next),
        R::Skipped,
        "its upstream stands failed: rule 17"
    );
    model.reopen(first, &[]);
    assert_eq!(model.status(next), R::Pending);
}
