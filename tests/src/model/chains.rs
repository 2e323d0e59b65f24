//! The end of a run: its callbacks (16), and the runs that are chained to it (17).

use pipeline::graph::spec::CallbackOn;

use super::event::{Effect, Refusal, RunId, Why};
use super::status::{RunStatus, StepStatus};
use super::world::Model;

impl Model {
    /// Applies the end of a run: kept signals, callbacks and chained runs, in one transaction.
    pub(super) fn run_ended(&mut self, run: RunId, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        self.fire_callbacks(run, out);
        // Rule 23: a signal is kept until the run ends.
        self.runs[run.0].kept.clear();
        self.settle_chains(out)
    }

    /// Rule 16: fires `on_complete` for every end, `on_success` for succeeded, `on_failure` for failed and
    /// halted. Once per round: a round has one end, because only a reopening leaves it (§6).
    fn fire_callbacks(&self, run: RunId, out: &mut Vec<Effect>) {
        let here = &self.runs[run.0];
        let fires = |on| match on {
            CallbackOn::Complete => true,
            CallbackOn::Success => here.status == RunStatus::Succeeded,
            CallbackOn::Failure => matches!(here.status, RunStatus::Failed | RunStatus::Halted),
        };
        for on in here.graph.spec.callbacks.iter().map(|callback| callback.on) {
            if fires(on) {
                out.push(Effect::Callback {
                    run,
                    round: here.round,
                    on,
                });
            }
        }
    }

    /// Rule 17: a chained run starts when all its upstreams succeeded, and is skipped as soon as one
    /// of them ended otherwise. A skipped run is itself an upstream that ended otherwise, for the runs after it.
    pub(super) fn settle_chains(&mut self, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        for id in 0..self.runs.len() {
            let run = RunId(id);
            if self.status(run) != RunStatus::Pending {
                continue;
            }
            let upstreams: Vec<RunStatus> = self.runs[id]
                .after
                .iter()
                .map(|up| self.status(*up))
                .collect();
            if upstreams.iter().any(|status| status.ended_otherwise()) {
                return self.skip_run(run, out);
            }
            if upstreams
                .iter()
                .all(|status| *status == RunStatus::Succeeded)
            {
                self.run_to(run, RunStatus::Running, out)?;
                self.begin(run, out)?;
                return self.settle_chains(out);
            }
        }
        Ok(())
    }

    fn skip_run(&mut self, run: RunId, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        for no in self.runs[run.0].steps_that_are(StepStatus::Pending) {
            self.step_to(run, no, StepStatus::Skipped, Some(Why::RunSkipped), out)?;
        }
        self.run_to(run, RunStatus::Skipped, out)?;
        self.run_ended(run, out)
    }
}
