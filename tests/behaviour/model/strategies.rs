//! Rule 13: Halt, Continue, Ignore and optional at both levels. Rule 14: `cx.end_run()`.

use tests::model::{Outcome, Why};

use super::support::*;

#[test]
fn rule_13_halt_skips_every_pending_step_and_enqueued_work_runs_on() {
    let steps = [job("a"), job("b"), job("c").after("b"), job("d").after("a")];
    let (mut model, run) = started(&graph(steps));
    model.run_attempt(run, "b", Outcome::Retry);
    model.fail(run, "a");
    assert!(model.run(run).halt_triggered);
    assert_eq!(
        model.are(run, ["b", "c", "d"]),
        [S::Enqueued, S::Skipped, S::Skipped]
    );
    assert_eq!(model.step(run, "c").why, Some(Why::HaltedBy("a".into())));
    assert_eq!(model.status(run), R::Running);
    model.ok(run, "b");
    assert_eq!(
        (model.is(run, "c"), model.status(run)),
        (S::Skipped, R::Halted)
    );
}

#[test]
fn rule_13_halt_skips_waiting_steps() {
    let steps = [job("a"), timer("t", 5), signal("s", "go", None), child("c")];
    let (mut model, run) = started(&graph(steps));
    assert_eq!(model.are(run, ["t", "s", "c"]), [S::Waiting; 3]);
    let effects = model.fail(run, "a");
    assert_eq!(model.are(run, ["t", "s", "c"]), [S::Skipped; 3]);
    assert!(effects.contains(&Effect::CancelChild {
        run,
        step: "c".into()
    }));
    assert_eq!(model.status(run), R::Halted);
}

#[test]
fn rule_13_continue_breaks_only_its_own_edges() {
    let steps = [job("a"), job("b"), job("c").after("a"), job("d").after("b")];
    let (mut model, run) = started(&under(Strategy::Continue, steps));
    model.fail(run, "a");
    model.ok(run, "b");
    assert_eq!(model.are(run, ["c", "d"]), [S::Skipped, S::Enqueued]);
    assert!(!model.run(run).halt_triggered);
    model.ok(run, "d");
    assert_eq!(model.status(run), R::Failed);
}

#[test]
fn rule_13_ignore_satisfies_its_edges_and_the_run_still_fails() {
    let steps = [job("a"), job("b").takes("a", Takes::Maybe)];
    let (mut model, run) = started(&under(Strategy::Ignore, steps));
    model.fail(run, "a");
    model.ok(run, "b");
    assert_eq!(model.status(run), R::Failed);
}

#[test]
fn rule_13_optional_is_ignore_that_does_not_count() {
    for strategy in [Strategy::Halt, Strategy::Continue, Strategy::Ignore] {
        let steps = [job("a").optional(), job("b").takes("a", Takes::Maybe)];
        let (mut model, run) = started(&under(strategy, steps));
        model.fail(run, "a");
        model.ok(run, "b");
        assert_eq!(model.status(run), R::Succeeded, "{strategy:?}");
    }
}

#[test]
fn rule_13_override_means_override() {
    let all = [Strategy::Halt, Strategy::Continue, Strategy::Ignore];
    for own in all {
        let expected = match own {
            Strategy::Halt => (R::Halted, S::Skipped, S::Skipped),
            Strategy::Continue => (R::Failed, S::Skipped, S::Succeeded),
            Strategy::Ignore => (R::Failed, S::Succeeded, S::Succeeded),
        };
        for pipeline in all {
            let steps = [
                job("a").failure_strategy(own),
                job("b").following("a"),
                job("c"),
                job("d").after("c"),
            ];
            let (mut model, run) = started(&under(pipeline, steps));
            model.fail(run, "a");
            for step in ["c", "b", "d"] {
                if model.is(run, step) == S::Enqueued {
                    model.ok(run, step);
                }
            }
            let found = (model.status(run), model.is(run, "b"), model.is(run, "d"));
            assert_eq!(found, expected, "{own:?} under {pipeline:?}");
        }
    }
}

#[test]
fn rule_13_an_ignored_step_under_halt_does_not_halt() {
    let steps = [
        job("a").failure_strategy(Strategy::Ignore),
        job("b").following("a"),
        job("c"),
    ];
    let (mut model, run) = started(&graph(steps));
    model.fail(run, "a");
    assert!(!model.run(run).halt_triggered);
    assert_eq!(model.are(run, ["b", "c"]), [S::Enqueued, S::Enqueued]);
    model.fail(run, "c");
    assert_eq!(model.status(run), R::Running, "b runs on");
    model.ok(run, "b");
    assert_eq!(model.status(run), R::Halted);
}

#[test]
fn rule_14_halt_from_inside_ends_a_run_early_and_in_good_order() {
    let steps = [
        job("a"),
        job("b"),
        job("c").after("b"),
        job("d").after("a"),
        timer("t", 5),
    ];
    let (mut model, run) = started(&graph(steps));
    model.run_attempt(run, "a", Outcome::EndRun(1));
    assert_eq!(
        model.are(run, ["a", "b", "c", "d", "t"]),
        [S::EndedRun, S::Enqueued, S::Skipped, S::Skipped, S::Skipped]
    );
    model.ok(run, "b");
    assert_eq!(model.status(run), R::Succeeded);
}

#[test]
fn rule_14_a_failure_beside_it_is_still_a_failure() {
    for (strategy, status) in [(Strategy::Continue, R::Failed), (Strategy::Halt, R::Halted)] {
        let (mut model, run) = started(&under(strategy, [job("a"), job("b")]));
        model.run_attempt(run, "a", Outcome::EndRun(1));
        assert!(!model.run(run).halt_triggered);
        model.fail(run, "b");
        assert_eq!(model.status(run), status);
    }
}

#[test]
fn rule_14_it_belongs_to_its_attempt() {
    // The model sees it only with a success: an attempt that called it and failed is a failure, and
    // the retry that succeeds without it is a plain success.
    let (mut model, run) = started(&graph([job("a"), job("b").after("a")]));
    model.run_attempt(run, "a", Outcome::Retry);
    model.ok(run, "a");
    assert_eq!(model.are(run, ["a", "b"]), [S::Succeeded, S::Enqueued]);
}

#[test]
fn rule_14_it_spares_no_error_path() {
    let steps = [job("a"), job("b"), job("h").after_failure("b")];
    let (mut model, run) = started(&under(Strategy::Continue, steps));
    model.run_attempt(run, "a", Outcome::EndRun(1));
    assert_eq!(model.is(run, "h"), S::Skipped);
    model.fail(run, "b");
    assert_eq!(model.status(run), R::Failed);
}
