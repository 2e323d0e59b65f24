//! What holds for random graphs: any at all, and valid ones.

use proptest::prelude::*;

use super::build::{compile, keys};
use super::random::{any_graph, turn_phases, valid_graph};
use crate::graph::spec::{GraphSpec, StepKind};
use crate::graph::{Graph, Node};

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_graph_is_judged_without_a_panic(spec in any_graph()) {
        match spec.validate() {
            Ok(()) => {
                let graph = Graph::compile(spec).unwrap();
                graph.fingerprint();
                graph.to_mermaid();
                graph.to_dot();
            }
            Err(invalid) => {
                prop_assert!(!invalid.problems().is_empty());
                prop_assert_eq!(Graph::compile(spec), Err(invalid));
            }
        }
    }

    #[test]
    fn any_graph_is_the_same_after_json(spec in any_graph()) {
        prop_assert_eq!(GraphSpec::from_json(&spec.to_json()).unwrap(), spec);
    }

    #[test]
    fn numbers_are_a_topological_order_by_declaration(spec in valid_graph()) {
        let graph = compile(spec.clone());
        let declared = |node: Node<'_>| spec.steps.iter().position(|s| s.key == node.key()).unwrap();
        prop_assert_eq!(graph.len(), spec.steps.len());
        for node in graph.nodes() {
            prop_assert!(node.upstream().iter().all(|up| up.no < node.no()));
            // One that was declared later comes sooner only if this one had to wait for it.
            if let Some(before) = node.no().checked_sub(1).and_then(|no| graph.node(no)) {
                let waited = node.upstream().iter().any(|up| up.no == before.no());
                prop_assert!(declared(before) < declared(node) || waited);
            }
            for up in node.upstream() {
                let back = graph.node(up.no).unwrap().downstream();
                let first = node.upstream().iter().find(|other| other.no == up.no);
                let takes: Vec<_> = back.iter().filter(|down| down.no == node.no()).map(|down| down.takes).collect();
                prop_assert_eq!(takes, [first.unwrap().takes]);
            }
        }
        let upstream: usize = graph.nodes().map(|node| node.waits() as usize).sum();
        let downstream: usize = graph.nodes().map(|node| node.downstream().len()).sum();
        prop_assert_eq!(upstream, downstream);
    }

    #[test]
    fn no_step_starts_before_the_barrier_of_its_phase_nor_before_its_decision(spec in valid_graph()) {
        let graph = compile(spec);
        let mut gates = vec![Vec::new(); graph.len()];
        for node in graph.nodes() {
            let mut before: Vec<u32> = node.upstream().iter().map(|up| up.no).collect();
            for up in node.upstream() {
                before.extend(&gates[up.no as usize]);
            }
            before.sort_unstable();
            before.dedup();
            gates[node.no() as usize] = before;
            let gate = |no: u32| gates[node.no() as usize].contains(&no);
            for other in graph.nodes().filter(|other| *other.kind() == StepKind::Barrier) {
                prop_assert_eq!(other.phase() < node.phase(), gate(other.no()));
            }
            for arm in node.arms() {
                prop_assert!(gate(arm.branch));
            }
        }
    }

    #[test]
    fn the_fingerprint_is_the_same_exactly_when_the_numbers_are(spec in valid_graph(), by in 0..9_usize) {
        let graph = compile(spec.clone());
        let mut turned = spec.clone();
        turn_phases(&mut turned, by);
        let other = compile(turned);
        prop_assert_eq!(keys(&graph) == keys(&other), graph.fingerprint() == other.fingerprint());
        // Declared in the order of the numbers, it is the same graph.
        let mut in_order = spec;
        in_order.steps.sort_by_key(|step| graph.find(&step.key).unwrap().no());
        prop_assert_eq!(compile(in_order).fingerprint(), graph.fingerprint());
    }

    #[test]
    fn a_compiled_graph_is_the_same_after_json(spec in valid_graph()) {
        let graph = compile(spec);
        let again = Graph::from_json(&graph.to_json()).unwrap();
        prop_assert_eq!(again.fingerprint(), graph.fingerprint());
        prop_assert_eq!(again, graph);
    }
}
