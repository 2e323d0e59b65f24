//! Large and deep graphs: no stack is deep enough to recurse through them, and no work grows faster
//! than they do.

use super::build::*;
use crate::graph::spec::*;
use crate::graph::{Graph, Problem};

fn chain(length: usize) -> Vec<StepSpec> {
    (0..length)
        .map(|n| match n {
            0 => job("s0"),
            _ => job(&format!("s{n}")).after(&[&format!("s{}", n - 1)]),
        })
        .collect()
}

/// As little stack as a thread can have.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new()
        .stack_size(128 << 10)
        .spawn(test);
    thread.unwrap().join().unwrap();
}

#[test]
fn a_chain_of_100_000_steps_compiles_on_a_small_stack() {
    on_a_small_stack(|| {
        let graph = Graph::compile(graph(chain(100_000))).unwrap();
        assert_eq!(graph.len(), 100_000);
        assert_eq!(graph.roots(), [0]);
        assert_eq!(graph.fingerprint(), graph.fingerprint());
    });
}

#[test]
fn a_chain_that_was_declared_backwards_compiles_too() {
    on_a_small_stack(|| {
        let mut steps = chain(100_000);
        steps.reverse();
        let graph = Graph::compile(graph(steps)).unwrap();
        assert_eq!(graph.node(99_999).unwrap().key(), "s99999");
    });
}

#[test]
fn a_ring_of_100_000_steps_is_one_cycle() {
    on_a_small_stack(|| {
        let mut steps = chain(100_000);
        steps[0] = job("s0").after(&["s99999"]);
        let problems = problems_of(&graph(steps));
        let [Problem::Cycle { path }] = problems.as_slice() else {
            panic!("{}", problems.len());
        };
        assert_eq!(path.len(), 100_001);
        let message = problems[0].to_string();
        assert!(
            message.contains("s5 -> (99989 more) -> s99995"),
            "{message}"
        );
    });
}

#[test]
fn fifty_thousand_cycles_are_fifty_thousand_problems() {
    let steps = (0..50_000).flat_map(|n| {
        let (a, b) = (format!("a{n}"), format!("b{n}"));
        [job(&a).after(&[&b]), job(&b).after(&[&a])]
    });
    let invalid = graph(steps).validate().unwrap_err();
    assert_eq!(invalid.problems().len(), 50_000);
    assert!(invalid.to_string().ends_with("- and 49975 more"));
}

#[test]
fn a_hundred_thousand_unknown_keys_are_told() {
    let steps = (0..100_000).map(|n| job(&format!("step-{n}")).after(&[&format!("stepp-{n}")]));
    let problems = problems_of(&graph(steps));
    assert_eq!(problems.len(), 100_000);
    let Problem::UnknownKey { suggestion, .. } = &problems[0] else {
        panic!("{}", problems[0]);
    };
    assert_eq!(suggestion.as_deref(), Some("step-0"));
}

#[test]
fn phases_of_fifty_thousand_steps_are_joined_by_a_barrier() {
    let phase = |name: &'static str| (0..49_999).map(move |n| job(&format!("{name}{n}")));
    let graph = valid(phase("a").chain([barrier(1)]).chain(phase("b")));
    assert_eq!(graph.find("barrier:1").unwrap().upstream().len(), 49_999);
    assert_eq!(graph.find("barrier:1").unwrap().downstream().len(), 49_999);
}
