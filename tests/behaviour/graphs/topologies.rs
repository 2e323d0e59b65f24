//! The twelve shapes of `examples/topologies.rs`.

#[path = "../../../examples/topologies.rs"]
#[allow(unreachable_pub, reason = "an example, which others may use")]
pub(crate) mod shapes;

#[test]
fn every_shape_is_valid_and_comes_to_what_it_says() {
    let mut seen = Vec::new();
    for (name, declare) in shapes::all() {
        let pipeline = declare().unwrap_or_else(|invalid| panic!("{invalid}"));
        assert_eq!(pipeline.name(), name);
        let graph = pipeline.graph();
        let edges: usize = graph.spec().steps.iter().map(|step| step.after.len()).sum();
        seen.push((name, graph.spec().steps.len(), edges));
    }
    assert_eq!(
        seen,
        [
            ("linear", 3, 2),
            ("fan_out", 6, 5),
            ("fan_in", 6, 5),
            ("diamond_all", 4, 4),
            ("diamond_any", 4, 4),
            ("deep_chain", 20, 19),
            ("error_path", 4, 3),
            // Two arms behind their branch, and where they come together.
            ("conditional", 6, 9),
            ("delay", 2, 1),
            ("multi_level_join", 7, 6),
            ("branch_with_an_empty_arm", 5, 6),
            // The barrier waits for both before it, and holds back what comes after.
            ("two_phases", 5, 6),
        ]
    );
}

#[test]
fn every_shape_survives_its_json_and_can_be_drawn() {
    for (name, declare) in shapes::all() {
        let pipeline = declare().unwrap_or_else(|invalid| panic!("{invalid}"));
        let graph = pipeline.graph();
        let json = serde_json::to_string(graph.spec()).unwrap();
        let again = pipeline::Graph::from_json(&json).unwrap();
        assert_eq!(again.fingerprint(), graph.fingerprint(), "{name}");
        for step in &graph.spec().steps {
            assert!(
                graph.to_mermaid().contains(&step.key) || step.key.contains(':'),
                "{name}"
            );
        }
        assert!(graph.to_dot().starts_with("digraph"), "{name}");
    }
}
