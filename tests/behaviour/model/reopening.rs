//! Rule 19: reopening.

use tests::model::Outcome;
use tests::model::input::Input;

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
    let steps = [
        job("ignored").failure_strategy(Strategy::Ignore),
        job("bad"),
    ];
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
    model.run_attempt(run, "early", Outcome::EndRun(1));
    model.fail(run, "bad");
    assert_eq!(model.status(run), R::Failed);
    model.reopen(run, &[]);
    assert_eq!(
        model.are(run, ["b", "in_y", "early", "after_early", "bad"]),
        [
            S::Succeeded,
            S::SkippedByBranch,
            S::EndedRun,
            S::Skipped,
            S::Enqueued
        ],
        "what was left out by the early end stays out"
    );
    model.ok(run, "bad");
    assert_eq!(model.status(run), R::Succeeded);
}

#[test]
fn rule_19_what_an_early_end_left_out_stays_skipped_also_after_a_step_that_runs_again() {
    let steps = [
        job("early"),
        job("bad"),
        job("after_bad").after("bad"),
        job("sorry").after_failure("bad"),
    ];
    let (mut model, run) = started(&under(Strategy::Continue, steps));
    model.run_attempt(run, "early", Outcome::EndRun(1));
    model.fail(run, "bad");
    assert_eq!(model.are(run, ["after_bad", "sorry"]), [S::Skipped; 2]);
    for round in [2, 3] {
        model.reopen(run, &[]);
        assert_eq!(
            model.are(run, ["early", "bad", "after_bad", "sorry"]),
            [S::EndedRun, S::Enqueued, S::Skipped, S::Skipped],
            "round {round}"
        );
        model.fail(run, "bad");
        assert_eq!(model.status(run), R::Failed);
    }
}

#[test]
fn rule_19_an_early_end_on_an_error_path_is_taken_back_with_it() {
    let steps = [
        job("slow"),
        job("bad").failure_strategy(Strategy::Continue),
        job("sorry").after_failure("bad"),
        job("after_slow").after("slow"),
    ];
    let (mut model, run) = started(&graph(steps));
    model.fail(run, "bad");
    model.run_attempt(run, "sorry", Outcome::EndRun(1));
    assert_eq!(model.is(run, "after_slow"), S::Skipped);
    model.ok(run, "slow");
    model.reopen(run, &[]);
    model.ok(run, "bad");
    assert_eq!(
        model.are(run, ["slow", "sorry", "after_slow"]),
        [S::Succeeded, S::SkippedByBranch, S::Enqueued]
    );
}

/// `sorry` and `log` come after a failure of `bad`.
fn with_error_path() -> GraphSpec {
    let steps = [
        job("first"),
        job("bad").after("first"),
        job("sorry").after_failure("bad"),
        job("log").takes("sorry", Takes::Maybe),
    ];
    graph(steps)
}

#[test]
fn rule_19_an_error_path_that_ran_is_not_taken_if_its_step_succeeds_now() {
    let (mut model, run) = started(&with_error_path());
    model.ok(run, "first");
    model.fail(run, "bad");
    model.ok(run, "sorry");
    model.ok(run, "log");
    assert_eq!(model.status(run), R::Halted);
    model.reopen(run, &[]);
    assert_eq!(
        model.are(run, ["first", "bad", "sorry", "log"]),
        [S::Succeeded, S::Enqueued, S::Pending, S::Pending]
    );
    model.ok(run, "bad");
    assert_eq!(model.is(run, "sorry"), S::SkippedByBranch);
    assert_eq!(model.step(run, "sorry").value, None, "not of this round");
    assert_eq!(model.input(run, "log"), [Input::Absent]);
    model.ok(run, "log");
    assert_eq!(model.status(run), R::Succeeded);
}

#[test]
fn rule_19_an_error_path_runs_again_if_its_step_fails_again() {
    let (mut model, run) = started(&with_error_path());
    model.ok(run, "first");
    model.fail(run, "bad");
    model.ok(run, "sorry");
    model.ok(run, "log");
    model.reopen(run, &[]);
    assert_eq!(released(&model.fail(run, "bad")), ["sorry"]);
    model.ok(run, "sorry");
    model.ok(run, "log");
    assert_eq!((model.status(run), model.run(run).round), (R::Halted, 2));
}

#[test]
fn rule_19_an_error_path_of_a_step_that_was_skipped_runs_if_the_step_fails_now() {
    let (mut model, run) = started(&with_error_path());
    model.fail(run, "first");
    assert_eq!(
        model.are(run, ["bad", "sorry"]),
        [S::Skipped, S::SkippedByBranch]
    );
    model.ok(run, "log");
    model.reopen(run, &[]);
    model.ok(run, "first");
    assert_eq!(released(&model.fail(run, "bad")), ["sorry"]);
}

#[test]
fn rule_19_everything_after_an_error_path_is_decided_again() {
    let steps = [
        job("other"),
        job("bad"),
        branch("ask", &["x", "y"]).after_failure("bad"),
        job("in_x").arm("ask", "x").after("other"),
        job("in_y").arm("ask", "y").after("other"),
        merge("met", "ask", &[("x", "in_x"), ("y", "in_y")]),
        job("report").following("other").following("met"),
        job("apart").after("other"),
    ];
    let (mut model, run) = started(&under(Strategy::Continue, steps));
    model.ok(run, "other");
    model.ok(run, "apart");
    model.fail(run, "bad");
    model.choose(run, "ask", "x");
    model.ok(run, "in_x");
    model.ok(run, "report");
    model.reopen(run, &[]);
    assert_eq!(
        model.are(run, ["ask", "in_x", "in_y", "met", "report"]),
        [S::Pending; 5]
    );
    assert_eq!(
        model.are(run, ["other", "apart"]),
        [S::Succeeded; 2],
        "what is not after the error path stays"
    );
    model.fail(run, "bad");
    model.choose(run, "ask", "y");
    model.ok(run, "in_y");
    model.ok(run, "report");
    assert_eq!(
        model.are(run, ["in_x", "in_y", "met", "report"]),
        [S::SkippedByBranch, S::Succeeded, S::Succeeded, S::Succeeded]
    );
}

#[test]
fn rule_19_a_run_that_failed_only_by_ignored_steps_is_not_reopened_without_naming_one() {
    let steps = [
        job("ignored").failure_strategy(Strategy::Ignore),
        job("also").failure_strategy(Strategy::Ignore),
        job("optional").optional(),
    ];
    let (mut model, run) = started(&graph(steps));
    for step in ["ignored", "also", "optional"] {
        model.fail(run, step);
    }
    assert_eq!(model.status(run), R::Failed);
    let refusal = model.apply(&Event::Reopen { run, named: vec![] });
    assert_eq!(
        refusal.unwrap_err().to_string(),
        "run 0 failed only by ignored steps, and none is named: ignored, also"
    );
    assert_eq!((model.status(run), model.run(run).round), (R::Failed, 1));
    model.reopen(run, &["also"]);
    assert_eq!(model.is(run, "also"), S::Enqueued);
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
