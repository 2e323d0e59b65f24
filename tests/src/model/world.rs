//! The state: runs and their steps, and the only functions that change a status.

use std::sync::Arc;

use pipeline::graph::spec::GraphSpec;

use super::event::{Effect, Event, GraphId, Outcome, Payload, Refusal, RunId, Token, Why};
use super::index::{Index, Key};
use super::status::{RunStatus, StepStatus};
use super::waits::{Kept, Wait};

/// The state of the model: graphs and runs.
#[derive(Debug, Clone)]
pub struct Model {
    pub(super) graphs: Vec<Arc<Index>>,
    pub(super) runs: Vec<Run>,
    /// Milliseconds since the beginning (rule 11).
    pub(super) now: u64,
    /// A counter of waits and kept signals, by which the oldest is found.
    pub(super) clock: u64,
    /// Signals that are kept for the next matching wait of any run.
    pub(super) kept: Vec<Kept>,
}

/// A run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The graph of the run.
    pub graph: Arc<Index>,
    /// Its status.
    pub status: RunStatus,
    /// The number of the round: 1, and one more for each reopening.
    pub round: u32,
    /// Rule 13: a step failed under Halt in this round.
    pub halt_triggered: bool,
    /// Why the run is, or was, drained in this round.
    pub drain: Option<Drain>,
    /// Rule 17: the runs that this run is chained to.
    pub after: Vec<RunId>,
    /// When this round began to run.
    pub started_at: Option<u64>,
    /// The steps, in the order of the graph.
    pub steps: Vec<Step>,
    /// Signals that were sent to the run and not yet taken.
    pub kept: Vec<Kept>,
}

/// Why a run is being drained (rule 18): the first of the two wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drain {
    /// The run was cancelled.
    Cancel,
    /// The deadline of the run passed.
    Deadline,
}

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its status.
    pub status: StepStatus,
    /// The token of the newest claim; 0 if there was none.
    pub token: Token,
    /// Whether a worker has claimed the job.
    pub taken: bool,
    /// The token of the attempt that ended the step (rule 3).
    pub ended_by: Option<Token>,
    /// The output of the step.
    pub value: Option<Value>,
    /// The wait of a waiting step.
    pub wait: Option<Wait>,
    /// The upstream that made an `after_any` step ready.
    pub first: Option<usize>,
    /// Why the step ended, if not by an attempt.
    pub why: Option<Why>,
}

/// The output of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The value that the job returned, or that the signal carried.
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

    /// Returns the numbers of the steps with this status.
    pub(super) fn steps_that_are(&self, status: StepStatus) -> Vec<usize> {
        (0..self.steps.len())
            .filter(|no| self.steps[*no].status == status)
            .collect()
    }
}

impl Model {
    /// Creates a model with one graph, which must be valid, and no run.
    pub fn new(spec: &GraphSpec) -> Self {
        Self {
            graphs: vec![Arc::new(Index::new(spec))],
            runs: Vec::new(),
            now: 0,
            clock: 0,
            kept: Vec::new(),
        }
    }

    /// Adds a graph.
    pub fn graph(&mut self, spec: &GraphSpec) -> GraphId {
        self.graphs.push(Arc::new(Index::new(spec)));
        GraphId(self.graphs.len() - 1)
    }

    /// Returns the runs, by number.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns a run.
    pub fn run(&self, run: RunId) -> &Run {
        &self.runs[run.0]
    }

    /// Returns the status of a run.
    pub fn status(&self, run: RunId) -> RunStatus {
        self.runs[run.0].status
    }

    /// Returns a step of a run.
    pub fn step(&self, run: RunId, key: &str) -> &Step {
        let run = &self.runs[run.0];
        let no = run.graph.number(key).expect("the graph has this step");
        &run.steps[no]
    }

    /// Returns every step of a run with its status, in the order of declaration.
    pub fn statuses(&self, run: RunId) -> Vec<(Key, StepStatus)> {
        let run = &self.runs[run.0];
        let keys = run.graph.nodes.iter().map(|node| node.key.clone());
        keys.zip(run.steps.iter().map(|step| step.status)).collect()
    }

    /// Returns the time, in milliseconds since the beginning.
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

    /// Lets a worker claim a step's job.
    pub fn take(&mut self, run: RunId, step: &str) -> Token {
        let step = Key::from(step);
        self.must(Event::Taken {
            run,
            step: step.clone(),
        });
        self.step(run, &step).token
    }

    /// Lets a worker claim a step's job and end it.
    pub fn run_attempt(&mut self, run: RunId, step: &str, outcome: Outcome) -> Vec<Effect> {
        let token = self.take(run, step);
        self.must(Event::Ended {
            run,
            step: step.into(),
            token,
            outcome,
        })
    }

    /// §6: changes the status of a step; a refusal names the step and both statuses.
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

    /// §6: changes the status of a run; a refusal names the run and both statuses.
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
