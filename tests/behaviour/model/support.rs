//! Helpers for the tests of the model.

use tests::model::{Key, Outcome};

pub(super) use pipeline::graph::spec::{CallbackOn, GraphSpec, Strategy, Takes};
pub(super) use tests::model::build::*;
pub(super) use tests::model::{Effect, Event, GraphId, Model, RunId, Token};
pub(super) use tests::model::{RunStatus as R, StepStatus as S};

/// A model in which one run of this graph has started.
pub(super) fn started(spec: &GraphSpec) -> (Model, RunId) {
    let mut model = Model::new(spec);
    let run = model.start();
    (model, run)
}

/// Short words for a step of a run.
pub(super) trait Words {
    fn ok(&mut self, run: RunId, step: &str) -> Vec<Effect>;
    fn fail(&mut self, run: RunId, step: &str) -> Vec<Effect>;
    fn choose(&mut self, run: RunId, step: &str, arm: &str) -> Vec<Effect>;
    fn is(&self, run: RunId, step: &str) -> S;
    fn are<const N: usize>(&self, run: RunId, steps: [&str; N]) -> [S; N];
    fn cancel(&mut self, run: RunId) -> Vec<Effect>;
    fn reopen(&mut self, run: RunId, named: &[&str]) -> Vec<Effect>;
}

impl Words for Model {
    fn ok(&mut self, run: RunId, step: &str) -> Vec<Effect> {
        self.run_attempt(run, step, Outcome::Success(1))
    }

    fn fail(&mut self, run: RunId, step: &str) -> Vec<Effect> {
        self.run_attempt(run, step, Outcome::Failed)
    }

    fn choose(&mut self, run: RunId, step: &str, arm: &str) -> Vec<Effect> {
        self.run_attempt(run, step, Outcome::Chose(arm.to_owned()))
    }

    fn is(&self, run: RunId, step: &str) -> S {
        self.step(run, step).status
    }

    fn are<const N: usize>(&self, run: RunId, steps: [&str; N]) -> [S; N] {
        steps.map(|step| self.is(run, step))
    }

    fn cancel(&mut self, run: RunId) -> Vec<Effect> {
        self.must(Event::Cancel { run })
    }

    fn reopen(&mut self, run: RunId, named: &[&str]) -> Vec<Effect> {
        let named = named.iter().map(|key| Key::from(*key)).collect();
        self.must(Event::Reopen { run, named })
    }
}

/// The steps that these effects released.
pub(super) fn released(effects: &[Effect]) -> Vec<&str> {
    let mut steps = Vec::new();
    for effect in effects {
        if let Effect::Released { step, .. } = effect {
            steps.push(&**step);
        }
    }
    steps
}

/// The callbacks that these effects fired.
pub(super) fn callbacks(effects: &[Effect]) -> Vec<(RunId, u32, CallbackOn)> {
    let fired = |effect: &Effect| match effect {
        Effect::Callback { run, round, on } => Some((*run, *round, *on)),
        _ => None,
    };
    effects.iter().filter_map(fired).collect()
}

/// A run of the first graph, chained to these.
pub(super) fn then(model: &mut Model, after: &[RunId]) -> RunId {
    let (graph, after) = (GraphId(0), after.to_vec());
    model.must(Event::Then { graph, after });
    RunId(model.runs().len() - 1)
}
