//! A check of ended runs: rules 9 and 12 to 14 (with 17, 18, 20 and §8 where they meet), read backwards.
//!
//! The check does not replay a run. It looks at each step of an ended run of one round, and asks whether the
//! rules give a reason for its status. It reads the graph itself, so that a mistake in [`Index`](super::Index)
//! or in the state machine shows. It takes rows of the engine as well as runs of the model.

use std::collections::BTreeSet;

use pipeline::graph::spec::{Edge, GraphSpec, Join, StepKind, StepSpec, Strategy, Takes};

use super::event::RunId;
use super::status::{RunStatus, StepStatus};
use super::world::{Drain, Model, Value};

/// A run that has ended, in its first round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Its status.
    pub status: RunStatus,
    /// Why the run was drained, if it was.
    pub drain: Option<Drain>,
    /// Whether Halt was triggered.
    pub halt_triggered: bool,
    /// The steps, in the order of the graph.
    pub steps: Vec<StepEnd>,
}

/// A step that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepEnd {
    /// Its status.
    pub status: StepStatus,
    /// The arm that a deciding step chose.
    pub chosen: Option<String>,
}

impl End {
    /// Takes an ended run of the model.
    pub fn of(model: &Model, run: RunId) -> Self {
        let run = model.run(run);
        let step = |step: &super::world::Step| StepEnd {
            status: step.status,
            chosen: match &step.value {
                Some(Value::Arm(arm)) => Some(arm.clone()),
                _ => None,
            },
        };
        Self {
            status: run.status,
            drain: run.drain,
            halt_triggered: run.halt_triggered,
            steps: run.steps.iter().map(step).collect(),
        }
    }
}

/// Returns what the rules do not allow in this end.
pub fn allowed(spec: &GraphSpec, end: &End) -> Result<(), String> {
    let view = View { spec, end };
    for no in 0..spec.steps.len() {
        view.step(no)
            .map_err(|why| format!("step {}: {why}", spec.steps[no].key))?;
    }
    view.halt_flag()?;
    view.run()
}

struct View<'a> {
    spec: &'a GraphSpec,
    end: &'a End,
}

impl View<'_> {
    fn number(&self, key: &str) -> usize {
        let found = self.spec.steps.iter().position(|step| step.key == key);
        found.expect("a valid graph names only its own steps")
    }

    fn status(&self, key: &str) -> StepStatus {
        self.end.steps[self.number(key)].status
    }

    fn step(&self, no: usize) -> Result<(), &'static str> {
        let step = &self.spec.steps[no];
        match self.end.steps[no].status {
            StepStatus::Pending | StepStatus::Enqueued | StepStatus::Waiting => {
                Err("the run ended and it did not (rule 9)")
            }
            StepStatus::SkippedByBranch => check(
                self.not_chosen(step) || self.has_no_failure(step) || self.none_taken(step),
                "nothing put it on a path that was not taken (rule 12)",
            ),
            StepStatus::Skipped => check(
                self.swept(no) || (self.blocked(step) && self.before_its_arm(no)),
                "nothing skipped it (rules 12, 13, 14, 20)",
            ),
            StepStatus::Cancelled => check(
                self.end.drain.is_some(),
                "nobody cancelled the run (rule 18)",
            ),
            StepStatus::Succeeded | StepStatus::Failed | StepStatus::EndedRun => self.started(no),
        }
    }

    /// Whether a step that ran was ready: its arms were chosen, its edges satisfied.
    fn started(&self, no: usize) -> Result<(), &'static str> {
        let step = &self.spec.steps[no];
        let resolved = matches!(step.kind, StepKind::Barrier | StepKind::Merge { .. });
        let status = self.end.steps[no].status;
        check(
            !self.not_chosen(step),
            "it ran, and its arm was not chosen (rule 12)",
        )?;
        check(
            !self.has_no_failure(step) && !self.none_taken(step) && !self.blocked(step),
            "it ran, and its upstreams did not let it (rules 12, 20)",
        )?;
        check(
            !resolved || status == StepStatus::Succeeded,
            "it is resolved by the coordinator and cannot fail (§8)",
        )
    }

    /// Returns the strategy of a step: its own, else the pipeline's (rule 13); an inherited Ignore acts on a
    /// deciding step as Continue (§8).
    fn strategy(&self, step: &StepSpec) -> Strategy {
        let strategy = match (step.optional, step.strategy) {
            (true, _) => Strategy::Ignore,
            (false, own) => own.unwrap_or(self.spec.strategy),
        };
        let decides = matches!(step.kind, StepKind::Branch { .. });
        if decides && strategy == Strategy::Ignore {
            return Strategy::Continue;
        }
        strategy
    }

    /// Whether an arm around the step was not chosen.
    fn not_chosen(&self, step: &StepSpec) -> bool {
        let Some(arm) = &step.arm else {
            return false;
        };
        let branch = self.number(&arm.branch);
        let decided = &self.end.steps[branch];
        match decided.status {
            StepStatus::Succeeded if decided.chosen.as_ref() != Some(&arm.arm) => true,
            StepStatus::SkippedByBranch => true,
            _ => self.not_chosen(&self.spec.steps[branch]),
        }
    }

    /// Whether the step comes after a failure that did not happen.
    fn has_no_failure(&self, step: &StepSpec) -> bool {
        let mut failures = step
            .after
            .iter()
            .filter(|edge| edge.takes == Takes::Failure);
        failures.any(|edge| self.status(&edge.step) != StepStatus::Failed)
    }

    /// Whether the step joins by `after_any`, and all its upstreams are `skipped_by_branch`.
    fn none_taken(&self, step: &StepSpec) -> bool {
        let mut any = step.after.iter().filter(|edge| !self.gate(edge, step));
        step.join == Join::Any
            && any.all(|edge| self.status(&edge.step) == StepStatus::SkippedByBranch)
    }

    /// Whether an edge of the step is broken, or none of its `after_any` upstreams succeeded.
    fn blocked(&self, step: &StepSpec) -> bool {
        let can_break = |edge: &Edge| !matches!(edge.takes, Takes::Failure | Takes::Ended);
        let broken = |edge: &&Edge| can_break(edge) && self.breaks(&edge.step);
        match step.join {
            Join::All => step.after.iter().any(|edge| broken(&edge)),
            Join::Any => {
                let (gates, any): (Vec<&Edge>, Vec<&Edge>) =
                    step.after.iter().partition(|edge| self.gate(edge, step));
                let succeeded = |edge: &&Edge| self.status(&edge.step) == StepStatus::Succeeded;
                let is_lost = !self.none_taken(step) && !any.iter().any(succeeded);
                gates.iter().any(broken) || is_lost
            }
        }
    }

    fn breaks(&self, upstream: &str) -> bool {
        let step = &self.spec.steps[self.number(upstream)];
        match self.status(upstream) {
            StepStatus::Skipped | StepStatus::Cancelled => true,
            StepStatus::Failed => self.strategy(step) != Strategy::Ignore,
            _ => false,
        }
    }

    fn gate(&self, edge: &Edge, step: &StepSpec) -> bool {
        let from = &self.spec.steps[self.number(&edge.step)];
        let around = |step: &StepSpec| step.arm.as_ref().map(|arm| arm.branch.clone());
        let mut branch = around(step);
        while let Some(key) = branch {
            if key == edge.step && edge.takes == Takes::Order {
                return true;
            }
            branch = around(&self.spec.steps[self.number(&key)]);
        }
        matches!(from.kind, StepKind::Barrier)
    }

    /// Rules 13 and 14: whether a step that did not need this one failed under Halt, or ended the run early.
    fn swept(&self, no: usize) -> bool {
        let step = &self.spec.steps[no];
        (0..self.spec.steps.len()).any(|by| {
            let sweeps = match self.end.steps[by].status {
                StepStatus::EndedRun => true,
                StepStatus::Failed => {
                    self.strategy(&self.spec.steps[by]) == Strategy::Halt
                        && !self.exempt(step)
                        && !self.is_awaited(no)
                }
                _ => false,
            };
            sweeps && by != no && !self.needs(by).contains(&no)
        })
    }

    /// Rule 12: whether the step is `after_failure`, or depends on such steps alone.
    fn exempt(&self, step: &StepSpec) -> bool {
        let after = &step.after;
        let exempt = |edge: &Edge| self.exempt(&self.spec.steps[self.number(&edge.step)]);
        after.iter().any(|edge| edge.takes == Takes::Failure)
            || (!after.is_empty() && after.iter().all(exempt))
    }

    /// Whether the step is a barrier between a step and its error path, which waits for the barrier.
    fn is_awaited(&self, no: usize) -> bool {
        let spans = |(path, step): (usize, &StepSpec)| {
            let mut failures = step
                .after
                .iter()
                .filter(|edge| edge.takes == Takes::Failure);
            path > no && failures.any(|edge| self.number(&edge.step) < no)
        };
        let is_barrier = matches!(self.spec.steps[no].kind, StepKind::Barrier);
        is_barrier && self.spec.steps.iter().enumerate().any(spans)
    }

    /// Whether the step's arm was chosen, or the step was skipped before its branch was decided.
    fn before_its_arm(&self, no: usize) -> bool {
        !self.not_chosen(&self.spec.steps[no]) || self.needs(no).iter().any(|up| self.swept(*up))
    }

    /// Returns the steps that had ended when this one began. A skipped step may have been skipped while its
    /// upstreams went on (not a barrier that an error path waits for), and a step of an arm that was not chosen
    /// needed its branch only.
    fn needs(&self, no: usize) -> BTreeSet<usize> {
        let mut needed = BTreeSet::new();
        let mut open = vec![no];
        while let Some(at) = open.pop() {
            let step = &self.spec.steps[at];
            let swept = at != no
                && self.end.steps[at].status == StepStatus::Skipped
                && !self.is_awaited(at);
            let upstreams: Vec<&str> = match &step.arm {
                _ if swept => Vec::new(),
                Some(arm) if self.not_chosen(step) && at != no => vec![&arm.branch],
                _ => {
                    let sure = |edge: &&Edge| step.join == Join::All || self.gate(edge, step);
                    let edges = step.after.iter().filter(sure);
                    edges.map(|edge| &*edge.step).collect()
                }
            };
            let numbers = upstreams.into_iter().map(|key| self.number(key));
            open.extend(numbers.filter(|number| needed.insert(*number)));
        }
        needed
    }

    /// Rule 13: checks that a failure under Halt set `halt_triggered`, and nothing else did.
    fn halt_flag(&self) -> Result<(), String> {
        let halting = |(step, end): (&StepSpec, &StepEnd)| {
            end.status == StepStatus::Failed && self.strategy(step) == Strategy::Halt
        };
        let halted = self.spec.steps.iter().zip(&self.end.steps).any(halting);
        // A failure while the run is drained halts nothing.
        let right = self.end.halt_triggered == halted || (self.end.drain.is_some() && halted);
        let flag = self.end.halt_triggered;
        check(right, "").map_err(|_| format!("halt_triggered is {flag} (rule 13)"))
    }

    /// Rule 9: checks the final status.
    fn run(&self) -> Result<(), String> {
        let counted =
            |(step, end): (&StepSpec, &StepEnd)| end.status == StepStatus::Failed && !step.optional;
        let failed = self.spec.steps.iter().zip(&self.end.steps).any(counted);
        let right = match (self.end.drain, failed, self.end.halt_triggered) {
            (Some(Drain::Deadline), _, _) => RunStatus::Failed,
            (Some(Drain::Cancel), _, _) => RunStatus::Cancelled,
            (None, false, _) => RunStatus::Succeeded,
            (None, true, true) => RunStatus::Halted,
            (None, true, false) => RunStatus::Failed,
        };
        let found = self.end.status;
        check(found == right, "").map_err(|_| format!("the run is {found}, not {right} (rule 9)"))
    }
}

fn check(right: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if right { Ok(()) } else { Err(otherwise) }
}
