//! Cancelling and deadlines (rule 18).

use super::event::{Effect, Refusal, RunId, Why};
use super::status::{RunStatus, StepStatus};
use super::world::{Drain, Model};

impl Model {
    /// Rule 18: cancels a run. Cancelling twice is fine; cancelling an ended run is an error that names its status.
    ///
    /// Reading: "twice" includes a second cancel after the first has completed: a cancelled run stays cancelled,
    /// without an error. A cancel has no effect on a run that its deadline drains.
    pub(super) fn cancel(&mut self, run: RunId, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        match self.status(run) {
            RunStatus::Pending => {
                self.cancel_steps(run, &Why::Cancelled, out)?;
                self.run_to(run, RunStatus::Cancelled, out)?;
                self.run_ended(run, out)
            }
            RunStatus::Cancelling | RunStatus::Cancelled => Ok(()),
            _ => self.drain(run, Drain::Cancel, &Why::Cancelled, out),
        }
    }

    /// Rule 18: drains a run whose deadline has passed, as a cancel does. A deadline counts from the start of each
    /// round.
    ///
    /// Reading: a deadline passes when the coordinator processes it under the run's lock, as with signal and timeout
    /// in rule 23: an end of the run, or a cancel, before that moment comes first.
    pub(super) fn deadline(&mut self, run: RunId, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        if self.deadline_of(run).is_none_or(|at| at > self.now) {
            return Err(Refusal::NotDue { run, step: None });
        }
        match self.status(run) {
            RunStatus::Cancelling => Ok(()),
            _ => self.drain(run, Drain::Deadline, &Why::DeadlineExceeded, out),
        }
    }

    pub(super) fn deadline_of(&self, run: RunId) -> Option<u64> {
        let run = &self.runs[run.0];
        Some(run.started_at? + run.graph.spec.deadline_ms?)
    }

    /// Rule 18: drains a run. Pending and waiting steps become cancelled at once, untaken work is withdrawn,
    /// running work is asked to stop; the last one ends the run.
    fn drain(
        &mut self,
        run: RunId,
        drain: Drain,
        why: &Why,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        self.run_to(run, RunStatus::Cancelling, out)?;
        self.runs[run.0].drain = Some(drain);
        self.cancel_steps(run, why, out)?;
        self.see_whether_over(run, out)
    }

    fn cancel_steps(
        &mut self,
        run: RunId,
        why: &Why,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let graph = self.runs[run.0].graph.clone();
        for (no, node) in graph.nodes.iter().enumerate() {
            let step = self.runs[run.0].steps[no].clone();
            let key = node.key.clone();
            match step.status {
                StepStatus::Pending | StepStatus::Waiting => self.let_child_go(run, no, out),
                StepStatus::Enqueued if !step.taken => {
                    out.push(Effect::Withdrawn { run, step: key });
                }
                StepStatus::Enqueued => {
                    let token = step.token;
                    out.push(Effect::AskedToStop {
                        run,
                        step: key,
                        token,
                    });
                    continue;
                }
                _ => continue,
            }
            self.step_to(run, no, StepStatus::Cancelled, Some(why.clone()), out)?;
        }
        Ok(())
    }
}
