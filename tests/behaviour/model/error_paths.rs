//! Rule 12 and §8: error paths behind barriers.

use tests::model::input::Input;
use tests::model::{Outcome, Why};

use super::support::*;

/// `sorry` watches `bad`, which stands before the barrier; `other` stands beside `bad`.
fn behind_a_barrier(strategy: Strategy) -> GraphSpec {
    let steps = [
        job("bad"),
        job("other"),
        barrier("phase"),
        job("sorry").after_failure("bad"),
        job("log").takes("sorry", Takes::Maybe),
        job("next"),
    ];
    under(strategy, steps)
}

#[test]
fn rule_12_an_error_path_behind_a_barrier_runs_when_its_phase_is_over() {
    for strategy in [Strategy::Halt, Strategy::Continue] {
        let (mut model, run) = started(&behind_a_barrier(strategy));
        model.fail(run, "bad");
        assert_eq!(
            model.are(run, ["phase", "sorry", "log"]),
            [S::Pending; 3],
            "{strategy:?}: `other` has not ended"
        );
        assert_eq!(released(&model.ok(run, "other")), ["sorry"]);
        assert_eq!(model.input(run, "sorry"), [Input::Failure]);
        assert_eq!(model.are(run, ["phase", "next"]), [S::Skipped; 2]);
        assert_eq!(
            model.step(run, "phase").why,
            Some(Why::Broken("bad".into()))
        );
        model.ok(run, "sorry");
        model.ok(run, "log");
        assert!(model.status(run).ended_otherwise());
    }
}

#[test]
fn rule_12_behind_a_barrier_that_a_failure_does_not_break_the_error_path_runs_beside_the_rest() {
    for optional in [false, true] {
        let mut spec = behind_a_barrier(Strategy::Ignore);
        spec.steps[0].optional = optional;
        let (mut model, run) = started(&spec);
        model.fail(run, "bad");
        assert_eq!(released(&model.ok(run, "other")), ["sorry", "next"]);
        assert_eq!(model.is(run, "phase"), S::Succeeded);
    }
}

#[test]
fn rule_12_an_error_path_behind_a_barrier_is_not_taken_if_its_step_did_not_fail() {
    let (mut model, run) = started(&behind_a_barrier(Strategy::Continue));
    model.ok(run, "bad");
    assert_eq!(model.is(run, "sorry"), S::Pending);
    assert_eq!(released(&model.ok(run, "other")), ["log", "next"]);
    assert_eq!(model.is(run, "sorry"), S::SkippedByBranch);

    // Also if the barrier is broken by another step; what depends on the error path alone runs all the same.
    for strategy in [Strategy::Halt, Strategy::Continue] {
        let (mut model, run) = started(&behind_a_barrier(strategy));
        model.fail(run, "other");
        assert_eq!(released(&model.ok(run, "bad")), ["log"]);
        assert_eq!(
            model.are(run, ["phase", "sorry", "next"]),
            [S::Skipped, S::SkippedByBranch, S::Skipped]
        );
    }
}

#[test]
fn rule_13_halt_skips_what_comes_after_a_barrier_that_it_leaves_pending() {
    let (mut model, run) = started(&behind_a_barrier(Strategy::Halt));
    model.fail(run, "bad");
    assert_eq!(model.are(run, ["phase", "next"]), [S::Pending, S::Skipped]);
    assert_eq!(
        model.step(run, "next").why,
        Some(Why::HaltedBy("bad".into()))
    );
}

#[test]
fn rule_13_halt_skips_a_barrier_that_no_error_path_waits_for() {
    let steps = [
        job("bad"),
        job("other"),
        barrier("one"),
        job("sorry").after_failure("bad"),
        barrier("two"),
        job("next"),
    ];
    let (mut model, run) = started(&graph(steps));
    model.fail(run, "bad");
    assert_eq!(model.are(run, ["one", "two"]), [S::Pending, S::Skipped]);
}

#[test]
fn rule_12_an_error_path_behind_several_barriers_waits_for_all_phases_before_it() {
    for strategy in [Strategy::Halt, Strategy::Continue] {
        let steps = [
            job("bad"),
            job("other"),
            barrier("one"),
            job("middle"),
            job("early").after_failure("bad"),
            barrier("two"),
            job("late").after_failure("bad"),
        ];
        let (mut model, run) = started(&under(strategy, steps));
        model.fail(run, "bad");
        assert_eq!(
            model.are(run, ["one", "early", "two", "late"]),
            [S::Pending; 4],
            "{strategy:?}"
        );
        assert_eq!(released(&model.ok(run, "other")), ["early"]);
        assert_eq!(
            model.are(run, ["one", "middle", "two", "late"]),
            [S::Skipped, S::Skipped, S::Pending, S::Pending]
        );
        assert_eq!(released(&model.ok(run, "early")), ["late"]);
        assert_eq!(model.is(run, "two"), S::Skipped);
    }
}

#[test]
fn section_8_a_broken_barrier_breaks_the_next_one_also_across_a_phase_of_error_paths() {
    let steps = [
        job("bad"),
        barrier("one"),
        job("sorry").after_failure("bad"),
        barrier("two"),
        job("next"),
    ];
    let (mut model, run) = started(&under(Strategy::Continue, steps.clone()));
    assert_eq!(released(&model.fail(run, "bad")), ["sorry"]);
    model.ok(run, "sorry");
    assert_eq!(
        model.are(run, ["one", "two", "next"]),
        [S::Skipped; 3],
        "`next` comes after `one` too"
    );

    let (mut model, run) = started(&under(Strategy::Continue, steps));
    assert_eq!(released(&model.ok(run, "bad")), ["next"]);
}

#[test]
fn rule_14_it_spares_no_error_path_behind_a_barrier() {
    let (mut model, run) = started(&behind_a_barrier(Strategy::Halt));
    model.run_attempt(run, "other", Outcome::EndRun(1));
    assert_eq!(
        model.are(run, ["phase", "sorry", "log", "next"]),
        [S::Skipped; 4]
    );
    model.fail(run, "bad");
    assert_eq!(model.status(run), R::Halted);
}

#[test]
fn rule_18_an_error_path_behind_a_barrier_is_cancelled_with_its_run() {
    let steps = ["phase", "sorry", "log"];
    let (mut model, run) = started(&behind_a_barrier(Strategy::Halt));
    model.fail(run, "bad");
    model.cancel(run);
    assert_eq!(model.are(run, steps), [S::Cancelled; 3]);
    assert_eq!(model.status(run), R::Cancelled);

    let (mut model, run) = started(&within(5, behind_a_barrier(Strategy::Halt)));
    model.fail(run, "bad");
    model.must(Event::Time { ms: 5 });
    model.must(Event::DeadlinePassed { run });
    assert_eq!(model.are(run, steps), [S::Cancelled; 3]);
    assert_eq!(model.status(run), R::Failed);
}

#[test]
fn rule_19_an_error_path_behind_a_barrier_is_decided_again() {
    let (mut model, run) = started(&behind_a_barrier(Strategy::Halt));
    model.fail(run, "bad");
    for step in ["other", "sorry", "log"] {
        model.ok(run, step);
    }
    assert_eq!(model.status(run), R::Halted);
    model.reopen(run, &[]);
    assert_eq!(released(&model.fail(run, "bad")), ["sorry"]);
    model.ok(run, "sorry");
    model.ok(run, "log");
    model.reopen(run, &[]);
    assert_eq!(released(&model.ok(run, "bad")), ["log", "next"]);
    assert_eq!(
        model.are(run, ["phase", "sorry"]),
        [S::Succeeded, S::SkippedByBranch]
    );
}

#[test]
fn rule_19_a_barrier_that_succeeded_does_not_hold_back_an_error_path_in_the_next_round() {
    let (mut model, run) = started(&behind_a_barrier(Strategy::Ignore));
    model.fail(run, "bad");
    model.fail(run, "other");
    for step in ["sorry", "log", "next"] {
        model.ok(run, step);
    }
    model.reopen(run, &["bad", "other"]);
    assert_eq!(
        model.are(run, ["other", "phase", "sorry", "next"]),
        [S::Enqueued, S::Succeeded, S::Pending, S::Succeeded]
    );
    assert_eq!(released(&model.fail(run, "bad")), ["sorry"]);
}
