//! Reopening (rule 19).

use pipeline::graph::spec::Strategy;

use super::event::{Effect, Refusal, RunId};
use super::index::Key;
use super::status::{RunStatus, StepStatus};
use super::world::Model;

impl Model {
    /// Rule 19: a run that ended failed, halted or cancelled begins its next round.
    ///
    /// Reading: one that has nothing to do again ends again at once, by rule 9: a cancelled run whose
    /// last step succeeded becomes succeeded; one that failed by an ignored step alone, unnamed, fails.
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

    /// Only these statuses, and only ignored failures may be named. A skipped run is reopened with
    /// what it was skipped for, not by itself.
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
        Ok(())
    }

    /// Whether a step failed under Ignore: only when it is named is it reopened.
    pub fn is_ignored(&self, run: RunId, step: &str) -> bool {
        let no = self.runs[run.0].graph.number(step);
        no.is_some_and(|no| self.failure_was_ignored(run, no))
    }

    fn failure_was_ignored(&self, run: RunId, no: usize) -> bool {
        let here = &self.runs[run.0];
        here.steps[no].status == StepStatus::Failed
            && here.graph.nodes[no].strategy == Strategy::Ignore
    }

    /// Round + 1, flags cleared; failed steps (ignored ones only when named), skipped and cancelled
    /// ones are pending again. Whatever has an output keeps it; `halted` and `skipped_by_branch`
    /// stay too (§6 has no way back for them).
    fn open_again(&mut self, run: RunId, to: RunStatus, named: &[Key], out: &mut Vec<Effect>) {
        let graph = self.runs[run.0].graph.clone();
        for (no, node) in graph.nodes.iter().enumerate() {
            let left = self.failure_was_ignored(run, no) && !named.contains(&node.key);
            let step = &mut self.runs[run.0].steps[no];
            if step.status.may_reopen_as(StepStatus::Pending) && !left {
                step.status = StepStatus::Pending;
                step.ended_by = None;
                step.why = None;
                let step = node.key.clone();
                out.push(Effect::Reopened { run, step });
            }
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

    /// Chained runs that were skipped because of it become pending again.
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
