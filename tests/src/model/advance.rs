//! The advance of a run: edges, decisions, Halt, `cx.end_run()`, and the end of the run (rules 9, 12-14, 20).

use pipeline::graph::spec::{Join, StepKind, Strategy, Takes};

use super::event::{Effect, Refusal, RunId, Why};
use super::index::{Key, Link, Node};
use super::status::{RunStatus, StepStatus};
use super::world::{Drain, Model, Run, Value};

impl Model {
    /// Applies the end of a step to its run.
    pub(super) fn ended(
        &mut self,
        run: RunId,
        no: usize,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let here = &self.runs[run.0];
        let node = &here.graph.nodes[no];
        let (status, key, strategy) = (here.steps[no].status, node.key.clone(), node.strategy);
        if here.status == RunStatus::Running {
            match status {
                StepStatus::Failed if strategy == Strategy::Halt => self.halt(run, key, out)?,
                StepStatus::EndedRun => self.end_early(run, key, out)?,
                _ => {}
            }
        }
        self.advance(run, out)
    }

    /// Rule 13: Halt sets `halt_triggered` and skips every pending and waiting step; enqueued work
    /// runs on. Rule 12: `after_failure` steps, and steps that depend on them alone, are exempt. Reading: so is a barrier
    /// that an error path behind it waits for.
    fn halt(&mut self, run: RunId, by: Key, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        self.runs[run.0].halt_triggered = true;
        let is_skipped = |node: &Node| !node.exempt && !node.is_awaited;
        self.skip(run, is_skipped, &Why::HaltedBy(by), out)
    }

    /// Rule 14: `cx.end_run()` skips pending and waiting steps.
    ///
    /// Reading: all of them. The exemption of rule 12 is from "Halt's skipping", the strategy's;
    /// and `cx.end_run()` does not set `halt_triggered`, so a failure beside it makes the run `failed`.
    fn end_early(&mut self, run: RunId, by: Key, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        self.skip(run, |_| true, &Why::EndedBy(by), out)
    }

    fn skip(
        &mut self,
        run: RunId,
        which: impl Fn(&Node) -> bool,
        why: &Why,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let graph = self.runs[run.0].graph.clone();
        for no in 0..graph.nodes.len() {
            if which(&graph.nodes[no]) && self.has_not_started(run, no) {
                self.let_child_go(run, no, out);
                self.step_to(run, no, StepStatus::Skipped, Some(why.clone()), out)?;
            }
        }
        Ok(())
    }

    pub(super) fn has_not_started(&self, run: RunId, no: usize) -> bool {
        matches!(
            self.runs[run.0].steps[no].status,
            StepStatus::Pending | StepStatus::Waiting
        )
    }

    /// Decides pending steps until no step can be decided, then ends the run if it is over.
    pub(super) fn advance(&mut self, run: RunId, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        while self.runs[run.0].status == RunStatus::Running {
            let here = &self.runs[run.0];
            let pending = here.steps_that_are(StepStatus::Pending).into_iter();
            let mut decided = pending.filter_map(|no| Some((no, decide(here, no)?)));
            let Some((no, decision)) = decided.next() else {
                break;
            };
            self.carry_out(run, no, decision, out)?;
        }
        self.see_whether_over(run, out)
    }

    fn carry_out(
        &mut self,
        run: RunId,
        no: usize,
        decision: Decision,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        if self.runs[run.0].graph.join(no) == Join::Any {
            self.runs[run.0].steps[no].first = self.first_upstream(run, no);
        }
        match decision {
            Decision::SkippedByBranch(why) => {
                self.step_to(run, no, StepStatus::SkippedByBranch, Some(why), out)
            }
            Decision::Skipped(why) => self.step_to(run, no, StepStatus::Skipped, Some(why), out),
            Decision::Resolved => {
                let value = self.merged(run, no);
                self.runs[run.0].steps[no].value = value;
                self.step_to(run, no, StepStatus::Succeeded, None, out)
            }
            Decision::Enqueued => self.step_to(run, no, StepStatus::Enqueued, None, out),
            Decision::Waiting => self.wait(run, no, out),
        }
    }

    /// Rule 9: a run is over when no step is pending, enqueued or waiting.
    pub(super) fn see_whether_over(
        &mut self,
        run: RunId,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let here = &self.runs[run.0];
        let active = matches!(here.status, RunStatus::Running | RunStatus::Cancelling);
        if !active || here.steps.iter().any(|step| !step.status.ended()) {
            return Ok(());
        }
        self.run_to(run, final_status(here), out)?;
        self.run_ended(run, out)
    }
}

/// Rule 9: returns the final status of a run, the first that applies.
///
/// Reading: "deadline passed" and "cancelling" are why the run was drained, and the first of them
/// counts: a deadline that passes while a cancel drains the run does not make it `failed`.
fn final_status(run: &Run) -> RunStatus {
    let counts = |no: &usize| run.graph.counts(*no);
    let failed = run.steps_that_are(StepStatus::Failed);
    match run.drain {
        Some(Drain::Deadline) => RunStatus::Failed,
        Some(Drain::Cancel) => RunStatus::Cancelled,
        None if !failed.iter().any(counts) => RunStatus::Succeeded,
        None if run.halt_triggered => RunStatus::Halted,
        None => RunStatus::Failed,
    }
}

enum Decision {
    SkippedByBranch(Why),
    Skipped(Why),
    Resolved,
    Enqueued,
    Waiting,
}

/// Rule 12: decides a pending step, or returns `None` if it has to wait.
fn decide(run: &Run, no: usize) -> Option<Decision> {
    let node = &run.graph.nodes[no];
    if let Some(branch) = arm_not_chosen(run, node) {
        return Some(Decision::SkippedByBranch(Why::NotChosen(branch)));
    }
    if run.graph.join(no) == Join::Any {
        return first_that_succeeded(run, no);
    }
    let edges: Vec<(&Link, Edge)> = node
        .links
        .iter()
        .map(|link| (link, edge(run, link)))
        .collect();
    let key = |link: &Link| run.graph.nodes[link.from].key.clone();
    let find = |state| {
        edges
            .iter()
            .find(|(_, edge)| *edge == state)
            .map(|(link, _)| key(link))
    };
    if find(Edge::Open).is_some() {
        return None;
    }
    // Reading: a failure that did not happen comes before a broken edge of another upstream: "if that step ended
    // otherwise, it is `skipped_by_branch`" has no condition.
    if let Some(upstream) = find(Edge::NotTaken) {
        return Some(Decision::SkippedByBranch(Why::NoFailure(upstream)));
    }
    if let Some(upstream) = find(Edge::Broken) {
        return Some(Decision::Skipped(Why::Broken(upstream)));
    }
    Some(ready(run.graph.kind(no)))
}

/// Rule 12: a ready barrier is resolved; any other ready step is enqueued, or waits.
fn ready(kind: &StepKind) -> Decision {
    match kind {
        StepKind::Barrier | StepKind::Merge { .. } => Decision::Resolved,
        StepKind::Timer { .. } | StepKind::Signal { .. } | StepKind::Child { .. } => {
            Decision::Waiting
        }
        _ => Decision::Enqueued,
    }
}

/// Rule 20: ready at the first upstream that succeeded; skipped when none can any more.
///
/// Reading: "succeeded" is that status alone, not all that satisfies an edge: there must be a value.
///
/// Reading: if all upstreams are `skipped_by_branch`, so is the step: nothing went wrong.
fn first_that_succeeded(run: &Run, no: usize) -> Option<Decision> {
    let (gates, upstreams): (Vec<&Link>, Vec<&Link>) =
        run.graph.nodes[no].links.iter().partition(|link| link.gate);
    for gate in gates {
        match edge(run, gate) {
            Edge::Open => return None,
            Edge::Broken => {
                let key = run.graph.nodes[gate.from].key.clone();
                return Some(Decision::Skipped(Why::Broken(key)));
            }
            Edge::Satisfied | Edge::NotTaken => {}
        }
    }
    let status = |link: &&Link| run.steps[link.from].status;
    if upstreams
        .iter()
        .any(|link| status(link) == StepStatus::Succeeded)
    {
        return Some(ready(run.graph.kind(no)));
    }
    let all_are = |is: fn(StepStatus) -> bool| upstreams.iter().all(|link| is(status(link)));
    if all_are(|status| status == StepStatus::SkippedByBranch) {
        return Some(Decision::SkippedByBranch(Why::NoneTaken));
    }
    let none_can = all_are(StepStatus::ended);
    none_can.then_some(Decision::Skipped(Why::NoneSucceeded))
}

/// Rule 12: returns the branch, around the step, that chose another arm.
///
/// Reading: a branch that was itself `skipped_by_branch` chose no arm; its edges are satisfied, and
/// without this all its arms would run. One that failed or was skipped breaks its edges instead.
fn arm_not_chosen(run: &Run, node: &Node) -> Option<Key> {
    let not_chosen = |(branch, arm): &&(usize, String)| {
        let step = &run.steps[*branch];
        match step.status {
            StepStatus::Succeeded => step.value != Some(Value::Arm(arm.clone())),
            StepStatus::SkippedByBranch => true,
            _ => false,
        }
    };
    let (branch, _) = node.arms.iter().find(not_chosen)?;
    Some(run.graph.nodes[*branch].key.clone())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// The upstream step has not ended.
    Open,
    Satisfied,
    Broken,
    /// The edge waits for the failure of the upstream step, which did not fail.
    NotTaken,
}

/// Rule 12: returns whether the upstream step has satisfied or broken an edge.
fn edge(run: &Run, link: &Link) -> Edge {
    let status = run.steps[link.from].status;
    if !status.ended() {
        return Edge::Open;
    }
    if link.takes == Takes::Ended {
        return Edge::Satisfied;
    }
    if link.takes == Takes::Failure {
        return match status {
            StepStatus::Failed => Edge::Satisfied,
            _ => Edge::NotTaken,
        };
    }
    match status {
        StepStatus::Succeeded | StepStatus::EndedRun | StepStatus::SkippedByBranch => {
            Edge::Satisfied
        }
        StepStatus::Failed => match run.graph.nodes[link.from].strategy {
            Strategy::Ignore => Edge::Satisfied,
            Strategy::Halt | Strategy::Continue => Edge::Broken,
        },
        _ => Edge::Broken,
    }
}
