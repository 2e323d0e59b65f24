//! Branches and merges: the reference system's scenarios, and what holds here beyond them.

use super::build::*;
use crate::graph::spec::*;
use crate::graph::{Absence, Problem};

/// A branch with an arm of two steps, an arm of one and an empty arm, and a merge.
fn format() -> Vec<StepSpec> {
    vec![
        branch("format", &["hd", "sd", "none"]),
        job("scale").following(&["format"]).in_arm("format", "hd"),
        job("encode").after(&["scale"]).in_arm("format", "hd"),
        job("copy").following(&["format"]).in_arm("format", "sd"),
        merge(
            "merge:format",
            "format",
            &[("hd", "encode"), ("sd", "copy")],
        ),
    ]
}

/// Scenarios: U008
#[test]
fn a_barrier_inside_an_arm_is_refused() {
    let mut steps = format();
    steps.insert(2, barrier(1).in_arm("format", "hd"));
    let found = problems_of(&graph(steps));
    let expected = Problem::BarrierInArm {
        barrier: "barrier:1".into(),
        branch: "format".into(),
        arm: "hd".into(),
    };
    assert_eq!(found[0], expected);
}

/// Scenarios: U008
#[test]
fn a_barrier_between_a_branch_and_its_arms_is_refused() {
    let message = message([
        branch("format", &["hd"]),
        barrier(1),
        job("scale").following(&["format"]).in_arm("format", "hd"),
    ]);
    assert!(
        message.contains("between the branch `format` and step `scale`"),
        "{message}"
    );
}

/// Scenarios: U010
#[test]
fn a_barrier_comes_after_a_branch_and_every_step_of_its_arms() {
    let mut steps = format();
    steps.extend([barrier(1), job("last")]);
    let graph = valid(steps);
    let all = ["format", "scale", "encode", "copy", "merge:format"];
    assert_eq!(before(&graph, "barrier:1"), all);
}

/// Scenarios: U011
#[test]
fn a_barrier_also_comes_after_what_an_arm_depends_on_outside() {
    let graph = valid([
        job("outside"),
        branch("format", &["hd"]),
        job("scale")
            .following(&["format"])
            .after(&["outside"])
            .in_arm("format", "hd"),
        barrier(1),
        job("last"),
    ]);
    assert_eq!(before(&graph, "barrier:1"), ["outside", "format", "scale"]);
}

/// Scenarios: U012
#[test]
fn a_barrier_after_a_branch_of_empty_arms_comes_after_the_branch() {
    let graph = valid([branch("format", &["hd", "sd"]), barrier(1), job("last")]);
    assert_eq!(before(&graph, "barrier:1"), ["format"]);
}

/// Scenarios: U013
#[test]
fn of_a_branch_after_a_barrier_only_the_decision_waits_for_it() {
    let mut steps = vec![job("first"), barrier(1)];
    steps.extend(format());
    let graph = valid(steps);
    assert_eq!(before(&graph, "format"), ["barrier:1"]);
    assert_eq!(before(&graph, "scale"), ["format"]);
    assert_eq!(before(&graph, "encode"), ["scale"]);
    assert_eq!(before(&graph, "merge:format"), ["encode", "copy", "format"]);
    let arms = graph.find("encode").unwrap().arms();
    let branch = graph.find("format").unwrap().no();
    assert_eq!(
        arms.iter()
            .map(|arm| (arm.branch, arm.index))
            .collect::<Vec<_>>(),
        [(branch, 0)]
    );
}

/// Scenarios: U014
#[test]
fn a_step_after_an_empty_branch_after_a_barrier_waits_for_the_decision() {
    let graph = valid([
        job("first"),
        barrier(1),
        branch("format", &["hd", "sd"]),
        job("last").following(&["format"]),
    ]);
    assert_eq!(before(&graph, "format"), ["barrier:1"]);
    assert_eq!(before(&graph, "last"), ["format"]);
}

/// Scenarios: U042
#[test]
fn a_merge_comes_after_the_values_the_decision_and_the_last_steps_of_the_arms() {
    let mut steps = format();
    steps.insert(3, job("log").following(&["scale"]).in_arm("format", "hd"));
    let graph = valid(steps);
    assert_eq!(
        before(&graph, "merge:format"),
        ["encode", "copy", "format", "log"]
    );
    assert!(graph.find("merge:format").unwrap().arms().is_empty());
}

/// Scenarios: U042
#[test]
fn a_merge_waits_also_for_what_a_failure_or_the_first_of_several_does_not_wait_for() {
    let graph = valid([
        branch("format", &["hd"]),
        job("a").following(&["format"]).in_arm("format", "hd"),
        job("b").following(&["format"]).in_arm("format", "hd"),
        job("first").after(&["a", "b"]).any().in_arm("format", "hd"),
        job("mourn")
            .takes("first", Takes::Failure)
            .in_arm("format", "hd"),
        merge("merge:format", "format", &[]),
    ]);
    assert_eq!(
        before(&graph, "merge:format"),
        ["format", "a", "b", "first", "mourn"]
    );
}

/// Scenarios: U042
#[test]
fn one_arm_with_steps_and_an_empty_one_are_valid() {
    valid([
        branch("format", &["hd", "none"]),
        job("scale").following(&["format"]).in_arm("format", "hd"),
    ]);
}

/// Scenarios: U042
#[test]
fn keys_are_unique_across_arms() {
    let message = message([
        branch("format", &["hd", "sd"]),
        job("scale").following(&["format"]).in_arm("format", "hd"),
        job("scale").following(&["format"]).in_arm("format", "sd"),
    ]);
    assert!(message.contains("`scale` is declared 2 times"), "{message}");
}

/// Scenarios: U042
#[test]
fn branches_nest_and_each_step_knows_the_arms_around_it() {
    let graph = valid([
        branch("outer", &["a", "b"]),
        branch("inner", &["x", "y"])
            .following(&["outer"])
            .in_arm("outer", "b"),
        job("deep").following(&["inner"]).in_arm("inner", "y"),
        merge("merge:inner", "inner", &[("y", "deep")]).in_arm("outer", "b"),
        merge("merge:outer", "outer", &[("b", "merge:inner")]),
        job("last").takes("merge:outer", Takes::Maybe),
    ]);
    let arms = graph.find("deep").unwrap().arms();
    assert_eq!(
        arms.iter()
            .map(|arm| (arm.branch, arm.index))
            .collect::<Vec<_>>(),
        [(0, 1), (1, 1)]
    );
    assert_eq!(before(&graph, "merge:inner"), ["deep", "inner"]);
    assert_eq!(before(&graph, "merge:outer"), ["merge:inner", "outer"]);
}

/// Scenarios: U042
#[test]
fn steps_of_an_inner_branch_without_a_merge_are_waited_for_by_the_outer_merge() {
    let graph = valid([
        branch("outer", &["a", "b"]),
        branch("inner", &["x", "y"])
            .following(&["outer"])
            .in_arm("outer", "b"),
        job("deep").following(&["inner"]).in_arm("inner", "y"),
        merge("merge:outer", "outer", &[]),
    ]);
    assert_eq!(before(&graph, "merge:outer"), ["outer", "deep"]);
}

#[test]
fn a_step_that_only_an_inner_arm_waits_for_is_waited_for_by_the_outer_merge() {
    let graph = valid([
        branch("outer", &["a", "b"]),
        job("first").following(&["outer"]).in_arm("outer", "b"),
        branch("inner", &["x", "y"])
            .following(&["outer"])
            .in_arm("outer", "b"),
        job("deep")
            .following(&["inner", "first"])
            .in_arm("inner", "y"),
        merge("merge:inner", "inner", &[("y", "deep")]).in_arm("outer", "b"),
        merge("merge:outer", "outer", &[]),
    ]);
    assert_eq!(
        before(&graph, "merge:outer"),
        ["outer", "first", "merge:inner"]
    );
}

/// Scenarios: U042
#[test]
fn a_branch_without_arms_is_refused() {
    assert_eq!(
        problem([branch("format", &[])]),
        Problem::NoArms {
            branch: "format".into()
        }
    );
}

/// Scenarios: U043
#[test]
fn a_branch_after_a_branch_depends_on_its_merge_only() {
    let mut steps = format();
    steps.push(branch("audience", &["kids", "all"]).following(&["merge:format"]));
    steps.push(
        job("rate")
            .following(&["audience"])
            .in_arm("audience", "kids"),
    );
    let graph = valid(steps);
    assert_eq!(before(&graph, "audience"), ["merge:format"]);
    assert_eq!(before(&graph, "rate"), ["audience"]);
}

/// Scenarios: U049
#[test]
fn the_arm_of_a_step_is_kept() {
    let graph = valid(format());
    let arm = graph.find("copy").unwrap().step().arm.clone();
    assert_eq!(
        arm,
        Some(ArmRef {
            branch: "format".into(),
            arm: "sd".into()
        })
    );
}

#[test]
fn an_arm_that_is_not_there_is_named_with_those_that_are() {
    let found = message([
        branch("format", &["hd", "sd"]),
        job("scale").following(&["format"]).in_arm("format", "uhd"),
    ]);
    assert!(
        found.contains("`uhd`, which branch `format` does not have: its arms are `hd`, `sd`"),
        "{found}"
    );
    let twice = message([branch("format", &["hd", "hd"])]);
    assert!(twice.contains("has two arms with the name `hd`"), "{twice}");
    let no_branch = message([job("a"), job("b").after(&["a"]).in_arm("a", "hd")]);
    assert!(
        no_branch.contains("names `a` as its branch, but `a` is not a branch"),
        "{no_branch}"
    );
    let unknown = message([
        branch("format", &["hd"]),
        job("b").following(&["format"]).in_arm("fromat", "hd"),
    ]);
    assert!(unknown.contains("did you mean `format`?"), "{unknown}");
}

#[test]
fn a_step_of_an_arm_waits_for_the_decision() {
    let problem = problem([
        job("source"),
        branch("format", &["hd"]),
        job("scale").after(&["source"]).in_arm("format", "hd"),
    ]);
    let expected = Problem::ArmDetached {
        step: "scale".into(),
        branch: "format".into(),
        arm: "hd".into(),
    };
    assert_eq!(problem, expected);
}

#[test]
fn branches_in_the_arms_of_each_other_are_refused() {
    let found = problems_of(&graph([
        branch("a", &["x"]).following(&["b"]).in_arm("b", "x"),
        branch("b", &["x"]).following(&["a"]).in_arm("a", "x"),
    ]));
    assert!(
        found
            .iter()
            .any(|p| matches!(p, Problem::ArmOfItself { .. })),
        "{found:?}"
    );
    let itself = problems_of(&graph([branch("a", &["x"]).in_arm("a", "x")]));
    assert!(
        itself
            .iter()
            .any(|p| matches!(p, Problem::ArmOfItself { .. })),
        "{itself:?}"
    );
}

#[test]
fn from_outside_an_arm_a_step_may_be_absent_and_its_order_is_free() {
    let with_last = |last: StepSpec| {
        let mut steps = format();
        steps.push(last);
        steps
    };
    valid(with_last(job("last").takes("copy", Takes::Maybe)));
    valid(with_last(job("last").following(&["copy"])));
    valid(with_last(job("last").takes("merge:format", Takes::Maybe)));
    let sure = problem(with_last(job("last").after(&["copy"])));
    let absence = Absence::InArm {
        branch: "format".into(),
        arm: "sd".into(),
    };
    let (step, upstream) = ("last".to_owned(), "copy".to_owned());
    assert_eq!(
        sure,
        Problem::MayBeAbsent {
            step,
            upstream,
            absence
        }
    );
    let outcome = message(with_last(job("last").takes("copy", Takes::Outcome)));
    assert!(
        outcome.contains("neither a value nor a failure"),
        "{outcome}"
    );
}

#[test]
fn what_all_arms_return_is_sure_and_what_some_return_is_not() {
    let merged = |values: &[(&str, &str)], last: StepSpec| {
        [
            job("source"),
            branch("format", &["hd", "none"]),
            job("scale").following(&["format"]).in_arm("format", "hd"),
            job("poster")
                .following(&["format"])
                .optional()
                .in_arm("format", "hd"),
            merge("merge:format", "format", values),
            last,
        ]
    };
    let last = || job("last").after(&["merge:format"]);
    // An arm may return what came from outside: then also an empty one has a value.
    valid(merged(&[("hd", "scale"), ("none", "source")], last()));
    let some = message(merged(&[("hd", "scale")], last()));
    assert!(
        some.contains("the arm `none` of branch `format` returns nothing"),
        "{some}"
    );
    let unsure = message(merged(&[("hd", "poster"), ("none", "source")], last()));
    assert!(
        unsure.contains("returns `poster`, which may be absent"),
        "{unsure}"
    );
    let twice = message(merged(&[("hd", "scale"), ("hd", "source")], job("last")));
    assert!(twice.contains("two values for the arm `hd`"), "{twice}");
    let other = message(merged(&[("none", "scale")], job("last")));
    assert!(
        other.contains("`scale`, which is in another arm"),
        "{other}"
    );
}

#[test]
fn what_a_merge_within_an_arm_may_lack_its_arm_may_lack() {
    let steps = |inner: &[(&str, &str)]| {
        [
            branch("outer", &["a"]),
            branch("inner", &["x", "y"])
                .following(&["outer"])
                .in_arm("outer", "a"),
            job("deep").following(&["inner"]).in_arm("inner", "x"),
            job("flat").following(&["inner"]).in_arm("inner", "y"),
            merge("merge:inner", "inner", inner).in_arm("outer", "a"),
            merge("merge:outer", "outer", &[("a", "merge:inner")]),
            job("last").after(&["merge:outer"]),
        ]
    };
    valid(steps(&[("x", "deep"), ("y", "flat")]));
    let message = message(steps(&[("x", "deep")]));
    assert!(
        message.contains("returns `inner`, which may be absent"),
        "{message}"
    );
}

#[test]
fn a_merge_stands_where_its_branch_stands() {
    let message = message([
        branch("outer", &["a"]),
        branch("inner", &["x"])
            .following(&["outer"])
            .in_arm("outer", "a"),
        merge("merge:inner", "inner", &[]),
    ]);
    assert!(
        message.contains("`inner` is not where its branch `inner` is"),
        "{message}"
    );
}

#[test]
fn steps_of_two_arms_of_a_branch_never_depend_on_each_other() {
    let problem = problem([
        branch("format", &["hd", "sd"]),
        job("scale").following(&["format"]).in_arm("format", "hd"),
        job("copy")
            .following(&["format"])
            .takes("scale", Takes::Maybe)
            .in_arm("format", "sd"),
    ]);
    let expected = Problem::OtherArm {
        step: "copy".into(),
        upstream: "scale".into(),
        branch: "format".into(),
    };
    assert_eq!(problem, expected);
}

#[test]
fn the_failure_of_a_decision_cannot_be_ignored_and_an_inherited_ignore_acts_as_continue() {
    let expected = Problem::IgnoreOnBranch {
        step: "format".into(),
    };
    assert_eq!(
        problem([branch("format", &["hd"]).failure_strategy(Strategy::Ignore)]),
        expected
    );
    assert_eq!(problem([branch("format", &["hd"]).optional()]), expected);
    let mut spec = graph([branch("format", &["hd"]), job("log").after(&["format"])]);
    spec.strategy = Strategy::Ignore;
    let graph = compile(spec);
    assert_eq!(graph.node(0).unwrap().strategy(), Strategy::Continue);
    assert_eq!(graph.node(1).unwrap().strategy(), Strategy::Ignore);
}
