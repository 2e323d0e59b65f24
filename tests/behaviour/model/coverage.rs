//! The coverage of the random cases: each feature occurs often enough.

use std::collections::{BTreeMap, BTreeSet};

use pipeline::graph::spec::{GraphSpec, StepKind, StepSpec, Takes};
use proptest::strategy::{Strategy as _, ValueTree};
use proptest::test_runner::TestRunner;
use tests::model::arbitrary::{Knobs, graph, order, script};
use tests::model::play::Play;
use tests::model::{Effect, RunId, StepStatus};

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
        found.extend(error_paths_behind_barriers(&spec, &play, run));
        for one in found {
            *seen.entry(one).or_default() += 1;
        }
    }
    for expected in [
        "job",
        "error",
        "error path behind a barrier",
        "error path behind a barrier that ran",
        "error path behind a barrier that Halt left pending",
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
        "NoneTaken",
        "HaltedBy",
        "EndedBy",
        "NotAnArm",
        "Child",
    ] {
        let times = seen.get(expected).copied().unwrap_or(0);
        assert!(times >= 4, "{expected}: {times} of 400, of {seen:?}");
    }
}

/// The error paths of the graph that wait for barriers, and what became of them.
fn error_paths_behind_barriers(spec: &GraphSpec, play: &Play, run: RunId) -> Vec<String> {
    let mut found = Vec::new();
    for step in &spec.steps {
        let Some(gate) = step.after.iter().find(|edge| edge.takes == Takes::Ended) else {
            continue;
        };
        let path = "error path behind a barrier";
        found.push(path.to_owned());
        let model = &play.model;
        if model.step(run, &step.key).ended_by.is_some() {
            found.push(format!("{path} that ran"));
            let was_halted = model.run(run).halt_triggered;
            if was_halted && model.step(run, &gate.step).status == StepStatus::Skipped {
                found.push(format!("{path} that Halt left pending"));
            }
        }
    }
    found
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
