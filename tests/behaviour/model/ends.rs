//! Rules 3 and 15: fenced ends and retries. Rule 12: edges and decisions.

use tests::model::input::Input;
use tests::model::{Outcome, Value, Why};

use super::support::*;

fn end(run: RunId, step: &str, token: Token, outcome: Outcome) -> Event {
    Event::Ended {
        run,
        step: step.into(),
        token,
        outcome,
    }
}

#[test]
fn rule_3_the_same_end_again_changes_nothing() {
    let (mut model, run) = started(&graph([job("a"), job("b").after("a")]));
    let token = model.take(run, "a");
    let ended = end(run, "a", token, Outcome::Success(1));
    assert_eq!(released(&model.must(ended.clone())), ["b"]);
    let again = model.must(ended);
    assert_eq!(
        again,
        [Effect::AlreadyEnded {
            run,
            step: "a".into()
        }]
    );
    assert_eq!(model.are(run, ["a", "b"]), [S::Succeeded, S::Enqueued]);
}

#[test]
fn rule_3_a_late_worker_changes_nothing_and_is_told_so() {
    let (mut model, run) = started(&graph([job("a")]));
    let first = model.take(run, "a");
    let second = model.take(run, "a");
    assert_ne!(first, second);
    let late = model.must(end(run, "a", first, Outcome::Failed));
    assert_eq!(
        late,
        [Effect::Stale {
            run,
            step: "a".into(),
            token: first
        }]
    );
    assert_eq!(model.is(run, "a"), S::Enqueued);
    model.must(end(run, "a", second, Outcome::Success(1)));
    assert_eq!(model.status(run), R::Succeeded);
}

#[test]
fn rule_3_an_end_of_an_earlier_round_changes_nothing() {
    let (mut model, run) = started(&graph([job("a")]));
    let token = model.take(run, "a");
    model.must(end(run, "a", token, Outcome::Failed));
    model.reopen(run, &[]);
    let late = model.must(end(run, "a", token, Outcome::Failed));
    assert_eq!(
        late,
        [Effect::Stale {
            run,
            step: "a".into(),
            token
        }]
    );
    assert_eq!(
        (model.is(run, "a"), model.status(run)),
        (S::Enqueued, R::Running)
    );
}

#[test]
fn rule_12_an_edge_is_satisfied_or_broken() {
    for (strategy, outcome, then) in [
        (Strategy::Continue, Outcome::Success(1), S::Enqueued),
        (Strategy::Continue, Outcome::Failed, S::Skipped),
        (Strategy::Halt, Outcome::Failed, S::Skipped),
        (Strategy::Ignore, Outcome::Failed, S::Enqueued),
    ] {
        let (mut model, run) = started(&under(strategy, [job("a"), job("b").after("a")]));
        model.run_attempt(run, "a", outcome.clone());
        assert_eq!(model.is(run, "b"), then, "{strategy:?} {outcome:?}");
    }
}

#[test]
fn rule_12_a_step_is_decided_when_its_last_upstream_ended() {
    let steps = [job("a"), job("b"), job("c").after("a").after("b")];
    let (mut model, run) = started(&under(Strategy::Continue, steps));
    model.fail(run, "a");
    assert_eq!(model.is(run, "c"), S::Pending);
    model.ok(run, "b");
    assert_eq!(model.is(run, "c"), S::Skipped);
    assert_eq!(model.step(run, "c").why, Some(Why::Broken("a".into())));
}

#[test]
fn rule_12_skipping_goes_all_the_way_down_also_under_ignore() {
    let steps = [
        job("a").failure_strategy(Strategy::Continue),
        job("b").after("a"),
        job("c").after("b"),
        job("d").following("c"),
        job("e"),
    ];
    let (mut model, run) = started(&under(Strategy::Ignore, steps));
    model.fail(run, "a");
    assert_eq!(model.are(run, ["b", "c", "d"]), [S::Skipped; 3]);
    assert_eq!(model.is(run, "e"), S::Enqueued);
}

#[test]
fn rule_12_an_order_only_edge_holds_back_and_breaks_like_any() {
    let steps = [job("a"), job("b").following("a")];
    let (mut model, run) = started(&under(Strategy::Continue, steps));
    assert_eq!(model.is(run, "b"), S::Pending);
    model.fail(run, "a");
    assert_eq!(model.is(run, "b"), S::Skipped);
}

#[test]
fn rule_12_after_failure_runs_when_its_step_failed_for_good_and_takes_the_failure() {
    for strategy in [Strategy::Halt, Strategy::Continue, Strategy::Ignore] {
        let steps = [job("a"), job("h").after_failure("a")];
        let (mut model, run) = started(&under(strategy, steps));
        model.run_attempt(run, "a", Outcome::Retry);
        assert_eq!(model.is(run, "h"), S::Pending);
        assert_eq!(released(&model.fail(run, "a")), ["h"], "{strategy:?}");
        assert_eq!(model.input(run, "h"), [Input::Failure]);
        model.ok(run, "h");
        assert!(
            model.status(run).ended_otherwise(),
            "the status is still rule 9's"
        );
    }
}

#[test]
fn rule_12_after_failure_of_a_step_that_ends_otherwise_is_skipped_by_branch() {
    let steps = [
        job("x"),
        job("a").after("x"),
        job("h").after_failure("a"),
        job("d").takes("h", Takes::Maybe),
    ];
    let spec = under(Strategy::Continue, steps);
    let (mut model, run) = started(&spec);
    model.ok(run, "x");
    model.ok(run, "a");
    assert_eq!(
        model.are(run, ["h", "d"]),
        [S::SkippedByBranch, S::Enqueued]
    );
    assert_eq!(model.input(run, "d"), [Input::Absent]);

    let (mut model, run) = started(&spec);
    model.fail(run, "x");
    assert_eq!(
        model.are(run, ["a", "h", "d"]),
        [S::Skipped, S::SkippedByBranch, S::Enqueued]
    );
}

#[test]
fn rule_12_after_failure_and_what_depends_on_it_alone_are_exempt_from_halt() {
    let steps = [
        job("a"),
        job("b"),
        job("h").after_failure("a"),
        job("tell").after("h"),
        job("mixed").following("h").following("b"),
        timer("later", 5).following("tell"),
    ];
    let (mut model, run) = started(&graph(steps));
    model.fail(run, "a");
    assert_eq!(
        model.are(run, ["h", "tell", "mixed", "later"]),
        [S::Enqueued, S::Pending, S::Skipped, S::Pending]
    );
    model.ok(run, "h");
    model.ok(run, "tell");
    assert_eq!(model.is(run, "later"), S::Waiting);
    model.fail(run, "b");
    assert_eq!(
        model.is(run, "later"),
        S::Waiting,
        "a waiting step is exempt too"
    );
    model.must(Event::Time { ms: 5 });
    model.must(Event::Due {
        run,
        step: "later".into(),
    });
    assert_eq!(model.status(run), R::Halted);
}

#[test]
fn rule_12_halt_skips_what_an_error_path_watches_and_the_path_is_not_taken() {
    let steps = [
        job("a"),
        job("b").after("a"),
        job("h").after_failure("b"),
        job("d").following("h"),
    ];
    let (mut model, run) = started(&graph(steps));
    model.fail(run, "a");
    assert_eq!(
        model.are(run, ["b", "h", "d"]),
        [S::Skipped, S::SkippedByBranch, S::Enqueued],
        "what depends on the error path alone runs, taken or not"
    );
}

#[test]
fn rule_12_a_failure_that_did_not_happen_comes_before_a_broken_edge() {
    let steps = [
        job("a"),
        job("b"),
        job("h").after_failure("a").following("b"),
    ];
    let (mut model, run) = started(&under(Strategy::Continue, steps));
    model.ok(run, "a");
    assert_eq!(model.is(run, "h"), S::Pending);
    model.fail(run, "b");
    assert_eq!(model.is(run, "h"), S::SkippedByBranch);
}

#[test]
fn rule_15_while_attempts_remain_the_coordinator_does_nothing() {
    let (mut model, run) = started(&graph([job("a"), job("b").after("a")]));
    for _ in 0..3 {
        let effects = model.run_attempt(run, "a", Outcome::Retry);
        assert_eq!(
            effects,
            [Effect::Again {
                run,
                step: "a".into()
            }]
        );
        assert_eq!(model.are(run, ["a", "b"]), [S::Enqueued, S::Pending]);
    }
    model.ok(run, "a");
    assert_eq!(model.is(run, "b"), S::Enqueued);
}

#[test]
fn rule_15_an_ended_attempt_is_fenced_from_the_next() {
    let (mut model, run) = started(&graph([job("a")]));
    let token = model.take(run, "a");
    model.must(end(run, "a", token, Outcome::Retry));
    let again = model.must(end(run, "a", token, Outcome::Failed));
    assert_eq!(
        again,
        [Effect::Stale {
            run,
            step: "a".into(),
            token
        }]
    );
    assert_eq!(model.is(run, "a"), S::Enqueued);
}

#[test]
fn rule_20_after_any_is_ready_at_the_first_upstream_that_succeeded() {
    let steps = [
        job("a"),
        job("b"),
        job("c"),
        job("any").after_any(&["a", "b", "c"]),
    ];
    let (mut model, run) = started(&under(Strategy::Continue, steps));
    model.fail(run, "a");
    assert_eq!(model.is(run, "any"), S::Pending);
    assert_eq!(
        released(&model.run_attempt(run, "c", Outcome::Success(7))),
        ["any"]
    );
    assert_eq!(released(&model.ok(run, "b")), [] as [&str; 0]);
    assert_eq!(model.input(run, "any"), [Input::Value(Value::Of(7))]);
}

#[test]
fn rule_20_after_any_is_skipped_when_none_can_succeed_any_more() {
    for strategy in [Strategy::Continue, Strategy::Ignore] {
        let steps = [job("a"), job("b"), job("any").after_any(&["a", "b"])];
        let (mut model, run) = started(&under(strategy, steps));
        model.fail(run, "a");
        assert_eq!(model.is(run, "any"), S::Pending);
        model.fail(run, "b");
        assert_eq!(
            model.is(run, "any"),
            S::Skipped,
            "an ignored failure is no value"
        );
        assert_eq!(model.step(run, "any").why, Some(Why::NoneSucceeded));
        assert_eq!(model.status(run), R::Failed);
    }
}

#[test]
fn rule_20_after_any_over_paths_that_were_not_taken_is_skipped_by_branch() {
    let steps = [
        job("a"),
        job("b"),
        job("mend_a").after_failure("a"),
        job("mend_b").after_failure("b"),
        job("any").after_any(&["mend_a", "mend_b"]),
        job("report").takes("any", Takes::Maybe),
    ];
    let spec = under(Strategy::Continue, steps);
    let (mut model, run) = started(&spec);
    model.ok(run, "a");
    assert_eq!(model.is(run, "any"), S::Pending);
    assert_eq!(released(&model.ok(run, "b")), ["report"]);
    assert_eq!(model.is(run, "any"), S::SkippedByBranch);
    assert_eq!(model.step(run, "any").why, Some(Why::NoneTaken));
    assert_eq!(model.input(run, "report"), [Input::Absent]);
    model.ok(run, "report");
    assert_eq!(model.status(run), R::Succeeded);

    let (mut model, run) = started(&spec);
    model.ok(run, "a");
    model.fail(run, "b");
    assert_eq!(released(&model.ok(run, "mend_b")), ["any"]);

    let (mut model, run) = started(&spec);
    model.ok(run, "a");
    model.fail(run, "b");
    model.fail(run, "mend_b");
    assert_eq!(
        model.are(run, ["any", "report"]),
        [S::Skipped; 2],
        "one was taken, and failed"
    );
    assert_eq!(model.step(run, "any").why, Some(Why::NoneSucceeded));
}

#[test]
fn rule_20_after_any_over_a_path_not_taken_and_another_end_is_skipped() {
    for outcome in [Outcome::Failed, Outcome::Success(1)] {
        let steps = [
            job("a").optional(),
            job("b").failure_strategy(Strategy::Continue),
            job("c").after("b"),
            job("mend").after_failure("b"),
            job("any").after_any(&["a", "mend"]),
            job("other").after_any(&["c", "mend"]),
        ];
        let (mut model, run) = started(&under(Strategy::Continue, steps));
        model.fail(run, "a");
        let is_taken = outcome == Outcome::Failed;
        model.run_attempt(run, "b", outcome);
        if is_taken {
            assert_eq!(model.is(run, "c"), S::Skipped);
            model.fail(run, "mend");
        } else {
            model.fail(run, "c");
        }
        assert_eq!(model.are(run, ["any", "other"]), [S::Skipped; 2]);
    }
}

#[test]
fn rule_20_after_any_over_arms_that_were_not_chosen_is_skipped_by_branch() {
    let steps = [
        branch("format", &["hd", "sd", "none"]),
        job("a").following("format").arm("format", "hd"),
        job("b").following("format").arm("format", "sd"),
        job("any").after_any(&["a", "b"]),
        job("report").takes("any", Takes::Maybe),
    ];
    let (mut model, run) = started(&graph(steps.clone()));
    assert_eq!(released(&model.choose(run, "format", "none")), ["report"]);
    assert_eq!(model.is(run, "any"), S::SkippedByBranch);

    let (mut model, run) = started(&graph(steps));
    model.choose(run, "format", "sd");
    assert_eq!(released(&model.ok(run, "b")), ["any"]);
}

#[test]
fn rule_20_a_barrier_holds_back_after_any_and_is_no_upstream_of_it() {
    let steps = [
        job("a"),
        job("b"),
        barrier("phase"),
        job("any").after_any(&["a", "b"]),
    ];
    let (mut model, run) = started(&under(Strategy::Ignore, steps));
    model.ok(run, "a");
    assert_eq!(model.is(run, "any"), S::Pending);
    model.fail(run, "b");
    assert_eq!(model.is(run, "any"), S::Enqueued);

    let steps = [
        job("a"),
        barrier("phase"),
        job("c"),
        job("any").after_any(&["a", "c"]),
    ];
    let (mut model, run) = started(&under(Strategy::Ignore, steps));
    model.fail(run, "a");
    assert_eq!(model.are(run, ["phase", "any"]), [S::Succeeded, S::Pending]);
    model.fail(run, "c");
    assert_eq!(model.is(run, "any"), S::Skipped);
}
