//! What steps may take from one another, and how they may join.

use super::build::*;
use crate::graph::Problem;
use crate::graph::spec::*;

#[test]
fn a_value_that_may_be_absent_names_both_steps_and_both_remedies() {
    let with = |upstream: StepSpec| message([upstream, job("publish").after(&["thumbnail"])]);
    assert_eq!(
        with(job("thumbnail").optional()),
        "step `publish` takes the value of `thumbnail` as always present, but it is optional: take an \
         `Option` from the handle that `.optional()` returned, or remove `.optional()` from `thumbnail`"
    );
    let ignored = with(job("thumbnail").failure_strategy(Strategy::Ignore));
    assert!(ignored.contains("its failure is ignored"), "{ignored}");
}

#[test]
fn under_a_pipeline_wide_ignore_a_sure_value_needs_a_step_with_a_strategy_of_its_own() {
    let with = |upstream: StepSpec| {
        let mut spec = graph([upstream, job("publish").after(&["encode"])]);
        spec.strategy = Strategy::Ignore;
        spec
    };
    let found = problems_of(&with(job("encode")));
    assert_eq!(
        found[0].to_string(),
        "step `publish` takes the value of `encode` as always present, but the pipeline ignores \
         failures and it has no failure strategy of its own: give `encode` the strategy `Halt` or `Continue`, or \
         `.failure_strategy(Ignore)`, whose handle gives an `Option`"
    );
    compile(with(job("encode").failure_strategy(Strategy::Halt)));
    compile(with(job("encode").failure_strategy(Strategy::Continue)));
}

#[test]
fn what_may_be_absent_can_be_taken_so_or_in_order_only() {
    for takes in [Takes::Maybe, Takes::Outcome, Takes::Order, Takes::Failure] {
        valid([job("a").optional(), job("b").takes("a", takes)]);
    }
}

#[test]
fn a_step_after_a_failure_may_be_absent() {
    let steps = |takes| {
        [
            job("charge"),
            job("refund").takes("charge", Takes::Failure),
            job("report").takes("refund", takes),
        ]
    };
    valid(steps(Takes::Maybe));
    valid(steps(Takes::Order));
    let sure = message(steps(Takes::Value));
    assert!(sure.contains("it runs only if `charge` fails"), "{sure}");
    assert!(message(steps(Takes::Outcome)).contains("neither a value nor a failure"));
}

#[test]
fn halt_does_not_skip_a_step_after_a_failure_nor_what_depends_on_it_alone() {
    let graph = valid([
        job("charge"),
        job("other"),
        job("refund").takes("charge", Takes::Failure),
        job("report").takes("refund", Takes::Maybe),
        job("both").takes("refund", Takes::Maybe).after(&["other"]),
    ]);
    let exempt: Vec<&str> = graph
        .nodes()
        .filter(|n| n.is_exempt_from_halt())
        .map(|n| n.key())
        .collect();
    assert_eq!(exempt, ["refund", "report"]);
}

#[test]
fn a_failure_is_the_only_edge_of_the_step_that_takes_it() {
    let problem = problem([
        job("charge"),
        job("other"),
        job("refund")
            .takes("charge", Takes::Failure)
            .following(&["other"]),
    ]);
    let (step, upstream) = ("refund".into(), "charge".into());
    assert_eq!(problem, Problem::FailureWithOthers { step, upstream });
}

#[test]
fn what_cannot_fail_has_no_step_after_its_failure() {
    let found = message([timer("wait"), job("mourn").takes("wait", Takes::Failure)]);
    assert!(
        found.contains("`wait` fails, and `wait` cannot fail"),
        "{found}"
    );
}

#[test]
fn a_step_after_a_failure_behind_a_barrier_waits_for_any_end_of_it() {
    let takes = |graph: &crate::graph::Graph| -> Vec<(String, Takes)> {
        let upstream = graph.find("mourn").unwrap().upstream().iter();
        let key = |no| graph.node(no).unwrap().key().to_owned();
        upstream.map(|up| (key(up.no), up.takes)).collect()
    };
    let expected = [
        ("a".to_owned(), Takes::Failure),
        ("barrier:1".to_owned(), Takes::Ended),
    ];
    let mourn = || job("mourn").takes("a", Takes::Failure);
    let implied = valid([job("a"), barrier(1), mourn()]);
    assert_eq!(takes(&implied), expected);
    assert_eq!(
        implied.find("mourn").unwrap().shape(),
        Some(Shape::One),
        "the barrier gives it nothing"
    );
    for given in [Takes::Order, Takes::Ended] {
        let graph = valid([job("a"), barrier(1), mourn().takes("barrier:1", given)]);
        assert_eq!(takes(&graph), expected);
        assert_eq!(graph.fingerprint(), implied.fingerprint());
    }
    let other = problem([
        job("a"),
        barrier(1),
        job("b"),
        barrier(2),
        mourn().following(&["barrier:1"]),
    ]);
    assert!(matches!(other, Problem::FailureWithOthers { .. }));
}

#[test]
fn barriers_between_a_step_and_its_error_path_follow_one_another_and_outlast_halt() {
    let graph = valid([
        job("first"),
        barrier(1),
        job("a"),
        barrier(2),
        job("b"),
        barrier(3),
        job("mourn").takes("a", Takes::Failure),
        job("tell").takes("mourn", Takes::Maybe),
        job("c"),
        barrier(4),
        job("d"),
    ]);
    assert_eq!(before(&graph, "barrier:2"), ["a"]);
    assert_eq!(before(&graph, "barrier:3"), ["b", "barrier:2"]);
    assert_eq!(
        before(&graph, "barrier:4"),
        ["mourn", "tell", "c", "barrier:3"]
    );
    assert_eq!(before(&graph, "tell"), ["mourn"]);
    let exempt: Vec<&str> = graph
        .nodes()
        .filter(|n| n.is_exempt_from_halt())
        .map(|n| n.key())
        .collect();
    assert_eq!(exempt, ["barrier:2", "barrier:3", "mourn", "tell"]);
}

#[test]
fn a_phase_of_nothing_but_error_paths_does_not_exempt_the_next_from_halt() {
    let graph = valid([
        job("a"),
        barrier(1),
        job("mourn").takes("a", Takes::Failure),
        barrier(2),
        job("b"),
    ]);
    assert_eq!(before(&graph, "barrier:2"), ["mourn", "barrier:1"]);
    assert!(!graph.find("barrier:2").unwrap().is_exempt_from_halt());
    assert!(!graph.find("b").unwrap().is_exempt_from_halt());
}

#[test]
fn only_an_error_path_behind_a_barrier_takes_an_end() {
    let refused = |steps: Vec<StepSpec>, step: &str, upstream: &str| {
        let (step, upstream) = (step.into(), upstream.into());
        let expected = Problem::EndedWithoutBarrier { step, upstream };
        assert_eq!(problem(steps), expected);
    };
    let ended = |of: &str| job("b").takes(of, Takes::Ended);
    refused(vec![job("a"), ended("a")], "b", "a");
    refused(
        vec![job("a"), barrier(1), ended("barrier:1")],
        "b",
        "barrier:1",
    );
    let text = message([job("a"), ended("a")]);
    assert_eq!(
        text,
        "step `b` takes only the end of `a` (`ended`), which only a step after a failure takes, from the \
         barrier before its phase: take the order (`order`)"
    );
}

#[test]
fn a_step_after_a_failure_stands_in_the_arm_of_what_failed() {
    let phase = message([
        job("a"),
        barrier(1),
        branch("format", &["hd"]),
        job("mourn")
            .takes("a", Takes::Failure)
            .in_arm("format", "hd"),
    ]);
    assert!(
        phase.contains("`a`, which is outside of its arm"),
        "{phase}"
    );
    let arm = message([
        branch("format", &["hd"]),
        job("mourn")
            .takes("format", Takes::Failure)
            .in_arm("format", "hd"),
    ]);
    assert!(
        arm.contains("`format`, which is outside of its arm"),
        "{arm}"
    );
}

#[test]
fn an_any_join_takes_the_value_of_the_first_or_the_order_of_all() {
    let steps = |takes: [Takes; 2]| {
        [
            job("a").optional(),
            job("b").failure_strategy(Strategy::Continue),
            job("c").takes("a", takes[0]).takes("b", takes[1]).any(),
            job("d").after(&["c"]),
        ]
    };
    // What is taken has succeeded: so also an optional step's value is sure, and so is its own.
    let graph = valid(steps([Takes::Value, Takes::Value]));
    assert_eq!(graph.find("c").unwrap().join(), Join::Any);
    valid(steps([Takes::Order, Takes::Order]));
    let expected = Problem::AnyTakes { step: "c".into() };
    assert_eq!(problem(steps([Takes::Value, Takes::Order])), expected);
    assert_eq!(problem(steps([Takes::Maybe, Takes::Maybe])), expected);
    let [a, b, c, _] = steps([Takes::Failure, Takes::Failure]);
    assert_eq!(problem([a, b, c]), expected);
    assert_eq!(
        problem([job("c").any()]),
        Problem::AnyOfNone { step: "c".into() }
    );
}

#[test]
fn an_any_join_takes_from_its_own_phase_and_from_inside_its_own_arm() {
    let phase = message([
        job("a"),
        barrier(1),
        job("b"),
        job("c").after(&["a", "b"]).any(),
    ]);
    assert!(
        phase.contains("`a`, which is outside of its phase"),
        "{phase}"
    );
    let arm = message([
        job("a"),
        branch("format", &["hd"]),
        job("b").following(&["format"]).in_arm("format", "hd"),
        job("c").after(&["a", "b"]).any().in_arm("format", "hd"),
    ]);
    assert!(arm.contains("`a`, which is outside of its arm"), "{arm}");
    // Of the arms of a branch, the chosen one succeeds.
    valid([
        branch("format", &["hd", "sd"]),
        job("a").following(&["format"]).in_arm("format", "hd"),
        job("b").following(&["format"]).in_arm("format", "sd"),
        job("c").after(&["a", "b"]).any(),
    ]);
}

#[test]
fn an_any_join_whose_upstreams_may_all_be_left_out_may_be_absent() {
    let error = |key: &str, of: &str| job(key).takes(of, Takes::Failure);
    let any_of_errors = |takes| {
        [
            job("a"),
            job("b"),
            error("mend_a", "a"),
            error("mend_b", "b"),
            job("any").after(&["mend_a", "mend_b"]).any(),
            job("report").takes("any", takes),
        ]
    };
    valid(any_of_errors(Takes::Maybe));
    valid(any_of_errors(Takes::Order));
    assert_eq!(
        message(any_of_errors(Takes::Value)),
        "step `report` takes the value of `any` as always present, but it waits for any of several steps \
         that may all be skipped (each runs only after a failure, or in an arm): take an `Option`, or let `any` also \
         wait for a step that always runs"
    );
    assert!(message(any_of_errors(Takes::Outcome)).contains("neither a value nor a failure"));
    // One that always runs is enough, also behind another any-join.
    valid([
        job("a"),
        error("mend", "a"),
        job("any").after(&["mend", "a"]).any(),
        job("report").after(&["any"]),
    ]);
    let behind = message([
        job("a"),
        error("mend", "a"),
        job("any").after(&["mend"]).any(),
        job("again").after(&["any"]).any(),
        job("report").after(&["again"]),
    ]);
    assert!(behind.contains("`again` as always present"), "{behind}");
}

#[test]
fn an_any_join_of_all_arms_of_a_branch_is_sure_and_of_some_is_not() {
    let steps = |upstreams: &[&str]| {
        vec![
            branch("format", &["hd", "sd"]),
            job("a").following(&["format"]).in_arm("format", "hd"),
            branch("again", &["x", "y"])
                .following(&["format"])
                .in_arm("format", "sd"),
            job("b").following(&["again"]).in_arm("again", "x"),
            job("c").following(&["again"]).in_arm("again", "y"),
            job("any").after(upstreams).any(),
            job("report").after(&["any"]),
        ]
    };
    valid(steps(&["a", "b", "c"]));
    for some in [&["a", "b"][..], &["b", "c"], &["a"]] {
        let found = message(steps(some));
        assert!(found.contains("`any` as always present"), "{found}");
    }
    // A branch that stands after a failure may choose no arm.
    let mut asked_after_a_failure = steps(&["a", "b", "c"]);
    asked_after_a_failure.insert(0, job("first"));
    asked_after_a_failure[1] = branch("format", &["hd", "sd"]).takes("first", Takes::Failure);
    let found = message(asked_after_a_failure);
    assert!(found.contains("`any` as always present"), "{found}");
}

#[test]
fn each_runs_over_one_list() {
    valid([
        job("list"),
        job("other"),
        each("work").after(&["list"]).following(&["other"]),
    ]);
    let none = message([job("list"), each("work").following(&["list"])]);
    assert!(none.contains("takes 0 values"), "{none}");
    let two = message([job("a"), job("b"), each("work").after(&["a", "b"])]);
    assert!(two.contains("takes 2 values"), "{two}");
    let maybe = problem([job("a").optional(), each("work").takes("a", Takes::Maybe)]);
    assert!(matches!(maybe, Problem::EachInput { .. }));
}

#[test]
fn a_barrier_has_no_value() {
    let taken = message([job("a"), barrier(1), job("b").after(&["barrier:1"])]);
    assert!(
        taken.contains("takes a value from the barrier `barrier:1`"),
        "{taken}"
    );
    let mut spec = graph([job("a"), barrier(1), job("b")]);
    spec.output = vec!["barrier:1".into()];
    assert!(matches!(problems_of(&spec)[..], [Problem::NoValue { .. }]));
}

#[test]
fn an_output_is_a_step() {
    let mut spec = graph([job("publish")]);
    spec.output = vec!["publsh".into()];
    let message = problems_of(&spec)[0].to_string();
    assert!(
        message.starts_with("the pipeline names `publsh` (its output)"),
        "{message}"
    );
    assert!(message.ends_with("did you mean `publish`?"), "{message}");
}

#[test]
fn an_output_is_made_of_the_steps_it_names() {
    let mut spec = graph([job("a"), job("b")]);
    spec.output = vec!["a".into(), "b".into()];
    let pair = Shape::Tuple(vec![Shape::One, Shape::Tuple(vec![Shape::One])]);
    spec.output_shape = Some(Shape::Tuple(vec![pair.clone(), Shape::Tuple(vec![])]));
    compile(spec.clone());
    spec.output.pop();
    assert_eq!(
        problems_of(&spec),
        [Problem::OutputShapeDiffers {
            shaped: 2,
            named: 1
        }]
    );
    spec.output.push("b".into());
    spec.output_shape = Some((0..8).fold(pair, |shape, _| Shape::Tuple(vec![shape])));
    let message = problems_of(&spec)[0].to_string();
    assert!(message.contains("nested tuples in its output"), "{message}");
}

#[test]
fn what_the_coordinator_resolves_has_no_settings_of_a_job() {
    let mut with = barrier(1).failure_strategy(Strategy::Halt).optional().any();
    with.input = Some(Shape::One);
    with.options = Some(options());
    let found = problems_of(&graph([job("a"), with, job("b")]));
    assert_eq!(found.len(), 5, "{found:#?}");
    assert!(found.iter().all(|p| {
        p.to_string()
            .starts_with("step `barrier:1` is a barrier and cannot have")
    }));
    let takes = message([job("a"), barrier(1).after(&["a"]), job("b")]);
    assert!(takes.contains("inputs of its own"), "{takes}");
    let graph = valid([
        job("a"),
        barrier(1).following(&["a"]),
        job("b").following(&["barrier:1"]),
    ]);
    assert_eq!(before(&graph, "b"), ["barrier:1"]);
}

#[test]
fn a_job_has_options_and_what_is_no_job_has_none() {
    let mut without = job("a");
    without.options = None;
    assert_eq!(problem([without]), Problem::NoOptions { step: "a".into() });
    let mut with = timer("wait");
    with.options = Some(options());
    assert!(message([with]).contains("is a timer and cannot have options of a job"));
}

#[test]
fn optional_with_another_strategy_contradicts_itself() {
    valid([job("a").optional().failure_strategy(Strategy::Ignore)]);
    let problem = problem([job("a").optional().failure_strategy(Strategy::Halt)]);
    assert_eq!(problem, Problem::OptionalWithStrategy { step: "a".into() });
}

#[test]
fn problems_of_an_embedded_graph_say_where_it_is() {
    let inner = graph([child("deep", graph([job("a").after(&["b"])]))]);
    let message = message([child("sub", inner)]);
    let start =
        "in the graph embedded as `sub`: in the graph embedded as `deep`: step `a` names `b`";
    assert!(message.starts_with(start), "{message}");
    let good = valid([child("sub", graph([job("a"), job("b")]))]);
    assert_eq!(good.node(0).unwrap().child().unwrap().len(), 2);
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let mut spec = graph([
        barrier(1),
        job("a").after(&["a"]),
        job("b").after(&["c", "x"]),
        job("c").after(&["b"]),
        branch("d", &[]),
    ]);
    spec.name = "no name".into();
    spec.output = vec!["e".into()];
    let invalid = spec.validate().unwrap_err();
    assert_eq!(invalid.problems().len(), 7, "{invalid}");
    let text = invalid.to_string();
    assert!(
        text.starts_with("pipeline `no name` has 7 problems:\n- "),
        "{text}"
    );
    assert_eq!(text.lines().count(), 8);
    assert!(text.contains("cycle: b -> c -> b"), "{text}");
}

#[test]
fn a_merge_that_its_own_arm_waits_for_is_a_cycle() {
    let message = message([
        branch("format", &["hd"]),
        job("scale")
            .following(&["format", "merge:format"])
            .in_arm("format", "hd"),
        merge("merge:format", "format", &[("hd", "scale")]),
    ]);
    assert!(
        message.starts_with("cycle: scale -> (end of format) -> scale"),
        "{message}"
    );
}
