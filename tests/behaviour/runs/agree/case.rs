//! A random case: a graph, and the outcomes of its runs.

use pipeline::graph::spec::{Edge, GraphSpec, StepKind, Takes};
use pipeline::{EventLevel, Graph, Pipeline};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use tests::model::arbitrary::{Knobs, graph, script};
use tests::model::play::Script;
use tests::model::sketch::Sketch;

#[derive(Debug, Clone)]
pub(super) struct Case {
    /// As the model has it.
    pub(super) spec: Sketch,
    /// The edges that validation adds are left to it.
    pub(super) bare: bool,
    /// For each run, how its attempts end and what is kept of it.
    pub(super) runs: Vec<(Script, Kept)>,
    /// Who sends what, and when. It ends in noughts.
    pub(super) numbers: Vec<u16>,
}

/// What is kept of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kept {
    Nothing,
    Runs,
    Steps,
    All,
}

impl Kept {
    pub(super) fn history(self) -> EventLevel {
        match self {
            Self::Nothing => EventLevel::None,
            Self::Runs => EventLevel::Runs,
            Self::Steps => EventLevel::Steps,
            Self::All => EventLevel::All,
        }
    }
}

pub(super) fn case(knobs: Knobs) -> impl Strategy<Value = Case> {
    let kept = any::<u8>().prop_map(|number| match number % 8 {
        0 => Kept::Nothing,
        1 => Kept::Runs,
        2..=4 => Kept::Steps,
        _ => Kept::All,
    });
    let parts = (
        graph(knobs),
        any::<u64>(),
        any::<bool>(),
        vec((script(knobs), kept), 1..5),
        vec(any::<u16>(), 0..400),
    );
    parts.prop_map(|(spec, outcomes, bare, runs, numbers)| Case {
        spec: with_outcomes(spec, outcomes),
        bare,
        runs,
        numbers,
    })
}

/// Some of what is taken as perhaps absent is taken as an outcome, where that is valid.
fn with_outcomes(spec: Sketch, which: u64) -> Sketch {
    let mut spec = spec.0;
    let mut bits = (0..64).cycle().map(|bit| which >> bit & 1 == 1);
    for step in 0..spec.steps.len() {
        let resolved = matches!(
            spec.steps[step].kind,
            StepKind::Merge { .. } | StepKind::Barrier
        );
        for edge in 0..spec.steps[step].after.len() {
            let takes = spec.steps[step].after[edge].takes;
            if takes == Takes::Maybe && !resolved && bits.next() == Some(true) {
                spec.steps[step].after[edge].takes = Takes::Outcome;
                if spec.validate().is_err() {
                    spec.steps[step].after[edge].takes = takes;
                }
            }
        }
    }
    Sketch(spec)
}

impl Case {
    /// The pipeline of which runs are started: each step's params are its key.
    pub(super) fn pipeline(&self) -> Pipeline {
        let graph = Graph::compile(self.declared());
        let graph = graph.unwrap_or_else(|invalid| panic!("{:?}\n{invalid}", self.spec));
        let params = graph.spec().steps.iter().map(|step| {
            let is_job = step.options.is_some();
            is_job.then(|| format!("\"{}\"", step.key))
        });
        let params = params.collect();
        Pipeline::from_graph(graph, params)
    }

    fn declared(&self) -> GraphSpec {
        let mut spec = self.spec.0.clone();
        // They have tests of their own.
        spec.callbacks.clear();
        if self.bare {
            bare(&mut spec);
        }
        spec
    }
}

/// Takes away the edges that validation adds by itself: those of merges and barriers, and the one to a
/// barrier where nothing else of the phase comes before a step.
fn bare(spec: &mut GraphSpec) {
    let mut phase: Vec<String> = Vec::new();
    for step in &mut spec.steps {
        let is_in_phase = |edge: &Edge| phase.contains(&edge.step);
        match step.kind {
            StepKind::Merge { .. } => step.after.clear(),
            StepKind::Barrier => {
                step.after.clear();
                phase.clear();
                continue;
            }
            _ if !step.after.iter().any(is_in_phase) => {
                let is_barrier = |edge: &Edge| edge.step.starts_with("barrier");
                step.after.retain(|edge| !is_barrier(edge));
            }
            _ => {}
        }
        phase.push(step.key.clone());
    }
}
