//! A run played to its end: a script gives the outcome of each step, an order picks the next event.
//!
//! Properties play one script in two orders to compare them. Tests of the engine apply the events that were
//! played to Postgres.

use pipeline::graph::spec::StepKind;

use super::event::{Effect, Event, Outcome, Refusal, RunId};
use super::status::{RunStatus, StepStatus};
use super::world::{Model, Step};

/// The outcomes of the attempts of each step, in any order of events.
#[derive(Clone, PartialEq, Eq)]
pub struct Script {
    /// One random number for each step and round.
    pub fates: Vec<u8>,
    /// Whether attempts may call `cx.end_run()`.
    pub ends_run: bool,
    /// Whether jobs may return pipelines.
    pub children: bool,
    /// The round from which on every step succeeds.
    pub good_from: u32,
}

/// The choice of the next event among all possible ones: one number for each choice, then zeros.
#[derive(Clone, PartialEq, Eq)]
pub struct Order(pub Vec<u16>);

/// The fate of a step in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Good,
    /// The step fails for good.
    Bad,
    EndsRun,
    /// The step returns a pipeline, which then succeeds.
    Parent,
    /// A deciding step returns a value that is no arm; a waiting step is never woken.
    Odd,
}

impl Script {
    fn number(&self, no: usize, round: u32) -> u8 {
        let round = usize::try_from(round).unwrap_or(0);
        self.fates[(no + 17 * round) % self.fates.len()]
    }

    fn fate(&self, no: usize, round: u32) -> Fate {
        match self.number(no, round) % 20 {
            _ if round >= self.good_from => Fate::Good,
            0..=12 => Fate::Good,
            13..=16 => Fate::Bad,
            17 if self.ends_run => Fate::EndsRun,
            18 if self.children => Fate::Parent,
            _ => Fate::Odd,
        }
    }

    /// Returns the outcome of this attempt. The first attempts of some steps are retried.
    pub fn outcome(&self, kind: &StepKind, no: usize, round: u32, step: &Step) -> Outcome {
        let number = self.number(no, round);
        if u32::from(number / 20 % 3) >= step.token.0 {
            return Outcome::Retry;
        }
        match (self.fate(no, round), kind) {
            (Fate::Bad, _) => Outcome::Failed,
            (Fate::EndsRun, _) => Outcome::EndRun(u64::from(number)),
            (Fate::Odd, StepKind::Branch { .. }) => Outcome::Chose("no such arm".to_owned()),
            (_, StepKind::Branch { arms, .. }) => {
                Outcome::Chose(arms[usize::from(number) % arms.len()].clone())
            }
            (Fate::Parent, StepKind::Job { .. }) => Outcome::Child,
            (Fate::Odd, _) => Outcome::Stopped,
            _ => Outcome::Success(u64::from(number)),
        }
    }
}

/// A model with the events that were applied to it.
#[derive(Debug, Clone)]
pub struct Play {
    /// The model.
    pub model: Model,
    /// The events, each with its effects.
    pub log: Vec<(Event, Vec<Effect>)>,
    script: Script,
    order: Order,
    at: usize,
}

impl Play {
    /// Creates a model to which nothing has happened yet.
    pub fn new(model: Model, script: &Script, order: &Order) -> Self {
        Self {
            model,
            log: Vec::new(),
            script: script.clone(),
            order: order.clone(),
            at: 0,
        }
    }

    /// Applies an event, and records it if it is not refused.
    pub fn apply(&mut self, event: Event) -> Result<Vec<Effect>, Refusal> {
        let effects = self.model.apply(&event)?;
        self.log.push((event, effects.clone()));
        Ok(effects)
    }

    /// Starts a run of the first graph.
    pub fn start(&mut self) -> RunId {
        let graph = super::GraphId(0);
        self.apply(Event::Start { graph })
            .expect("the graph is there");
        RunId(self.model.runs().len() - 1)
    }

    /// Returns all events that workers, timers, senders of signals and children could cause next in any run.
    pub fn enabled(&self) -> Vec<Event> {
        let runs = 0..self.model.runs().len();
        runs.flat_map(|run| self.enabled_in(RunId(run))).collect()
    }

    fn enabled_in(&self, run: RunId) -> Vec<Event> {
        let here = self.model.run(run);
        let mut events = Vec::new();
        for (no, step) in here.steps.iter().enumerate() {
            let key = here.graph.nodes[no].key.clone();
            let kind = here.graph.kind(no);
            match step.status {
                StepStatus::Enqueued if step.taken => events.push(Event::Ended {
                    run,
                    step: key,
                    token: step.token,
                    outcome: self.script.outcome(kind, no, here.round, step),
                }),
                StepStatus::Enqueued => events.push(Event::Taken { run, step: key }),
                StepStatus::Waiting => events.push(self.answer(run, no)),
                _ => {}
            }
        }
        events
    }

    /// Returns the events that end a wait; if it ends by time, the time must pass first.
    fn answer(&self, run: RunId, no: usize) -> Event {
        let here = self.model.run(run);
        let step = here.graph.nodes[no].key.clone();
        let fate = self.script.fate(no, here.round);
        let due = here.steps[no].wait.and_then(|wait| wait.due);
        let left = due.map(|due| due.saturating_sub(self.model.now()));
        match (here.graph.kind(no), left) {
            (StepKind::Signal { name, .. }, left) if fate != Fate::Odd || left.is_none() => {
                Event::Signal {
                    to: Some(run),
                    name: name.clone(),
                    keep: false,
                    payload: 1,
                }
            }
            (_, Some(0)) => Event::Due { run, step },
            (_, Some(ms)) => Event::Time { ms },
            (_, None) => {
                let status = match fate {
                    Fate::Bad => RunStatus::Failed,
                    Fate::Odd => RunStatus::Cancelled,
                    _ => RunStatus::Succeeded,
                };
                Event::ChildEnded { run, step, status }
            }
        }
    }

    /// Returns the next number of the order.
    pub fn number(&mut self) -> usize {
        let number = self.order.0.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(number)
    }

    /// Whether the order has no numbers left.
    pub fn is_out_of_numbers(&self) -> bool {
        self.at >= self.order.0.len()
    }

    /// Applies the next event. Returns `false` if there is none.
    pub fn go_on(&mut self) -> bool {
        let mut enabled = self.enabled();
        if enabled.is_empty() {
            return false;
        }
        let chosen = self.number() % enabled.len();
        let event = enabled.swap_remove(chosen);
        let done = self.apply(event);
        done.expect("what is enabled is not refused");
        true
    }

    /// Applies events until none is possible.
    pub fn to_the_end(&mut self) {
        while self.go_on() {}
    }
}

impl Model {
    /// Whether two models are in the same state.
    pub fn same_as(&self, other: &Self) -> bool {
        let pairs = || self.runs.iter().zip(&other.runs);
        self.runs.len() == other.runs.len()
            && self.now == other.now
            && self.kept == other.kept
            && pairs().all(|(a, b)| {
                (a.status, a.round, a.halt_triggered, a.drain)
                    == (b.status, b.round, b.halt_triggered, b.drain)
                    && (a.started_at, &a.steps, &a.kept) == (b.started_at, &b.steps, &b.kept)
            })
    }
}
