//! The reference system's scenarios on definition and validation, by their number there, as far as
//! they concern the untyped graph. Branches have a file of their own.
//!
//! | scenario | why it is not here |
//! |---|---|
//! | U007 barrier after build | a compiled graph cannot be changed, and a declaration ends with its closure |
//! | U023 path of a self loop | a self loop is reported as what it is (U027), without a path |
//! | U032 subclasses inherit settings | pipelines are values: there are no subclasses |
//! | U033, U047 frozen objects | ownership: nobody can change what a `Graph` holds |
//! | U034 options passed, `with` defaults | of the declaration; that the order is kept is U001 and U036 |
//! | U038 no `configure` | does not compile |
//! | U039 `run` outside `configure` | handles exist only inside the closure |
//! | U041 params forwarded | of the declaration: the graph holds no params |

use super::build::*;
use crate::graph::spec::*;
use crate::graph::{Graph, Problem};

/// Scenarios: U001
#[test]
fn a_barrier_comes_after_its_phase_and_before_the_next() {
    let graph = valid([
        job("a"),
        job("b").after(&["a"]),
        job("c").after(&["a"]),
        barrier(1),
        job("d"),
        job("e").after(&["d"]),
    ]);
    assert_eq!(keys(&graph), ["a", "b", "c", "barrier:1", "d", "e"]);
    assert_eq!(before(&graph, "barrier:1"), ["a", "b", "c"]);
    assert_eq!(before(&graph, "d"), ["barrier:1"]);
    assert_eq!(before(&graph, "e"), ["d"]);
    assert_eq!(graph.roots(), [0]);
    let phases: Vec<u32> = graph.nodes().map(|node| node.phase()).collect();
    assert_eq!(phases, [0, 0, 0, 0, 1, 1]);
}

/// Scenarios: U002
#[test]
fn a_second_barrier_comes_after_all_of_its_own_phase() {
    let graph = valid([
        job("a"),
        barrier(1),
        job("b"),
        job("c"),
        barrier(2),
        job("d"),
    ]);
    assert_eq!(before(&graph, "barrier:1"), ["a"]);
    assert_eq!(before(&graph, "barrier:2"), ["b", "c"]);
    assert_eq!(before(&graph, "d"), ["barrier:2"]);
    assert_eq!(graph.phases(), 3);
}

/// Scenarios: U003
#[test]
fn a_step_keeps_its_upstream_of_an_earlier_phase_and_waits_for_the_barrier_too() {
    let graph = valid([job("a"), job("b"), barrier(1), job("c").after(&["a"])]);
    assert_eq!(before(&graph, "c"), ["a", "barrier:1"]);
    let takes: Vec<Takes> = graph
        .find("c")
        .unwrap()
        .upstream()
        .iter()
        .map(|up| up.takes)
        .collect();
    assert_eq!(takes, [Takes::Value, Takes::Order]);
}

/// Scenarios: U004
#[test]
fn a_step_may_be_named_before_it_is_declared_within_its_phase() {
    let graph = valid([job("b").after(&["a"]), job("a"), barrier(1), job("c")]);
    assert_eq!(keys(&graph), ["a", "b", "barrier:1", "c"]);
    assert_eq!(before(&graph, "barrier:1"), ["b", "a"]);
}

/// Scenarios: U005
#[test]
fn a_dependency_on_a_later_phase_names_both() {
    let problem = problem([job("a").after(&["b"]), barrier(1), job("b")]);
    assert_eq!(
        problem,
        Problem::LaterPhase {
            step: "a".into(),
            upstream: "b".into()
        }
    );
    let on_the_barrier = message([job("a").following(&["barrier:1"]), barrier(1), job("b")]);
    assert!(on_the_barrier.contains("`a` runs after `barrier:1`, which is in a later phase"));
}

/// Scenarios: U006
#[test]
fn a_barrier_first_last_or_twice_are_three_errors() {
    let first = problem([barrier(1), job("a")]);
    assert_eq!(
        first,
        Problem::BarrierFirst {
            barrier: "barrier:1".into()
        }
    );
    let last = problem([job("a"), barrier(1)]);
    assert_eq!(
        last,
        Problem::BarrierLast {
            barrier: "barrier:1".into()
        }
    );
    let twice = problem([job("a"), barrier(1), barrier(2), job("b")]);
    let expected = Problem::BarrierTwice {
        previous: "barrier:1".into(),
        barrier: "barrier:2".into(),
    };
    assert_eq!(twice, expected);
}

/// Scenarios: U009
#[test]
fn a_step_cannot_have_the_key_of_a_generated_barrier() {
    for key in ["barrier:1", "merge:format", "x:y"] {
        let message = message([job(key)]);
        assert!(
            message.contains(&format!("`{key}` is reserved")),
            "{message}"
        );
    }
    valid([job("barrier"), job("barrier-1"), job("merge.format")]);
}

/// Scenarios: U020
#[test]
fn graphs_without_a_cycle_are_valid() {
    valid([job("a"), job("b").after(&["a"]), job("c").after(&["b"])]);
    valid([
        job("a"),
        job("b").after(&["a"]),
        job("c").after(&["a"]),
        job("d").after(&["b", "c"]),
    ]);
    valid([job("a")]);
    valid([
        job("a"),
        job("b").after(&["a"]),
        job("c"),
        job("d").after(&["c"]),
    ]);
}

/// Scenarios: U021
#[test]
fn a_cycle_of_two_names_both() {
    let message = message([job("a").after(&["b"]), job("b").after(&["a"])]);
    assert_eq!(message, "cycle: a -> b -> a: remove one of these edges");
}

/// Scenarios: U022
#[test]
fn a_cycle_of_three_shows_its_path_each_before_the_next() {
    let problem = problem([
        job("a").after(&["c"]),
        job("b").after(&["a"]),
        job("c").after(&["b"]),
    ]);
    let path = ["a", "b", "c", "a"].map(str::to_owned).to_vec();
    assert_eq!(problem, Problem::Cycle { path });
}

/// Scenarios: U024
#[test]
fn a_cycle_in_one_part_only_is_found() {
    let message = message([
        job("x"),
        job("y").after(&["x"]),
        job("a").after(&["b", "x"]),
        job("b").after(&["a"]),
        job("after").after(&["b"]),
    ]);
    assert!(message.starts_with("cycle: a -> b -> a"), "{message}");
}

/// Scenarios: U025
#[test]
fn each_knot_of_cycles_is_reported_once_by_its_shortest_path() {
    let found = problems_of(&graph([
        job("a").after(&["b"]),
        job("b").after(&["a", "d"]),
        job("c").after(&["b"]),
        job("d").after(&["c"]),
        job("e").after(&["f"]),
        job("f").after(&["e"]),
    ]));
    let messages: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(
        messages[0].starts_with("cycle: a -> b -> a:"),
        "{messages:?}"
    );
    assert!(
        messages[1].starts_with("cycle: e -> f -> e:"),
        "{messages:?}"
    );
}

/// Scenarios: U026
#[test]
fn what_is_wrong_with_a_graph_has_a_message_of_its_own() {
    assert!(message([]).contains("no steps"));
    let duplicate = message([job("a"), job("a"), job("a")]);
    assert!(duplicate.contains("`a` is declared 3 times"), "{duplicate}");
    let itself = message([job("a").after(&["a"])]);
    assert!(itself.contains("`a` runs after itself"), "{itself}");
    let unknown = message([job("download"), job("b").after(&["downlaod"])]);
    assert!(unknown.contains("step `b` names `downlaod`"), "{unknown}");
    assert!(unknown.ends_with("did you mean `download`?"), "{unknown}");
    let in_fan_in = message([job("a"), job("b").after(&["a", "nowhere"])]);
    assert!(in_fan_in.contains("`nowhere`"), "{in_fan_in}");
    assert!(in_fan_in.ends_with("declare it, or correct the name"));
    let direct = message([job("a").after(&["b"]), job("b").after(&["a"])]);
    assert!(direct.contains("cycle"));
    let indirect = message([
        job("a").after(&["c"]),
        job("b").after(&["a"]),
        job("c").after(&["b"]),
    ]);
    assert!(indirect.contains("cycle"));
}

/// Scenarios: U027
#[test]
fn a_self_dependency_is_not_called_a_cycle() {
    let spec = graph([job("a").after(&["a"])]);
    assert_eq!(
        problems_of(&spec),
        [Problem::SelfDependency { step: "a".into() }]
    );
}

/// Scenarios: U028
#[test]
fn every_usual_shape_is_valid() {
    valid([job("single")]);
    valid([job("a"), job("b").after(&["a"]), job("c").after(&["b"])]);
    valid([
        job("a"),
        job("b").after(&["a"]),
        job("c").after(&["a"]),
        job("d").after(&["b", "c"]),
    ]);
    valid([job("a"), job("b").after(&["a"]), job("c").after(&["a"])]);
    valid([job("a"), job("b"), job("c").after(&["a", "b"])]);
    let roots = valid([job("a"), job("b"), job("c").after(&["b"])]);
    assert_eq!(roots.roots(), [0, 1]);
    assert_eq!(valid([job("a"), job("b"), job("c")]).roots(), [0, 1, 2]);
    valid([job("b").after(&["a"]), job("a")]);
    valid([job("c").after(&["a", "b"]), job("a"), job("b")]);
    valid(video());
}

fn video() -> Vec<StepSpec> {
    vec![
        job("download"),
        job("transcode").after(&["download"]),
        job("thumbnail").after(&["download"]).optional(),
        job("publish")
            .after(&["transcode"])
            .takes("thumbnail", Takes::Maybe),
        job("cleanup").following(&["publish"]),
    ]
}

/// Scenarios: U029
#[test]
fn what_is_left_out_has_a_default() {
    let spec = GraphSpec::from_json(r#"{"name":"p","steps":[]}"#).unwrap();
    assert_eq!(spec.strategy, Strategy::Halt);
    assert_eq!(spec.description, None);
    assert_eq!(spec.callbacks, []);
}

/// Scenarios: U030
#[test]
fn everything_of_a_pipeline_can_be_set() {
    for strategy in [Strategy::Halt, Strategy::Continue, Strategy::Ignore] {
        let spec = GraphSpec {
            strategy,
            ..graph([job("a")])
        };
        assert_eq!(compile(spec).node(0).unwrap().strategy(), strategy);
    }
    let mut spec = graph([job("a")]);
    spec.description = Some("turns films into more films".into());
    spec.callbacks = [
        CallbackOn::Complete,
        CallbackOn::Success,
        CallbackOn::Failure,
    ]
    .map(callback)
    .to_vec();
    let graph = compile(spec.clone());
    assert_eq!(graph.spec(), &spec);
}

fn callback(on: CallbackOn) -> CallbackSpec {
    CallbackSpec {
        on,
        job: "alert".into(),
        version: 1,
        options: options(),
    }
}

/// Scenarios: U030
#[test]
fn several_callbacks_of_one_kind_are_allowed() {
    let mut spec = graph([job("a")]);
    spec.callbacks = vec![callback(CallbackOn::Failure), callback(CallbackOn::Failure)];
    compile(spec);
}

/// Scenarios: U031
#[test]
fn an_unknown_strategy_is_refused_with_those_there_are() {
    let json = r#"{"name":"p","strategy":"retry","steps":[]}"#;
    let message = Graph::from_json(json).unwrap_err().to_string();
    assert!(
        message.contains("at `strategy`: unknown variant `retry`"),
        "{message}"
    );
    assert!(
        message.contains("`halt`, `continue`, `ignore`"),
        "{message}"
    );
}

/// Scenarios: U035
#[test]
fn compiling_validates() {
    assert!(Graph::compile(graph([])).is_err());
    assert!(Graph::compile(graph([job("a"), job("a")])).is_err());
    assert!(Graph::compile(graph([job("a").after(&["b"])])).is_err());
    assert!(Graph::compile(graph([job("a").after(&["b"]), job("b").after(&["a"])])).is_err());
}

/// Scenarios: U036
#[test]
fn steps_are_found_by_key_and_roots_depend_on_nothing() {
    let graph = valid(video());
    for (no, key) in (0..).zip(["download", "transcode", "thumbnail", "publish", "cleanup"]) {
        assert_eq!(graph.find(key).unwrap().no(), no);
        assert_eq!(graph.node(no).unwrap().key(), key);
    }
    assert!(graph.find("upload").is_none());
    assert!(graph.node(5).is_none());
    assert_eq!(graph.roots(), [0]);
}

/// Scenarios: U037
#[test]
fn a_graph_shows_what_was_declared() {
    let mut spec = graph(video());
    spec.description = Some("one film".into());
    spec.strategy = Strategy::Continue;
    spec.callbacks = vec![callback(CallbackOn::Success)];
    spec.output = vec!["publish".into()];
    let graph = compile(spec);
    assert_eq!(graph.spec().description.as_deref(), Some("one film"));
    assert_eq!(graph.spec().strategy, Strategy::Continue);
    assert_eq!(graph.spec().callbacks.len(), 1);
    assert_eq!(
        graph.output().map(|node| node.no()).collect::<Vec<_>>(),
        [3]
    );
}

/// Scenarios: U040
#[test]
fn the_video_pipeline() {
    let graph = valid(video());
    assert_eq!(
        keys(&graph),
        ["download", "transcode", "thumbnail", "publish", "cleanup"]
    );
    assert_eq!(before(&graph, "publish"), ["transcode", "thumbnail"]);
    let after: Vec<u32> = graph
        .node(0)
        .unwrap()
        .downstream()
        .iter()
        .map(|d| d.no)
        .collect();
    assert_eq!(after, [1, 2]);
    assert_eq!(graph.find("publish").unwrap().waits(), 2);
}

/// Scenarios: U044
#[test]
fn a_steps_own_strategy_decides_for_it_alone() {
    let graph = valid([job("a").failure_strategy(Strategy::Continue), job("b")]);
    assert_eq!(graph.node(0).unwrap().strategy(), Strategy::Continue);
    assert_eq!(graph.node(1).unwrap().strategy(), Strategy::Halt);
    let json = r#"{"name":"p","steps":[{"key":"a","kind":{"type":"barrier"},"strategy":"stop"}]}"#;
    let message = Graph::from_json(json).unwrap_err().to_string();
    assert!(message.contains("at `steps[0].strategy`"), "{message}");
}

/// Scenarios: U045
#[test]
fn a_step_keeps_its_fields_and_has_defaults_for_the_rest() {
    let json = r#"{"key":"a","kind":{"type":"job","job":"work","version":2}}"#;
    let step: StepSpec = serde_json::from_str(json).unwrap();
    assert_eq!(
        (step.key.as_str(), &step.kind),
        (
            "a",
            &StepKind::Job {
                job: "work".into(),
                version: 2
            }
        )
    );
    assert_eq!(
        (&step.after, &step.input, step.join, step.strategy),
        (&Vec::new(), &None, Join::All, None)
    );
    assert_eq!(
        (step.optional, &step.arm, &step.options),
        (false, &None, &None)
    );
    assert_eq!(serde_json::to_string(&step).unwrap(), json);
}

/// Scenarios: U046
#[test]
fn an_edge_given_twice_is_kept_once_in_its_place() {
    let graph = valid([
        job("a"),
        job("b"),
        job("c"),
        job("d").following(&["c", "a", "c", "b", "a"]),
        job("e")
            .following(&["a"])
            .after(&["b", "a"])
            .following(&["b"]),
    ]);
    assert_eq!(before(&graph, "d"), ["c", "a", "b"]);
    // Of two, the one that takes something is kept, where it stands among the inputs.
    assert_eq!(before(&graph, "e"), ["b", "a"]);
    let takes = |key| {
        graph
            .find(key)
            .unwrap()
            .upstream()
            .iter()
            .map(|up| up.takes)
            .collect::<Vec<_>>()
    };
    assert_eq!(takes("e"), [Takes::Value, Takes::Value]);
}

/// Scenarios: U046
#[test]
fn a_value_taken_twice_is_two_values_and_one_end_to_wait_for() {
    let graph = valid([
        job("a"),
        job("b"),
        barrier(1),
        job("c")
            .following(&["a"])
            .after(&["a", "b", "a"])
            .following(&["a"])
            .takes("a", Takes::Maybe),
    ]);
    let (a, c) = (graph.find("a").unwrap(), graph.find("c").unwrap());
    assert_eq!(before(&graph, "c"), ["a", "b", "a", "a", "barrier:1"]);
    assert_eq!(c.shape(), Shape::of(4));
    assert_eq!(c.waits(), 3);
    let downstream: Vec<u32> = a.downstream().iter().map(|down| down.no).collect();
    assert_eq!(downstream, [2, 3]);
    assert_eq!(graph.to_mermaid().matches("optional\"|").count(), 1);
    let again = valid([job("a"), job("b").after(&["a", "a"])]);
    let once = valid([job("a"), job("b").after(&["a"])]);
    assert_ne!(again.fingerprint(), once.fingerprint());
    assert_eq!(again.to_mermaid(), once.to_mermaid());
    assert_eq!(again.to_dot(), once.to_dot());
}

/// Scenarios: U046
#[test]
fn what_is_wrong_with_a_value_taken_twice_is_said_once() {
    let found = message([
        job("a").optional(),
        job("b"),
        job("c").after(&["a", "b", "a"]),
    ]);
    assert!(
        found.contains("`a` as always present, but it is optional"),
        "{found}"
    );
}

/// Scenarios: U046
#[test]
fn where_there_can_be_one_value_only_it_is_taken_once() {
    let expected = Problem::DuplicateEdge {
        step: "b".into(),
        upstream: "a".into(),
    };
    let any = problem([job("a"), job("b").after(&["a", "a"]).any()]);
    assert_eq!(any, expected);
    for takes in [Takes::Failure, Takes::Value] {
        let mixed = [
            job("a"),
            job("b").takes("a", Takes::Failure).takes("a", takes),
        ];
        assert_eq!(problem(mixed), expected);
    }
    let mixed = [job("a"), job("b").after(&["a"]).takes("a", Takes::Failure)];
    assert_eq!(problem(mixed), expected);
}

/// Scenarios: U048
#[test]
fn the_options_of_a_step_are_known_and_no_others() {
    let known = serde_json::to_value(options()).unwrap();
    assert!(serde_json::from_value::<StepOptions>(known.clone()).is_ok());
    for unknown in ["wait_until", "colour"] {
        let mut options = known.clone();
        options[unknown] = 1.into();
        let error = serde_json::from_value::<StepOptions>(options)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("unknown field `{unknown}`")),
            "{error}"
        );
    }
}

/// Scenarios: U050
#[test]
fn three_strategies_are_known_and_none() {
    for (given, strategy) in [
        ("null", None),
        ("\"halt\"", Some(Strategy::Halt)),
        ("\"continue\"", Some(Strategy::Continue)),
        ("\"ignore\"", Some(Strategy::Ignore)),
    ] {
        let json = format!(r#"{{"key":"a","kind":{{"type":"barrier"}},"strategy":{given}}}"#);
        assert_eq!(
            serde_json::from_str::<StepSpec>(&json).unwrap().strategy,
            strategy
        );
    }
    let error = serde_json::from_str::<Strategy>("\"retry\"")
        .unwrap_err()
        .to_string();
    assert!(error.contains("`halt`, `continue`, `ignore`"), "{error}");
}
