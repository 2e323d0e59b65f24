//! The state: runs and their steps, and the only functions that change a status.

use std::sync::Arc;

use pipeline::graph::spec::GraphSpec;

use super::event::{Effect, Event, GraphId, Outcome, Payload, Refusal, RunId, Token, Why};
use super::index::{Index, Key};
use super::status::{RunStatus, StepStatus};
use super::waits::{Kept, Wait};

/// A world of graphs and runs.
#[derive(Debug, Clone)]
pub struct Model {
    pub(super) graphs: Vec<Arc<Index>>,
    pub(super) runs: Vec<Run>,
    /// Milliseconds since the beginning (rule 11).
    pub(super) now: u64,
    /// Rises with every wait and every kept signal: "the oldest" is by this.
    pub(super) clock: u64,
    /// Signals kept for whoever waits next.
    pub(super) kept: Vec<Kept>,
}

/// A run.
#[derive(Debug, Clone)]
pub struct Run {
    /// Its graph.
    pub graph: Arc<Index>,
    /// Its status.
    pub status: RunStatus,
    /// Rises with each reopening; the first is 1.
    pub round: u32,
    /// Rule 13: a step failed under Halt in this round.
    pub halt_triggered: bool,
    /// Why it is, or was, drained in this round.
    pub drain: Option<Drain>,
    /// Rule 17: the runs it starts after.
    pub after: Vec<RunId>,
    /// When this round began to run.
    pub started_at: Option<u64>,
    /// Its steps, as its graph numbers them.
    pub steps: Vec<Step>,
    /// Signals that were sent to it and not yet taken.
    pub kept: Vec<Kept>,
}

/// Why a run is being drained (rule 18): the first of the two wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drain {
    /// Someone asked.
    Cancel,
    /// Its deadline passed.
    Deadline,
}

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its status.
    pub status: StepStatus,
    /// Of its newest claim; 0 if there was none.
    pub token: Token,
    /// A worker has its job.
    pub taken: bool,
    /// The attempt that ended it: the ended step keeps the token (rule 3).
    pub ended_by: Option<Token>,
    /// What it put out.
    pub value: Option<Value>,
    /// What it waits for.
    pub wait: Option<Wait>,
    /// Of an `after_any` step, the upstream that made it ready.
    pub first: Option<usize>,
    /// Where it did not end by itself, why.
    pub why: Option<Why>,
}

/// What a step put out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// What its job returned, or the signal carried.
    Of(Payload),
    /// The arm that a deciding job chose.
    Arm(String),
    /// A signal did not come in time (rule 23).
    TimedOut,
}

impl Step {
    fn new() -> Self {
        Self {
            status: StepStatus::Pending,
            token: Token(0),
            taken: false,
            ended_by: None,
            value: None,
            wait: None,
            first: None,
            why: None,
        }
    }
}

impl Run {
    pub(super) fn new(graph: Arc<Index>, after: Vec<RunId>) -> Self {
        let steps = vec![Step::new(); graph.nodes.len()];
        Self {
            graph,
            status: RunStatus::Pending,
            round: 1,
            halt_triggered: false,
            drain: None,
            after,
            started_at: None,
            steps,
            kept: Vec::new(),
        }
    }

    /// The numbers of the steps that stand so.
    pub(super) fn steps_that_are(&self, status: StepStatus) -> Vec<usize> {
        (0..self.steps.len())
            .filter(|no| self.steps[*no].status == status)
            .collect()
    }
}

impl Model {
    /// A world with one graph, which is valid, and no run.
    pub fn new(spec: &GraphSpec) -> Self {
        Self {
            graphs: vec![Arc::new(Index::new(spec))],
            runs: Vec::new(),
            now: 0,
            clock: 0,
            kept: Vec::new(),
        }
    }

    /// A further graph.
    pub fn graph(&mut self, spec: &GraphSpec) -> GraphId {
        self.graphs.push(Arc::new(Index::new(spec)));
        GraphId(self.graphs.len() - 1)
    }

    /// The runs, by number.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// A run.
    pub fn run(&self, run: RunId) -> &Run {
        &self.runs[run.0]
    }

    /// The status of a run.
    pub fn status(&self, run: RunId) -> RunStatus {
        self.runs[run.0].status
    }

    /// A step of a run.
    pub fn step(&self, run: RunId, key: &str) -> &Step {
        let run = &self.runs[run.0];
        let no = run.graph.number(key).expect("the graph has this step");
        &run.steps[no]
    }

    /// Every step of a run with its status, in the order of declaration.
    pub fn statuses(&self, run: RunId) -> Vec<(Key, StepStatus)> {
        let run = &self.runs[run.0];
        let keys = run.graph.nodes.iter().map(|node| node.key.clone());
        keys.zip(run.steps.iter().map(|step| step.status)).collect()
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Starts a run of the first graph.
    pub fn start(&mut self) -> RunId {
        self.must(Event::Start { graph: GraphId(0) });
        RunId(self.runs.len() - 1)
    }

    /// Applies an event that the rules do not refuse.
    pub fn must(&mut self, event: Event) -> Vec<Effect> {
        match self.apply(&event) {
            Ok(effects) => effects,
            Err(refusal) => panic!("{event:?}: {refusal}"),
        }
    }

    /// A worker takes a step's job.
    pub fn take(&mut self, run: RunId, step: &str) -> Token {
        let step = Key::from(step);
        self.must(Event::Taken {
            run,
            step: step.clone(),
        });
        self.step(run, &step).token
    }

    /// A worker takes a step's job and ends it.
    pub fn run_attempt(&mut self, run: RunId, step: &str, outcome: Outcome) -> Vec<Effect> {
        let token = self.take(run, step);
        self.must(Event::Ended {
            run,
            step: step.into(),
            token,
            outcome,
        })
    }

    /// §6: moves a step, or names it and both statuses.
    pub(super) fn step_to(
        &mut self,
        run: RunId,
        no: usize,
        to: StepStatus,
        why: Option<Why>,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let key = self.runs[run.0].graph.nodes[no].key.clone();
        let step = &mut self.runs[run.0].steps[no];
        if !step.status.may_become(to) {
            return Err(Refusal::Step {
                run,
                step: key,
                from: step.status,
                to,
            });
        }
        step.status = to;
        step.why.clone_from(&why);
        if to != StepStatus::Waiting {
            step.wait = None;
        }
        out.push(match to {
            StepStatus::Enqueued => Effect::Released { run, step: key },
            StepStatus::Waiting => Effect::Waits { run, step: key },
            status => Effect::Ended {
                run,
                step: key,
                status,
                why,
            },
        });
        Ok(())
    }

    /// §6: moves a run, or names it and both statuses.
    pub(super) fn run_to(
        &mut self,
        run: RunId,
        to: RunStatus,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let here = &mut self.runs[run.0];
        if !here.status.may_become(to) {
            return Err(Refusal::Run {
                run,
                from: here.status,
                to,
            });
        }
        here.status = to;
        out.push(Effect::Run {
            run,
            round: here.round,
            status: to,
        });
        Ok(())
    }
}
