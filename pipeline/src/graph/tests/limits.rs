//! Rule 29: every limit gives an error that names it.

use super::build::*;
use crate::graph::spec::*;
use crate::graph::{Graph, Problem};

/// The message of the one problem that a graph has after a change.
#[track_caller]
fn after(change: impl FnOnce(&mut GraphSpec)) -> String {
    let mut spec = graph([job("a")]);
    change(&mut spec);
    let problems = problems_of(&spec);
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0].to_string()
}

#[track_caller]
fn with_options(change: impl FnOnce(&mut StepOptions)) -> String {
    let mut options = options();
    change(&mut options);
    after(|spec| spec.steps[0].options = Some(options))
}

#[test]
fn names_are_plain_and_at_most_128_long() {
    let long = "x".repeat(129);
    for bad in ["", "a b", "ä", "a/b", "\0", long.as_str()] {
        assert!(after(|spec| spec.name = bad.into()).contains("the pipeline's name"));
        assert!(after(|spec| spec.steps[0].key = bad.into()).contains("the key"));
        let kind = StepKind::Job {
            job: bad.into(),
            version: 1,
        };
        assert!(after(|spec| spec.steps[0].kind = kind).contains("step `a`: the job's name"));
        assert!(with_options(|options| options.queue = bad.into()).contains("the queue's name"));
    }
    let nul = after(|spec| spec.name = "a\0".into());
    assert!(nul.contains("`a\\0`"), "{nul}");
    let mut spec = graph([job(&"k".repeat(128))]);
    spec.name = "n".repeat(128);
    compile(spec);
}

#[test]
fn names_of_arms_signals_and_callbacks_are_names_too() {
    let arm = message([branch("a", &["h d"])]);
    assert!(arm.contains("step `a`: the arm's name `h d`"), "{arm}");
    let kind = StepKind::Signal {
        name: "a b".into(),
        timeout_ms: None,
    };
    let signal = message([node("wait", kind)]);
    assert!(
        signal.contains("step `wait`: the signal's name `a b`"),
        "{signal}"
    );
    let callback = after(|spec| {
        spec.callbacks.push(CallbackSpec {
            on: CallbackOn::Failure,
            job: "a b".into(),
            version: 1,
            options: options(),
        });
    });
    assert!(
        callback.contains("callback 1: the job's name `a b`"),
        "{callback}"
    );
}

#[test]
fn there_are_at_most_16_tags_of_64_characters() {
    let many = after(|spec| spec.tags = vec!["t".into(); 17]);
    assert!(many.contains("17 tags, more than 16"), "{many}");
    let long = after(|spec| spec.tags = vec!["ä".repeat(65)]);
    assert!(
        long.contains("the tag `ää") && long.contains("ä…` has 65 characters, more than 64"),
        "{long}"
    );
    assert!(after(|spec| spec.tags = vec!["a\0".into()]).contains("a NUL"));
    assert!(after(|spec| spec.tags = vec![String::new()]).contains("empty"));
    let mut spec = graph([job("a")]);
    spec.tags = vec!["ä".repeat(64); 16];
    compile(spec);
}

#[test]
fn texts_are_bounded_and_hold_no_nul() {
    let long = after(|spec| spec.description = Some("x".repeat(4097)));
    assert!(
        long.contains("description has 4097 bytes, more than 4096"),
        "{long}"
    );
    let long = after(|spec| spec.display_name = Some("x".repeat(257)));
    assert!(
        long.contains("display name has 257 bytes, more than 256"),
        "{long}"
    );
    assert!(after(|spec| spec.description = Some("\0".into())).contains("a NUL"));
    assert!(after(|spec| spec.display_name = Some("\0".into())).contains("a NUL"));
}

#[test]
fn numbers_and_durations_are_in_range() {
    let century = 100 * 365 * 24 * 60 * 60 * 1000;
    for bad in [0, century + 1, u64::MAX] {
        assert!(after(|spec| spec.deadline_ms = Some(bad)).contains("the deadline is"));
        assert!(with_options(|o| o.timeout_ms = Some(bad)).contains("the timeout is"));
        assert!(message([node("a", StepKind::Timer { delay_ms: bad })]).contains("timer's delay"));
        let kind = StepKind::Signal {
            name: "s".into(),
            timeout_ms: Some(bad),
        };
        assert!(message([node("a", kind)]).contains("signal's timeout"));
    }
    assert!(with_options(|o| o.delay_ms = u64::MAX).contains("the delay is"));
    assert!(
        with_options(|o| o.max_attempts = 0).contains("max_attempts is 0: use from 1 to 32767")
    );
    assert!(with_options(|o| o.max_attempts = 40_000).contains("max_attempts is 40000"));
    assert!(
        with_options(|o| o.lease_ms = 999).contains("the lease is 999 ms: use from 1 s to 1 day")
    );
    assert!(with_options(|o| o.lease_ms = 86_400_001).contains("the lease"));
    assert!(with_options(|o| o.backoff.jitter = f32::NAN).contains("jitter"));
    let seconds = std::time::Duration::from_secs;
    let shrinking = jobs::Backoff::exponential(seconds(60), seconds(1));
    let problem = with_options(|o| o.backoff = shrinking);
    let expected =
        "the backoff is 60s to 1s: use a first wait that is not longer than the longest one";
    assert!(problem.contains(expected), "{problem}");
    assert!(with_options(|o| o.backoff.max = std::time::Duration::MAX).contains("backoff"));
}

#[test]
fn there_are_at_most_100_000_steps_those_of_embedded_graphs_included() {
    let many = |count: usize| (0..count).map(|n| job(&n.to_string()));
    assert!(graph(many(100_000)).validate().is_ok());
    let found = message(many(100_001));
    assert!(found.contains("100001 steps"), "{found}");
    let embedded = message([child("sub", graph(many(100_000)))]);
    assert!(
        embedded.contains("100001 steps, those of embedded graphs included"),
        "{embedded}"
    );
}

#[test]
fn there_are_at_most_a_million_edges() {
    let wide = |before: usize, after: usize| {
        let keys: Vec<String> = (0..before).map(|n| format!("a{n}")).collect();
        let edges: Vec<Edge> = keys
            .iter()
            .map(|key| Edge {
                step: key.clone(),
                takes: Takes::Order,
            })
            .collect();
        let after = (0..after).map(move |n| StepSpec {
            after: edges.clone(),
            ..job(&format!("b{n}"))
        });
        graph(
            keys.iter()
                .map(|key| job(key))
                .chain(after)
                .collect::<Vec<_>>(),
        )
    };
    assert!(wide(1000, 1000).validate().is_ok());
    let problems = problems_of(&wide(1000, 1001));
    assert!(
        problems[0].to_string().contains("1001000 edges"),
        "{problems:?}"
    );
    // Many merges of one branch would add them: it is seen before they are laid.
    let arms = (0..40_000).map(|n| job(&format!("s{n}")).following(&["b"]).in_arm("b", "x"));
    let merges = (0..40_000).map(|n| merge(&format!("m{n}"), "b", &[]));
    let many = graph([branch("b", &["x"])].into_iter().chain(arms).chain(merges));
    assert!(matches!(problems_of(&many)[..], [Problem::TooMany { .. }]));
}

#[test]
fn arms_and_embedded_graphs_lie_only_so_deep() {
    let nested = |depth: usize| {
        (0..depth).map(|n| match n {
            0 => branch("b0", &["x"]),
            _ => {
                let around = format!("b{}", n - 1);
                branch(&format!("b{n}"), &["x"])
                    .following(&[&around])
                    .in_arm(&around, "x")
            }
        })
    };
    valid(nested(65));
    for reversed in [false, true] {
        let mut steps: Vec<StepSpec> = nested(20_000).collect();
        if reversed {
            steps.reverse();
        }
        let found = problems_of(&graph(steps));
        assert!(
            found
                .iter()
                .any(|p| p.to_string().contains("nested in more than 64 arms")),
            "{}",
            found.len()
        );
    }
    let embedded =
        |depth: usize| (0..depth).fold(graph([job("a")]), |inner, _| graph([child("c", inner)]));
    assert!(Graph::compile(embedded(16)).is_ok());
    let found = problems_of(&embedded(17));
    assert!(
        found[0]
            .to_string()
            .contains("more than 16 embedded graphs"),
        "{found:?}"
    );
}

#[test]
fn arms_and_callbacks_are_bounded() {
    let arms: Vec<String> = (0..1001).map(|n| n.to_string()).collect();
    let arms: Vec<&str> = arms.iter().map(String::as_str).collect();
    assert!(message([branch("b", &arms)]).contains("1001 arms"));
    let callback = CallbackSpec {
        on: CallbackOn::Failure,
        job: "alert".into(),
        version: 1,
        options: options(),
    };
    assert!(after(|spec| spec.callbacks = vec![callback; 101]).contains("101 callbacks"));
}
