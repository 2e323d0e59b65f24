//! The reopening of runs (rule 19).

use std::collections::BTreeSet;

use pipeline::graph::spec::{Strategy, Takes};

use super::event::{Effect, Refusal, RunId, Why};
use super::index::Key;
use super::status::{RunStatus, StepStatus};
use super::world::Model;

impl Model {
    /// Rule 19: a run that ended failed, halted or cancelled begins its next round.
    ///
    /// Reading: a run without a step to run again ends at once, by rule 9: a cancelled run whose last step
    /// succeeded becomes succeeded. If that end could only be `failed`, because of ignored failures that
    /// are not named, the reopening is refused.
    pub(super) fn reopen(
        &mut self,
        run: RunId,
        named: &[Key],
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        self.may_reopen(run, named)?;
        let upstreams = &self.runs[run.0].after;
        let all_succeeded = upstreams
            .iter()
            .all(|up| self.status(*up) == RunStatus::Succeeded);
        let to = if all_succeeded {
            RunStatus::Running
        } else {
            RunStatus::Pending
        };
        self.open_again(run, to, named, out);
        self.reopen_skipped(out);
        if to == RunStatus::Running {
            self.begin(run, out)?;
        }
        // Reading: one that is pending again while an upstream stands failed is skipped at once, by
        // rule 17.
        self.settle_chains(out)
    }

    /// Checks the status of the run, and that only ignored failures are named. A skipped run is reopened with
    /// the run because of which it was skipped, not by itself.
    fn may_reopen(&self, run: RunId, named: &[Key]) -> Result<(), Refusal> {
        let here = &self.runs[run.0];
        if !here.status.may_reopen_as(RunStatus::Running) {
            return Err(Refusal::Run {
                run,
                from: here.status,
                to: RunStatus::Running,
            });
        }
        for key in named {
            let no = here.graph.number(key);
            let no = no.ok_or_else(|| Refusal::UnknownStep(run, key.clone()))?;
            if !self.failure_was_ignored(run, no) {
                return Err(Refusal::NotIgnored {
                    run,
                    step: key.clone(),
                    status: here.steps[no].status,
                });
            }
        }
        let failed = here.steps_that_are(StepStatus::Failed).into_iter();
        let failed = failed.filter(|no| here.graph.counts(*no));
        let failed: Vec<Key> = failed.map(|no| here.graph.nodes[no].key.clone()).collect();
        if self.to_reset(run, named).is_empty() && !failed.is_empty() {
            return Err(Refusal::OnlyIgnored { run, steps: failed });
        }
        Ok(())
    }

    /// Whether a step failed under Ignore: such a step is reset only if it is named.
    pub fn is_ignored(&self, run: RunId, step: &str) -> bool {
        let no = self.runs[run.0].graph.number(step);
        no.is_some_and(|no| self.failure_was_ignored(run, no))
    }

    fn failure_was_ignored(&self, run: RunId, no: usize) -> bool {
        let here = &self.runs[run.0];
        here.steps[no].status == StepStatus::Failed
            && here.graph.nodes[no].strategy == Strategy::Ignore
    }

    /// Returns the steps that a reopening resets to pending: failed steps (ignored ones only when named), skipped
    /// and cancelled ones, and the error paths of all these.
    ///
    /// Reading: an error path is decided again together with the step that it watches, and so is
    /// everything after it, whatever its status.
    ///
    /// Reading: what `cx.end_run()` left out stays skipped, also where its upstream is reset, unless the step
    /// that called `cx.end_run()` is reset itself.
    fn to_reset(&self, run: RunId, named: &[Key]) -> BTreeSet<usize> {
        let here = &self.runs[run.0];
        let nodes = &here.graph.nodes;
        let mut reset = BTreeSet::new();
        // Error paths and everything after them.
        let mut paths = BTreeSet::new();
        loop {
            let count = (reset.len(), paths.len());
            for (no, node) in nodes.iter().enumerate() {
                let step = &here.steps[no];
                let is_left_out = match &step.why {
                    Some(Why::EndedBy(by)) => {
                        here.graph.number(by).is_none_or(|by| !reset.contains(&by))
                    }
                    _ => false,
                };
                if is_left_out {
                    continue;
                }
                let is_in_path = node.links.iter().any(|link| {
                    link.takes == Takes::Failure && reset.contains(&link.from)
                        || paths.contains(&link.from)
                });
                let is_ignored = self.failure_was_ignored(run, no) && !named.contains(&node.key);
                if is_in_path {
                    paths.insert(no);
                }
                if is_in_path || step.status.is_reset_by_reopening() && !is_ignored {
                    reset.insert(no);
                }
            }
            if count == (reset.len(), paths.len()) {
                return reset;
            }
        }
    }

    /// Begins the next round: clears flags and resets steps. A reset step loses its output; others keep theirs.
    fn open_again(&mut self, run: RunId, to: RunStatus, named: &[Key], out: &mut Vec<Effect>) {
        for no in self.to_reset(run, named) {
            let key = self.runs[run.0].graph.nodes[no].key.clone();
            let step = &mut self.runs[run.0].steps[no];
            step.status = StepStatus::Pending;
            step.ended_by = None;
            step.value = None;
            step.first = None;
            step.why = None;
            out.push(Effect::Reopened { run, step: key });
        }
        let here = &mut self.runs[run.0];
        here.status = to;
        here.round += 1;
        here.halt_triggered = false;
        here.drain = None;
        here.started_at = None;
        out.push(Effect::Run {
            run,
            round: here.round,
            status: to,
        });
    }

    /// Makes chained runs pending that were skipped because of the reopened run.
    ///
    /// Reading: a skipped run is pending again when none of its upstreams stands ended otherwise any
    /// more. With two failed upstreams it needs both reopened, in any order, and is never skipped
    /// twice for one reopening.
    fn reopen_skipped(&mut self, out: &mut Vec<Effect>) {
        let blocked = |model: &Self, id: usize| {
            let after = &model.runs[id].after;
            after.iter().any(|up| model.status(*up).ended_otherwise())
        };
        // Upstreams have lower numbers: one pass goes all the way down.
        for id in 0..self.runs.len() {
            if self.runs[id].status == RunStatus::Skipped && !blocked(self, id) {
                self.open_again(RunId(id), RunStatus::Pending, &[], out);
            }
        }
    }
}
