//! The application of events: each is one transaction (rule 4), which happens as a whole or is refused. Also
//! the start of a run (7), the claim of a job, and the fenced end of an attempt (3, 15).

use pipeline::graph::spec::{Join, StepKind};

use super::event::{Effect, Event, GraphId, Outcome, Refusal, RunId, Token, Why};
use super::status::{RunStatus, StepStatus};
use super::world::{Model, Run, Value};

impl Model {
    /// Applies an event, and returns its effects.
    ///
    /// Rule 4 lets one advance take many ends; the model takes them one by one: a group of ends is
    /// some order of them.
    pub fn apply(&mut self, event: &Event) -> Result<Vec<Effect>, Refusal> {
        let mut next = self.clone();
        let mut out = Vec::new();
        next.happen(event, &mut out)?;
        *self = next;
        Ok(out)
    }

    /// Applies the ends of one advance, in this order.
    ///
    /// Reading: the ends of one advance have no order; so an `after_any` step that the advance released takes
    /// the first upstream, in the order of its edges, that has succeeded when the advance is over.
    pub fn apply_together(&mut self, events: &[Event]) -> Result<Vec<Vec<Effect>>, Refusal> {
        let effects = events.iter().map(|event| self.apply(event));
        let effects: Vec<Vec<Effect>> = effects.collect::<Result<_, _>>()?;
        for effect in effects.iter().flatten() {
            if let Effect::Released { run, step } = effect {
                let no = self.find(*run, step)?;
                if self.runs[run.0].graph.join(no) == Join::Any {
                    self.runs[run.0].steps[no].first = self.first_upstream(*run, no);
                }
            }
        }
        Ok(effects)
    }

    fn happen(&mut self, event: &Event, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        match event {
            Event::Start { graph } => self.create(*graph, &[], out),
            Event::Then { graph, after } => self.create(*graph, after, out),
            Event::Taken { run, step } => {
                let no = self.find(*run, step)?;
                self.take_job(*run, no, out)
            }
            Event::Ended {
                run,
                step,
                token,
                outcome,
            } => {
                let no = self.find(*run, step)?;
                self.end(*run, no, *token, outcome, out)
            }
            Event::ChildEnded { run, step, status } => {
                let no = self.find(*run, step)?;
                self.child_ended(*run, no, *status, out)
            }
            Event::Due { run, step } => {
                let no = self.find(*run, step)?;
                self.wait_is_due(*run, no, out)
            }
            Event::Signal {
                to,
                name,
                keep,
                payload,
            } => self.signal(*to, name, *keep, *payload, out),
            Event::Cancel { run } => self.cancel(self.known(*run)?, out),
            Event::DeadlinePassed { run } => self.deadline(self.known(*run)?, out),
            Event::Reopen { run, named } => self.reopen(self.known(*run)?, named, out),
            Event::Time { ms } => {
                self.now += ms;
                Ok(())
            }
        }
    }

    fn known(&self, run: RunId) -> Result<RunId, Refusal> {
        if run.0 < self.runs.len() {
            Ok(run)
        } else {
            Err(Refusal::UnknownRun(run))
        }
    }

    fn find(&self, run: RunId, step: &str) -> Result<usize, Refusal> {
        let graph = &self.runs[self.known(run)?.0].graph;
        graph
            .number(step)
            .ok_or_else(|| Refusal::UnknownStep(run, step.into()))
    }

    /// Rules 7 and 17: creates a run with its steps, and starts it unless it waits in a chain. Upstream runs
    /// that have ended act at once.
    fn create(
        &mut self,
        graph: GraphId,
        after: &[RunId],
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let index = self
            .graphs
            .get(graph.0)
            .ok_or(Refusal::UnknownGraph(graph))?;
        for run in after {
            self.known(*run)?;
        }
        self.runs.push(Run::new(index.clone(), after.to_vec()));
        self.settle_chains(out)
    }

    /// Begins a round of a run: its first steps are decided like any others.
    pub(super) fn begin(&mut self, run: RunId, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        self.runs[run.0].started_at = Some(self.now);
        self.advance(run, out)
    }

    /// Rule 3: claims the job of a step with a new token. A job that is already claimed is taken over: its lease
    /// expired. Rule 18: in a run that is being cancelled no attempt follows another.
    fn take_job(&mut self, run: RunId, no: usize, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        let here = &mut self.runs[run.0];
        let key = here.graph.nodes[no].key.clone();
        let step = &mut here.steps[no];
        if step.status != StepStatus::Enqueued || here.status != RunStatus::Running {
            return Err(Refusal::NothingToTake {
                run,
                step: key,
                status: step.status,
            });
        }
        step.token.0 += 1;
        step.taken = true;
        out.push(Effect::Taken {
            run,
            step: key,
            token: step.token,
        });
        Ok(())
    }

    /// Rule 3: ends an attempt, fenced by its token. An end with the token of an older attempt, or of a job that
    /// was withdrawn, changes nothing, and the worker is told so; a repeated end changes nothing either.
    fn end(
        &mut self,
        run: RunId,
        no: usize,
        token: Token,
        outcome: &Outcome,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let here = &mut self.runs[run.0];
        let key = here.graph.nodes[no].key.clone();
        let step = &mut here.steps[no];
        if step.status.ended() && step.ended_by == Some(token) {
            out.push(Effect::AlreadyEnded { run, step: key });
            return Ok(());
        }
        if step.status != StepStatus::Enqueued || !step.taken || step.token != token {
            out.push(Effect::Stale {
                run,
                step: key,
                token,
            });
            return Ok(());
        }
        step.taken = false;
        let draining = here.status == RunStatus::Cancelling;
        match verdict(here.graph.kind(no), outcome, draining) {
            Verdict::Again => out.push(Effect::Again { run, step: key }),
            Verdict::Wait => self.wait(run, no, out)?,
            Verdict::End(status, value, why) => {
                step.ended_by = Some(token);
                step.value = value;
                self.step_to(run, no, status, why, out)?;
                self.ended(run, no, out)?;
            }
        }
        Ok(())
    }
}

enum Verdict {
    /// The step stays enqueued (rule 15).
    Again,
    /// The step waits for the child that its job returned (rule 22).
    Wait,
    End(StepStatus, Option<Value>, Option<Why>),
}

/// Returns how the outcome of an attempt ends its step: rules 14, 15, 18, 22 and §8.
fn verdict(kind: &StepKind, outcome: &Outcome, draining: bool) -> Verdict {
    use StepStatus::{Cancelled, EndedRun, Failed, Succeeded};
    let end = |status, value| Verdict::End(status, value, None);
    match outcome {
        Outcome::Retry if !draining => Verdict::Again,
        // Rule 18: no attempt is followed by another; "another error → failed".
        Outcome::Retry | Outcome::Failed => end(Failed, None),
        // Rule 18. Reading: a stop that nobody asked for, or a worker lost with no attempt left, is
        // a failure: `cancelled` belongs to cancelled runs.
        Outcome::Stopped if draining => end(Cancelled, None),
        Outcome::Stopped => end(Failed, None),
        // Rule 14. Also while draining: it is what the attempt did.
        Outcome::EndRun(value) => end(EndedRun, Some(Value::Of(*value))),
        // Reading: a run that is being cancelled gets no child; the step waits no more than others.
        Outcome::Child if draining => Verdict::End(Cancelled, None, Some(Why::Cancelled)),
        Outcome::Child => Verdict::Wait,
        Outcome::Success(_) | Outcome::Chose(_) => match (kind, outcome) {
            (StepKind::Branch { arms, .. }, Outcome::Chose(arm)) if arms.contains(arm) => {
                end(Succeeded, Some(Value::Arm(arm.clone())))
            }
            // §8: a value that is not an arm fails the deciding step and names the arms.
            (StepKind::Branch { arms, .. }, _) => {
                Verdict::End(Failed, None, Some(Why::NotAnArm(arms.clone())))
            }
            (_, Outcome::Success(value)) => end(Succeeded, Some(Value::Of(*value))),
            _ => end(Succeeded, None),
        },
    }
}
