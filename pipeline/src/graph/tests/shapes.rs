//! The shape of a step's input: what follows from its edges, and what is stored where it does not.

use super::build::*;
use crate::graph::spec::Shape::{List, Maybe, One, Tuple};
use crate::graph::spec::*;
use crate::graph::{Graph, Problem};

fn shape(graph: &Graph, key: &str) -> Option<Shape> {
    graph.find(key).unwrap().shape()
}

#[test]
fn without_one_it_follows_from_the_edges_that_take_something() {
    let graph = valid([
        job("a"),
        job("b"),
        job("following").following(&["a", "b"]),
        job("one").following(&["a"]).after(&["b"]),
        job("maybe").takes("a", Takes::Maybe),
        job("outcome").takes("a", Takes::Outcome),
        job("failure").takes("a", Takes::Failure),
        job("two").after(&["a", "b"]),
        job("first").after(&["a", "b"]).any(),
        job("any").following(&["a", "b"]).any(),
        each("each").after(&["a"]),
    ]);
    for key in ["a", "following", "any"] {
        assert_eq!(shape(&graph, key), None, "{key}");
    }
    for key in ["one", "maybe", "outcome", "failure", "first", "each"] {
        assert_eq!(shape(&graph, key), Some(One), "{key}");
    }
    assert_eq!(shape(&graph, "two"), Some(Tuple(vec![One, One])));
}

#[test]
fn what_the_coordinator_resolves_has_none() {
    let graph = valid([
        job("source"),
        branch("format", &["hd"]).following(&["source"]),
        job("scale").following(&["format"]).in_arm("format", "hd"),
        merge("merge:format", "format", &[("hd", "scale")]),
        barrier(1),
        job("late"),
    ]);
    assert_eq!(shape(&graph, "merge:format"), None);
    assert_eq!(shape(&graph, "barrier:1"), None);
}

#[test]
fn one_that_is_stored_is_what_it_is() {
    let steps = |input: Shape| {
        [
            job("a"),
            job("b"),
            job("c").after(&["a", "b"]).shaped(input),
        ]
    };
    for input in [
        List(2),
        Tuple(vec![One, One]),
        Tuple(vec![One, List(1)]),
        Tuple(vec![List(2)]),
        Tuple(vec![List(0), Tuple(vec![One]), One]),
    ] {
        let graph = valid(steps(input.clone()));
        assert_eq!(shape(&graph, "c"), Some(input));
        assert_eq!(Graph::from_json(&graph.to_json()).unwrap(), graph);
    }
    let none = valid([job("a"), job("b").following(&["a"]).shaped(List(0))]);
    assert_eq!(shape(&none, "b"), Some(List(0)));
}

#[test]
fn it_holds_as_many_values_as_the_edges_take() {
    let steps = |input: Shape| {
        let c = job("c").after(&["a", "b"]).following(&["d"]);
        [job("a"), job("b"), job("d"), c.shaped(input)]
    };
    assert_eq!(
        message(steps(List(3))),
        "the input of step `c` has 3 values, and its edges take 2: give `input` one value for each \
         edge that takes a value, or leave it out"
    );
    for input in [One, List(0), List(u32::MAX), Tuple(vec![List(u32::MAX); 9])] {
        let problem = problem(steps(input));
        assert!(matches!(problem, Problem::ShapeDiffers { taken: 2, .. }));
    }
    let of_a_root = problem([job("a").shaped(One)]);
    let (step, shaped, taken) = ("a".into(), 1, 0);
    assert_eq!(
        of_a_root,
        Problem::ShapeDiffers {
            step,
            shaped,
            taken
        }
    );
}

#[test]
fn what_may_be_absent_in_it_is_for_the_edges_to_say() {
    let steps = |input| [job("a"), job("b").after(&["a"]).shaped(input)];
    assert_eq!(
        message(steps(Tuple(vec![Maybe]))),
        "step `b` has `maybe` in the shape of its input, where its edges say what may be absent: write `one`"
    );
}

#[test]
fn where_there_can_be_one_value_only_it_is_one() {
    let after = |step: StepSpec| [job("a"), job("b"), step];
    let any = |input| after(job("c").after(&["a", "b"]).any().shaped(input));
    valid(any(One));
    assert_eq!(
        message(any(List(2))),
        "step `c` waits for any of its upstreams and so takes one value: leave `input` out"
    );
    let failure = |input| after(job("c").takes("a", Takes::Failure).shaped(input));
    valid(failure(One));
    assert!(message(failure(Tuple(vec![One]))).contains("runs after a failure and so"));
    let list = |input| after(each("c").after(&["a"]).shaped(input));
    valid(list(One));
    assert!(message(list(List(1))).contains("runs for each element of a list and so"));
    // In order only, there is no value.
    let order = problem(after(job("c").following(&["a", "b"]).any().shaped(One)));
    assert!(matches!(order, Problem::ShapeDiffers { taken: 0, .. }));
}

#[test]
fn tuples_lie_at_most_8_deep_and_hold_something() {
    let nested = |depth: usize| (0..depth).fold(One, |inner, _| Tuple(vec![inner]));
    let steps = |input| [job("a"), job("b").after(&["a"]).shaped(input)];
    valid(steps(nested(8)));
    for depth in [9, 100] {
        assert_eq!(
            message(steps(nested(depth))),
            format!("step `b` has {depth} nested tuples in its input, more than 8: flatten it")
        );
    }
    let empty = message(steps(Tuple(vec![One, Tuple(vec![])])));
    assert_eq!(
        empty,
        "step `b`: a tuple of its input is empty: fill it in or leave it out"
    );
}

#[test]
fn tuples_too_deep_in_json_are_refused_and_not_a_crash() {
    let json = format!(
        r#"{{"name":"p","steps":[{{"key":"a","kind":{{"type":"barrier"}},"input":{}"#,
        r#"{"tuple":["#.repeat(10_000)
    );
    let error = Graph::from_json(&json).unwrap_err().to_string();
    assert!(error.contains("recursion limit"), "{error}");
}
