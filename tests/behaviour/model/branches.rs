//! §8: branches, arms, merges, barriers.

use tests::model::input::Input;
use tests::model::{Outcome, Value, Why};

use super::support::*;

fn format() -> Vec<Node> {
    vec![
        branch("format", &["hd", "sd", "none"]),
        job("hd").arm("format", "hd"),
        job("upscale").after("hd").arm("format", "hd"),
        job("sd").arm("format", "sd"),
        merge("encoded", "format", &[("hd", "upscale"), ("sd", "sd")]),
        job("publish").takes("encoded", Takes::Maybe),
    ]
}

#[test]
fn section_8_the_chosen_arm_runs_and_the_others_are_skipped_by_branch() {
    let (mut model, run) = started(&graph(format()));
    let effects = model.choose(run, "format", "hd");
    assert_eq!(released(&effects), ["hd"]);
    assert_eq!(model.is(run, "sd"), S::SkippedByBranch);
    assert_eq!(
        model.step(run, "sd").why,
        Some(Why::NotChosen("format".into()))
    );
    model.ok(run, "hd");
    model.run_attempt(run, "upscale", Outcome::Success(7));
    assert_eq!(
        model.are(run, ["encoded", "publish"]),
        [S::Succeeded, S::Enqueued]
    );
    assert_eq!(model.input(run, "publish"), [Input::Value(Value::Of(7))]);
    model.ok(run, "publish");
    assert_eq!(model.status(run), R::Succeeded);
}

#[test]
fn section_8_an_empty_arm_goes_straight_to_the_merge() {
    let (mut model, run) = started(&graph(format()));
    assert_eq!(released(&model.choose(run, "format", "none")), ["publish"]);
    assert_eq!(
        model.are(run, ["hd", "upscale", "sd"]),
        [S::SkippedByBranch; 3]
    );
    assert_eq!(model.input(run, "publish"), [Input::Absent]);
}

#[test]
fn section_8_a_value_that_is_no_arm_fails_the_deciding_step_and_names_the_arms() {
    for outcome in [Outcome::Chose("4k".to_owned()), Outcome::Success(1)] {
        let (mut model, run) = started(&under(Strategy::Continue, format()));
        model.run_attempt(run, "format", outcome);
        let arms = ["hd", "sd", "none"].map(str::to_owned).to_vec();
        assert_eq!(model.is(run, "format"), S::Failed);
        assert_eq!(model.step(run, "format").why, Some(Why::NotAnArm(arms)));
        assert_eq!(
            model.are(run, ["hd", "sd", "encoded", "publish"]),
            [S::Skipped; 4]
        );
        assert_eq!(model.status(run), R::Failed);
    }
}

#[test]
fn section_8_an_inherited_ignore_acts_on_a_deciding_step_as_continue() {
    let (mut model, run) = started(&under(Strategy::Ignore, format()));
    model.fail(run, "format");
    assert_eq!(model.are(run, ["hd", "sd", "encoded"]), [S::Skipped; 3]);
    assert_eq!(model.status(run), R::Failed);
}

#[test]
fn section_8_an_arm_not_chosen_is_skipped_by_branch_at_once() {
    let steps = [
        job("slow"),
        branch("b", &["x", "y"]),
        job("in_x").following("slow").arm("b", "x"),
        merge("m", "b", &[]),
    ];
    let (mut model, run) = started(&graph(steps));
    model.choose(run, "b", "y");
    assert_eq!(
        model.are(run, ["slow", "in_x", "m"]),
        [S::Enqueued, S::SkippedByBranch, S::Succeeded]
    );
}

#[test]
fn section_8_an_arm_not_chosen_comes_before_a_broken_edge() {
    let steps = [
        job("a"),
        branch("b", &["x", "y"]),
        job("in_x").following("a").arm("b", "x"),
        job("end").following("in_x"),
    ];
    for order in [["a", "b"], ["b", "a"]] {
        let (mut model, run) = started(&under(Strategy::Continue, steps.clone()));
        for step in order {
            match step {
                "a" => model.fail(run, "a"),
                _ => model.choose(run, "b", "y"),
            };
        }
        assert_eq!(
            model.are(run, ["in_x", "end"]),
            [S::SkippedByBranch, S::Enqueued]
        );
    }
}

#[test]
fn section_8_branches_nest_and_an_arm_around_counts() {
    let steps = [
        branch("outer", &["x", "y"]),
        branch("inner", &["p", "q"]).arm("outer", "x"),
        job("in_p").arm("inner", "p"),
        job("in_q").arm("inner", "q"),
        merge("inner_end", "inner", &[]).arm("outer", "x"),
        job("in_y").arm("outer", "y"),
        merge("outer_end", "outer", &[]),
    ];
    let (mut model, run) = started(&graph(steps.clone()));
    model.choose(run, "outer", "y");
    assert_eq!(
        model.are(run, ["inner", "in_p", "in_q", "inner_end"]),
        [S::SkippedByBranch; 4]
    );
    model.ok(run, "in_y");
    assert_eq!(model.status(run), R::Succeeded);

    let (mut model, run) = started(&graph(steps));
    model.choose(run, "outer", "x");
    model.choose(run, "inner", "q");
    model.ok(run, "in_q");
    assert_eq!(model.are(run, ["in_p", "in_y"]), [S::SkippedByBranch; 2]);
    assert_eq!(
        model.are(run, ["inner_end", "outer_end"]),
        [S::Succeeded; 2]
    );
}

#[test]
fn section_8_branches_follow_one_another() {
    let steps = [
        branch("first", &["x", "y"]),
        job("in_x").arm("first", "x"),
        merge("between", "first", &[]),
        branch("second", &["p", "q"]).following("between"),
        job("in_p").arm("second", "p"),
        merge("end", "second", &[]),
    ];
    let (mut model, run) = started(&graph(steps));
    assert_eq!(released(&model.choose(run, "first", "y")), ["second"]);
    model.choose(run, "second", "p");
    model.ok(run, "in_p");
    assert_eq!(model.status(run), R::Succeeded);
}

#[test]
fn section_8_a_branch_that_was_never_asked_chooses_no_arm() {
    let steps = [
        job("a"),
        branch("how", &["x", "y"]).after_failure("a"),
        job("in_x").arm("how", "x"),
        job("in_y").arm("how", "y"),
        merge("end", "how", &[]),
    ];
    let (mut model, run) = started(&graph(steps));
    model.ok(run, "a");
    assert_eq!(
        model.are(run, ["how", "in_x", "in_y"]),
        [S::SkippedByBranch; 3]
    );
    assert_eq!(model.is(run, "end"), S::Succeeded);
    assert_eq!(model.status(run), R::Succeeded);
}

#[test]
fn section_8_after_any_in_an_arm_waits_for_the_branch() {
    let steps = [
        job("a"),
        branch("b", &["x", "y"]),
        job("in_x").arm("b", "x"),
        job("any").after_any(&["a", "in_x"]).arm("b", "x"),
    ];
    let (mut model, run) = started(&graph(steps.clone()));
    model.ok(run, "a");
    assert_eq!(model.is(run, "any"), S::Pending);
    model.choose(run, "b", "y");
    assert_eq!(model.is(run, "any"), S::SkippedByBranch);

    let (mut model, run) = started(&graph(steps));
    model.ok(run, "a");
    assert_eq!(released(&model.choose(run, "b", "x")), ["in_x", "any"]);
}

#[test]
fn section_8_a_barrier_splits_the_graph_and_never_becomes_a_job() {
    let steps = [job("a"), job("b"), barrier("phase"), job("c"), job("d")];
    let (mut model, run) = started(&graph(steps));
    assert_eq!(released(&model.ok(run, "a")), [] as [&str; 0]);
    let effects = model.ok(run, "b");
    assert_eq!(released(&effects), ["c", "d"]);
    assert_eq!(model.is(run, "phase"), S::Succeeded);
}

#[test]
fn section_8_a_barrier_stops_the_next_phase_if_anything_before_it_is_broken() {
    let steps = [
        job("a"),
        job("h").after_failure("a"),
        job("b"),
        barrier("phase"),
        job("c"),
    ];
    let (mut model, run) = started(&under(Strategy::Continue, steps.clone()));
    model.fail(run, "a");
    model.ok(run, "h");
    assert_eq!(model.is(run, "phase"), S::Pending);
    model.ok(run, "b");
    assert_eq!(model.are(run, ["phase", "c"]), [S::Skipped; 2]);

    let (mut model, run) = started(&under(Strategy::Ignore, steps));
    model.fail(run, "a");
    model.ok(run, "h");
    model.ok(run, "b");
    assert_eq!(model.are(run, ["phase", "c"]), [S::Succeeded, S::Enqueued]);
}

#[test]
fn section_8_a_barrier_after_a_branch_is_satisfied_by_what_was_not_chosen() {
    let mut steps = format();
    steps.extend([barrier("phase"), job("after")]);
    let (mut model, run) = started(&graph(steps));
    model.choose(run, "format", "none");
    assert_eq!(released(&model.ok(run, "publish")), ["after"]);
}
