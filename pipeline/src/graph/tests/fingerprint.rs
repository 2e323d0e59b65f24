//! The table of `docs/graphs/fingerprint.md`, row by row: each field is changed, and the fingerprint
//! changes or stays.

use std::time::Duration;

use super::build::*;
use crate::graph::spec::*;

/// A graph in which everything can be changed without making it invalid.
fn sample() -> GraphSpec {
    let mut spec = graph([
        job("source"),
        job("other"),
        job("joined").after(&["source", "other"]),
        job("late").following(&["source", "other"]),
        job("maybe").takes("other", Takes::Maybe),
        job("recovered").takes("other", Takes::Failure),
        branch("format", &["hd", "sd"]).following(&["joined"]),
        job("scale").following(&["format"]).in_arm("format", "hd"),
        merge(
            "merge:format",
            "format",
            &[("hd", "scale"), ("sd", "source")],
        ),
        barrier(1),
        each("work").after(&["source"]),
        timer("wait"),
        node(
            "signal",
            StepKind::Signal {
                name: "approved".into(),
                timeout_ms: Some(1000),
            },
        ),
        child("sub", graph([job("inner")])),
    ]);
    spec.callbacks = vec![
        CallbackSpec {
            on: CallbackOn::Failure,
            job: "alert".into(),
            version: 1,
            options: options(),
        },
        CallbackSpec {
            on: CallbackOn::Success,
            job: "cheer".into(),
            version: 1,
            options: options(),
        },
    ];
    spec.output = vec!["joined".into(), "late".into()];
    spec
}

fn step<'s>(spec: &'s mut GraphSpec, key: &str) -> &'s mut StepSpec {
    spec.steps.iter_mut().find(|step| step.key == key).unwrap()
}

fn options_of(spec: &mut GraphSpec) -> &mut StepOptions {
    step(spec, "late").options.as_mut().unwrap()
}

type Change = fn(&mut GraphSpec);

/// What changes the fingerprint.
const COUNTS: &[(&str, Change)] = &[
    ("the pipeline's name", |s| s.name = "film".into()),
    ("deadline", |s| s.deadline_ms = Some(1)),
    ("asynchronous commit", |s| s.asynchronous_commit = true),
    ("output: which", |s| s.output.truncate(1)),
    ("output: order", |s| s.output.reverse()),
    ("output: a list", |s| s.output_shape = Some(Shape::List(2))),
    ("output: one that may be absent", |s| {
        s.output_shape = Some(Shape::Tuple(vec![Shape::One, Shape::Maybe]));
    }),
    ("output: nested", |s| {
        let inner = Shape::Tuple(vec![Shape::One, Shape::One]);
        s.output_shape = Some(Shape::Tuple(vec![inner]));
    }),
    ("callback: when", |s| {
        s.callbacks[0].on = CallbackOn::Complete
    }),
    ("callback: job", |s| s.callbacks[0].job = "mail".into()),
    ("callback: version", |s| s.callbacks[0].version = 2),
    ("callback: options", |s| {
        s.callbacks[0].options.max_attempts = 1
    }),
    ("callback: one more", |s| {
        s.callbacks.push(s.callbacks[0].clone())
    }),
    ("callback: order", |s| s.callbacks.reverse()),
    ("step: key", |s| step(s, "wait").key = "pause".into()),
    ("step: one more", |s| s.steps.push(job("more"))),
    ("step: order of siblings", |s| s.steps.swap(0, 1)),
    ("step: kind", |s| *step(s, "wait") = job("wait")),
    ("job: name", |s| {
        step(s, "late").kind = StepKind::Job {
            job: "play".into(),
            version: 1,
        };
    }),
    ("job: version", |s| {
        step(s, "late").kind = StepKind::Job {
            job: "work".into(),
            version: 2,
        };
    }),
    ("edge: one less", |s| step(s, "late").after.truncate(1)),
    ("edge: takes", |s| {
        step(s, "maybe").after[0].takes = Takes::Value
    }),
    ("edge: order of inputs", |s| {
        step(s, "joined").after.reverse()
    }),
    ("input: a tuple of one", |s| {
        step(s, "maybe").input = Some(Shape::Tuple(vec![Shape::One]));
    }),
    ("input: a list of one", |s| {
        step(s, "maybe").input = Some(Shape::List(1));
    }),
    ("input: a list", |s| {
        step(s, "joined").input = Some(Shape::List(2));
    }),
    ("input: an empty list", |s| {
        step(s, "late").input = Some(Shape::List(0));
    }),
    ("input: nested", |s| {
        let tuple = Shape::Tuple(vec![Shape::One]);
        step(s, "joined").input = Some(Shape::Tuple(vec![tuple, Shape::One]));
    }),
    ("join", |s| step(s, "joined").join = Join::Any),
    ("strategy of the pipeline", |s| {
        s.strategy = Strategy::Continue
    }),
    ("strategy of a step", |s| {
        step(s, "late").strategy = Some(Strategy::Ignore)
    }),
    ("optional", |s| step(s, "late").optional = true),
    ("branch: arms", |s| arms(s).push("none".into())),
    ("branch: order of arms", |s| arms(s).reverse()),
    ("arm of a step", |s| {
        step(s, "scale").arm = Some(ArmRef {
            branch: "format".into(),
            arm: "sd".into(),
        });
        values(s).remove(0);
    }),
    ("merge: values", |s| values(s).truncate(1)),
    ("barrier", |s| {
        s.steps.retain(|step| step.kind != StepKind::Barrier)
    }),
    ("each: tolerance", |s| {
        let (job, version) = ("work".into(), 1);
        step(s, "work").kind = StepKind::Each {
            job,
            version,
            tolerate: Some(1),
        };
    }),
    ("timer: delay", |s| {
        step(s, "wait").kind = StepKind::Timer { delay_ms: 1 }
    }),
    ("signal: name", |s| {
        let (name, timeout_ms) = ("refused".into(), Some(1000));
        step(s, "signal").kind = StepKind::Signal { name, timeout_ms };
    }),
    ("signal: timeout", |s| {
        let (name, timeout_ms) = ("approved".into(), None);
        step(s, "signal").kind = StepKind::Signal { name, timeout_ms };
    }),
    ("embedded graph", |s| {
        *step(s, "sub") = child("sub", graph([job("inner"), job("more")]));
    }),
    ("option: queue", |s| options_of(s).queue = "media".into()),
    ("option: priority", |s| options_of(s).priority = 1),
    ("option: attempts", |s| options_of(s).max_attempts = 1),
    ("option: timeout", |s| options_of(s).timeout_ms = Some(1)),
    ("option: lease", |s| options_of(s).lease_ms = 1000),
    ("option: backoff", |s| {
        options_of(s).backoff.base = Duration::from_secs(2)
    }),
    ("option: delay", |s| options_of(s).delay_ms = 1),
];

/// What does not.
const DOES_NOT_COUNT: &[(&str, Change)] = &[
    ("display name", |s| s.display_name = Some("Video".into())),
    ("description", |s| s.description = Some("of films".into())),
    ("tags", |s| s.tags = vec!["media".into()]),
    ("a strategy that says what the pipeline's says", |s| {
        step(s, "late").strategy = Some(Strategy::Halt);
    }),
    (
        "the pipeline's strategy where every step has its own",
        |s| {
            let can_have = |step: &&mut StepSpec| {
                !matches!(step.kind, StepKind::Barrier | StepKind::Merge { .. })
            };
            for step in s.steps.iter_mut().filter(can_have) {
                step.strategy = Some(Strategy::Halt);
            }
            s.strategy = Strategy::Ignore;
        },
    ),
    ("order of edges that are order only", |s| {
        step(s, "late").after.reverse()
    }),
    ("an edge that is there already", |s| {
        let again = step(s, "late").after[0].clone();
        step(s, "late").after.push(again);
    }),
    ("an edge that a barrier or a merge adds anyway", |s| {
        let edge = Edge {
            step: "barrier:1".into(),
            takes: Takes::Order,
        };
        step(s, "wait").after.push(edge);
    }),
    ("a shape of the output that its number has anyway", |s| {
        s.output_shape = Some(Shape::Tuple(vec![Shape::One, Shape::One]));
    }),
    ("a shape of an input that its edges have anyway", |s| {
        step(s, "maybe").input = Some(Shape::One);
        step(s, "joined").input = Some(Shape::Tuple(vec![Shape::One; 2]));
    }),
    ("order of a merge's values", |s| values(s).reverse()),
    ("a step declared before what it depends on", |s| {
        let joined = s.steps.remove(2);
        s.steps.insert(0, joined);
    }),
    ("display name of an embedded graph", |s| {
        let inner = GraphSpec {
            display_name: Some("Inner".into()),
            ..graph([job("inner")])
        };
        *step(s, "sub") = child("sub", inner);
    }),
];

fn arms(spec: &mut GraphSpec) -> &mut Vec<String> {
    match &mut step(spec, "format").kind {
        StepKind::Branch { arms, .. } => arms,
        other => panic!("{other:?}"),
    }
}

fn values(spec: &mut GraphSpec) -> &mut Vec<(String, String)> {
    match &mut step(spec, "merge:format").kind {
        StepKind::Merge { values, .. } => values,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_fingerprint_changes_exactly_when_behaviour_does() {
    let before = compile(sample()).fingerprint();
    for (changes, rows) in [(true, COUNTS), (false, DOES_NOT_COUNT)] {
        for (row, change) in rows {
            let mut spec = sample();
            change(&mut spec);
            assert_ne!(spec, sample(), "{row}: nothing was changed");
            let after = compile(spec).fingerprint();
            assert_eq!(after != before, changes, "{row}");
        }
    }
}

#[test]
fn the_table_in_the_docs_has_these_rows_and_no_others() {
    let page = include_str!("../../../../docs/graphs/fingerprint.md");
    let expected = COUNTS.iter().map(|row| (row.0, "changes"));
    let expected = expected.chain(DOES_NOT_COUNT.iter().map(|row| (row.0, "stays")));
    let expected: Vec<String> = expected
        .map(|(row, what)| format!("| {row} | {what} |"))
        .collect();
    let found: Vec<&str> = page
        .lines()
        .filter(|line| line.ends_with("| changes |") || line.ends_with("| stays |"))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn two_changes_are_two_fingerprints() {
    let mut seen = std::collections::HashSet::new();
    for (row, change) in COUNTS {
        let mut spec = sample();
        change(&mut spec);
        assert!(seen.insert(compile(spec).fingerprint()), "{row}");
    }
}

#[test]
fn a_fingerprint_is_32_hex_digits_and_stays_what_it_is() {
    let fingerprint = compile(graph([job("a"), job("b").after(&["a"])])).fingerprint();
    assert_eq!(fingerprint.to_string(), "865b35cd0e63cd3eb451ee52627dfa7e");
    let again = crate::graph::Fingerprint::from_bytes(*fingerprint.as_bytes());
    assert_eq!(again, fingerprint);
}
