//! The input of a step: what it receives from its upstreams (§8).

use pipeline::graph::spec::{Join, StepKind, Takes};

use super::event::RunId;
use super::status::StepStatus;
use super::world::{Model, Run, Value};

/// One element of a step's input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A value.
    Value(Value),
    /// The upstream has no value; this is not the value `null`.
    Absent,
    /// A failure, for an `after_failure` step and for an input of type `Result`.
    Failure,
}

impl Model {
    /// Returns the elements of a step's input, in the order of its edges; order-only edges carry none.
    ///
    /// To `after_any` goes one element. Reading: of the upstream that made it ready; if several had
    /// succeeded by then (a gate held it, or it was reopened), of the first in the order of its edges.
    pub fn input(&self, run: RunId, step: &str) -> Vec<Input> {
        let run = self.run(run);
        let no = run.graph.number(step).expect("the graph has this step");
        let links = run.graph.nodes[no].links.iter();
        if run.graph.join(no) == Join::Any {
            let first = run.steps[no].first;
            return first
                .map(|from| element(run, from, Takes::Value))
                .into_iter()
                .collect();
        }
        links
            .filter(|link| link.takes.is_input())
            .map(|link| element(run, link.from, link.takes))
            .collect()
    }

    /// Returns the upstream that makes an `after_any` step ready.
    pub(super) fn first_upstream(&self, run: RunId, no: usize) -> Option<usize> {
        let run = &self.runs[run.0];
        let mut links = run.graph.nodes[no].links.iter().filter(|link| !link.gate);
        links
            .find(|link| run.steps[link.from].status == StepStatus::Succeeded)
            .map(|link| link.from)
    }

    /// §8: returns the value of a merge: what the chosen arm returned, if it returned a value.
    pub(super) fn merged(&self, run: RunId, no: usize) -> Option<Value> {
        let run = &self.runs[run.0];
        let StepKind::Merge { branch, values } = run.graph.kind(no) else {
            return None;
        };
        let Some(Value::Arm(chosen)) = &run.steps[run.graph.number(branch)?].value else {
            return None;
        };
        let (_, step) = values.iter().find(|(arm, _)| arm == chosen)?;
        run.steps[run.graph.number(step)?].value.clone()
    }
}

fn element(run: &Run, from: usize, takes: Takes) -> Input {
    let step = &run.steps[from];
    match (step.status, takes) {
        (StepStatus::Failed, Takes::Failure | Takes::Outcome) => Input::Failure,
        _ => step.value.clone().map_or(Input::Absent, Input::Value),
    }
}
