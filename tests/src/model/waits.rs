//! Steps that wait without a job: timers, signals, children (rules 22, 23).

use pipeline::graph::spec::StepKind;

use super::event::{Effect, Event, Payload, Refusal, RunId, Why};
use super::status::{RunStatus, StepStatus};
use super::world::{Model, Value};

/// A wait of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The age of the wait: a lower number is older.
    pub since: u64,
    /// When a timer ends or a signal times out.
    pub due: Option<u64>,
}

/// A signal that no step has taken yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    name: String,
    payload: Payload,
    since: u64,
}

impl Model {
    /// Lets a step begin to wait. A signal that was kept is taken at once.
    pub(super) fn wait(
        &mut self,
        run: RunId,
        no: usize,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let graph = self.runs[run.0].graph.clone();
        let after = match graph.kind(no) {
            StepKind::Timer { delay_ms } => Some(*delay_ms),
            StepKind::Signal { timeout_ms, .. } => *timeout_ms,
            _ => None,
        };
        let wait = Wait {
            since: self.tick(),
            due: after.map(|ms| self.now + ms),
        };
        self.step_to(run, no, StepStatus::Waiting, None, out)?;
        self.runs[run.0].steps[no].wait = Some(wait);
        if let StepKind::Signal { name, .. } = graph.kind(no)
            && let Some(payload) = self.oldest_kept(run, name)
        {
            self.answer(run, no, Value::Of(payload), out)?;
        }
        Ok(())
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Rule 23: takes the oldest matching signal, of those sent to the run and those kept for any run.
    fn oldest_kept(&mut self, run: RunId, name: &str) -> Option<Payload> {
        let find = |kept: &[Kept]| kept.iter().position(|signal| signal.name == name);
        let (own, open) = (&mut self.runs[run.0].kept, &mut self.kept);
        match (find(own), find(open)) {
            (Some(mine), Some(any)) if own[mine].since > open[any].since => Some(open.remove(any)),
            (Some(mine), _) => Some(own.remove(mine)),
            (None, Some(any)) => Some(open.remove(any)),
            (None, None) => None,
        }
        .map(|signal| signal.payload)
    }

    fn answer(
        &mut self,
        run: RunId,
        no: usize,
        value: Value,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        self.runs[run.0].steps[no].value = Some(value);
        self.step_to(run, no, StepStatus::Succeeded, None, out)
    }

    /// Rule 23: sends a signal. If it is sent to a run, the run's graph must declare its name, and the signal is
    /// kept until the run ends. Else the oldest matching wait takes it, and it is kept only on request.
    pub(super) fn signal(
        &mut self,
        to: Option<RunId>,
        name: &str,
        keep: bool,
        payload: Payload,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        if let Some(run) = to {
            self.takes_signal(run, name)?;
        }
        let signal = Kept {
            name: name.to_owned(),
            payload,
            since: self.tick(),
        };
        match (self.oldest_wait(to, name), to) {
            (Some((run, no)), _) => {
                self.answer(run, no, Value::Of(payload), out)?;
                self.ended(run, no, out)?;
            }
            (None, Some(run)) => self.runs[run.0].kept.push(signal),
            (None, None) if keep => self.kept.push(signal),
            (None, None) => {}
        }
        Ok(())
    }

    fn takes_signal(&self, run: RunId, name: &str) -> Result<(), Refusal> {
        let here = self.runs.get(run.0).ok_or(Refusal::UnknownRun(run))?;
        let declares =
            |no| matches!(here.graph.kind(no), StepKind::Signal { name: it, .. } if it == name);
        if here.status.ended() {
            return Err(Refusal::SignalToEnded {
                run,
                status: here.status,
            });
        }
        if !(0..here.steps.len()).any(declares) {
            let name = name.to_owned();
            return Err(Refusal::UndeclaredSignal { run, name });
        }
        Ok(())
    }

    fn oldest_wait(&self, of: Option<RunId>, name: &str) -> Option<(RunId, usize)> {
        let mut waits = Vec::new();
        for (id, run) in self.runs.iter().enumerate() {
            for no in run.steps_that_are(StepStatus::Waiting) {
                let matches =
                    matches!(run.graph.kind(no), StepKind::Signal { name: it, .. } if it == name);
                if matches && of.is_none_or(|of| of == RunId(id)) {
                    waits.push((run.steps[no].wait.map(|wait| wait.since), RunId(id), no));
                }
            }
        }
        waits.sort();
        waits.first().map(|(_, run, no)| (*run, *no))
    }

    /// Rule 23: ends a wait whose time has come. A timer ends; a signal's timeout is an outcome.
    ///
    /// Reading: an outcome, not a failure: the step succeeds, and its value says that time ran out.
    pub(super) fn wait_is_due(
        &mut self,
        run: RunId,
        no: usize,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let here = &self.runs[run.0];
        let step = &here.steps[no];
        let key = here.graph.nodes[no].key.clone();
        if step.status != StepStatus::Waiting {
            return Err(Refusal::Step {
                run,
                step: key,
                from: step.status,
                to: StepStatus::Succeeded,
            });
        }
        let due = step.wait.and_then(|wait| wait.due);
        if due.is_none_or(|due| due > self.now) {
            return Err(Refusal::NotDue {
                run,
                step: Some(key),
            });
        }
        let value = match here.graph.kind(no) {
            StepKind::Signal { .. } => Value::TimedOut,
            _ => Value::Of(0),
        };
        self.answer(run, no, value, out)?;
        self.ended(run, no, out)
    }

    /// Rule 22: ends a step as its child ended.
    ///
    /// Reading: a child that was cancelled alone fails the step. Were the step `cancelled`, rule 9
    /// would call a run `succeeded` whose middle never ran.
    pub(super) fn child_ended(
        &mut self,
        run: RunId,
        no: usize,
        status: RunStatus,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let here = &mut self.runs[run.0];
        let waits = here.steps[no].status == StepStatus::Waiting;
        let to = match status {
            RunStatus::Succeeded => StepStatus::Succeeded,
            _ => StepStatus::Failed,
        };
        if !waits {
            return Err(Refusal::Step {
                run,
                step: here.graph.nodes[no].key.clone(),
                from: here.steps[no].status,
                to,
            });
        }
        if to == StepStatus::Succeeded {
            here.steps[no].value = Some(Value::Of(0));
        }
        self.step_to(run, no, to, Some(Why::Child(status)), out)?;
        self.ended(run, no, out)
    }

    /// Reading: a child whose step is skipped by Halt, or cancelled, is cancelled (rule 18 says it of
    /// cancelling only); the step does not wait for it.
    pub(super) fn let_child_go(&self, run: RunId, no: usize, out: &mut Vec<Effect>) {
        let here = &self.runs[run.0];
        let kind = here.graph.kind(no);
        let own_wait = matches!(kind, StepKind::Timer { .. } | StepKind::Signal { .. });
        if here.steps[no].status == StepStatus::Waiting && !own_wait {
            let step = here.graph.nodes[no].key.clone();
            out.push(Effect::CancelChild { run, step });
        }
    }

    /// Returns the events that are due: waits first, then deadlines.
    pub fn due(&self) -> Vec<Event> {
        let mut waits = Vec::new();
        let mut deadlines = Vec::new();
        for (id, run) in self.runs.iter().enumerate() {
            let id = RunId(id);
            for no in run.steps_that_are(StepStatus::Waiting) {
                let due = run.steps[no].wait.and_then(|wait| wait.due);
                if let Some(due) = due.filter(|due| *due <= self.now) {
                    waits.push((due, id, run.graph.nodes[no].key.clone()));
                }
            }
            if run.status == RunStatus::Running
                && self.deadline_of(id).is_some_and(|at| at <= self.now)
            {
                deadlines.push(Event::DeadlinePassed { run: id });
            }
        }
        waits.sort();
        let waits = waits
            .into_iter()
            .map(|(_, run, step)| Event::Due { run, step });
        waits.chain(deadlines).collect()
    }
}
