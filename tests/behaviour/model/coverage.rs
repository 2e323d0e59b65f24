//! What the random cases are made of.

use std::collections::{BTreeMap, BTreeSet};

use pipeline::graph::spec::{StepKind, StepSpec};
use proptest::strategy::{Strategy as _, ValueTree};
use proptest::test_runner::TestRunner;
use tests::model::Effect;
use tests::model::arbitrary::{Knobs, graph, order, script};

use super::properties::played;

/// The properties say nothing of what never occurs: every shape and every status does.
#[test]
fn random_graphs_have_every_shape_and_runs_every_end() {
    let mut runner = TestRunner::deterministic();
    let cases = (graph(Knobs::ALL), script(Knobs::ALL), order());
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..400 {
        let (spec, script, order) = cases.new_tree(&mut runner).expect("a case").current();
        let (play, run) = played(&spec, &script, &order);
        let mut found: BTreeSet<String> = spec.steps.iter().flat_map(shapes).collect();
        found.insert(format!("run {}", play.model.status(run)));
        for (_, status) in play.model.statuses(run) {
            found.insert(format!("step {status}"));
        }
        for effect in play.log.iter().flat_map(|(_, effects)| effects) {
            if let Effect::Ended { why: Some(why), .. } = effect {
                let why = format!("{why:?}");
                found.insert(why.split('(').next().unwrap_or_default().to_owned());
            }
        }
        for one in found {
            *seen.entry(one).or_default() += 1;
        }
    }
    for expected in [
        "job",
        "error",
        "any",
        "timer",
        "signal",
        "child",
        "each",
        "branch",
        "merge",
        "barrier",
        "nested",
        "optional",
        "own strategy",
        "run succeeded",
        "run failed",
        "run halted",
        "step succeeded",
        "step failed",
        "step ended_run",
        "step skipped",
        "step skipped_by_branch",
        "Broken",
        "NotChosen",
        "NoFailure",
        "NoneSucceeded",
        "HaltedBy",
        "EndedBy",
        "NotAnArm",
        "Child",
    ] {
        let times = seen.get(expected).copied().unwrap_or(0);
        assert!(times >= 4, "{expected}: {times} of 400, of {seen:?}");
    }
}

fn shapes(step: &StepSpec) -> Vec<String> {
    let kind = step
        .key
        .trim_end_matches(|digit: char| digit.is_ascii_digit());
    let mut shapes = vec![kind.to_owned()];
    let decides = matches!(step.kind, StepKind::Branch { .. });
    shapes.extend((decides && step.arm.is_some()).then(|| "nested".to_owned()));
    shapes.extend(step.optional.then(|| "optional".to_owned()));
    shapes.extend(step.strategy.map(|_| "own strategy".to_owned()));
    shapes
}
