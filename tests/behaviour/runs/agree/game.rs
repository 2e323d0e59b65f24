//! A case in progress: the ends that each worker sends next, and their effect on the model.

use std::collections::{BTreeMap, HashMap};

use ::jobs::extension::{AttemptEnd, Claimed};
use ::jobs::testing::{ManualEngine, Outcome as How, Slots, Turn};
use pipeline::graph::spec::Strategy;
use pipeline::{Graph, Pipeline};
use tests::Database;
use tests::model::{Effect, Event, Model, Outcome, RunId, Token};

use super::case::{Case, Kept};
use super::table::{HANDS, string};

const ATTEMPTS: i16 = 3;

/// A case on its way.
pub(super) struct Game<'c> {
    pub(super) case: &'c Case,
    pub(super) graph: Graph,
    pub(super) model: Model,
    /// The ids of the runs.
    pub(super) ids: Vec<i64>,
    /// What followed from what was done so far.
    pub(super) effects: Vec<Effect>,
    /// Attempts that have begun, by run and step.
    pub(super) running: BTreeMap<(usize, u32), Begun>,
    /// The tokens of all attempts, as the model and as Postgres has them.
    pub(super) tokens: HashMap<(usize, u32, Token), i64>,
    /// Ends that were sent, to be sent again.
    past: Vec<Sent>,
    at: usize,
}

/// An attempt that has begun.
pub(super) struct Begun {
    pub(super) job: Claimed,
    pub(super) token: Token,
}

/// An end, as both have it.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) end: AttemptEnd,
    pub(super) event: Event,
    pub(super) run: usize,
    pub(super) no: u32,
    /// Of several in one advance, those that halt the run come first.
    rank: u8,
    /// It comes from whoever takes the attempt over.
    pub(super) lost: bool,
}

/// What one worker does in a round.
#[derive(Default)]
pub(super) struct Part {
    pub(super) sent: Vec<Sent>,
    pub(super) slots: Slots,
    wait: bool,
}

impl Part {
    pub(super) async fn take(&self, hand: &mut ManualEngine) -> ::jobs::Result<Turn> {
        if self.sent.is_empty() && self.slots.free == 0 {
            return Ok(Turn::default());
        }
        let ends = self.sent.iter().map(|sent| sent.end.clone()).collect();
        hand.turn(ends, self.slots, self.wait).await
    }
}

impl<'c> Game<'c> {
    pub(super) fn new(case: &'c Case) -> Self {
        let mut model = Model::new(&case.spec);
        let mut effects = Vec::new();
        for _ in &case.runs {
            let graph = tests::model::GraphId(0);
            effects.extend(model.must(Event::Start { graph }));
        }
        let pipeline: Pipeline = case.pipeline();
        Self {
            case,
            graph: pipeline.graph().clone(),
            model,
            ids: Vec::new(),
            effects,
            running: BTreeMap::new(),
            tokens: HashMap::new(),
            past: Vec::new(),
            at: 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        let mut runs = self.model.runs().iter();
        runs.all(|run| run.status.ended())
    }

    fn number(&mut self) -> usize {
        let number = self.case.numbers.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(number)
    }

    /// One time in so many, while the numbers last.
    pub(super) fn chance(&mut self, of: usize) -> bool {
        self.number() % of == 1
    }

    /// Says who sends what next.
    pub(super) fn round(&mut self, mut lost: Vec<AttemptEnd>) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        parts.resize_with(HANDS, Part::default);
        let attempts: Vec<(usize, u32)> = self.running.keys().copied().collect();
        for (run, no) in attempts {
            let mut sent = self.end_of(run, no);
            let found = lost.iter().position(|end| end.token() == sent.end.token());
            if let Some(found) = found
                && self.number().is_multiple_of(2)
            {
                // Its own end comes late, or in the same moment.
                self.past.push(sent.clone());
                if self.chance(2) {
                    self.send(&mut parts, sent.clone());
                }
                sent = self.lost(sent, lost.swap_remove(found));
            } else if self.chance(4) {
                continue;
            }
            if self.chance(8) {
                self.send(&mut parts, sent.clone());
            }
            self.send(&mut parts, sent);
        }
        for _ in 0..HANDS {
            if !self.past.is_empty() && self.chance(6) {
                let old = self.number() % self.past.len();
                self.send(&mut parts, self.past[old].clone());
            }
        }
        for part in &mut parts {
            part.wait = self.chance(2);
            part.slots = Slots {
                free: u32::try_from(self.number() % 6).unwrap_or(0),
                claim: self.number().is_multiple_of(2),
            };
        }
        let nothing = parts.iter().all(|part| part.sent.is_empty());
        if nothing {
            parts[0].slots = Slots {
                free: 100,
                claim: true,
            };
        }
        parts
    }

    /// Has one of the workers send it.
    fn send(&mut self, parts: &mut [Part], sent: Sent) {
        let hand = match self.case.runs[sent.run].1 {
            // No event will say which came first: one worker sends them all.
            Kept::Nothing | Kept::Runs => sent.run % HANDS,
            Kept::Steps | Kept::All => self.number() % HANDS,
        };
        // Two ends of one attempt that differ come from two workers.
        let differs =
            |other: &Sent| other.end.token() == sent.end.token() && other.event != sent.event;
        if !parts[hand].sent.iter().any(differs) {
            parts[hand].sent.push(sent);
        }
    }

    /// How the attempt ends that runs now.
    fn end_of(&mut self, run: usize, no: u32) -> Sent {
        let begun = &self.running[&(run, no)];
        let (job, token) = (begun.job.clone(), begun.token);
        let here = self.model.run(RunId(run));
        let at = self.at_model(no);
        let node = &here.graph.nodes[at];
        let script = &self.case.runs[run].0;
        let outcome = script.outcome(here.graph.kind(at), at, here.round, &here.steps[at]);
        let value = u64::try_from(job.id).unwrap_or(0) * 4 + u64::from(token.0);
        let (outcome, how) = match outcome {
            Outcome::Success(_) => (Outcome::Success(value), How::Success(value.to_string())),
            Outcome::EndRun(_) => (Outcome::EndRun(value), How::EndOwner(value.to_string())),
            Outcome::Chose(arm) => {
                let how = How::Success(format!("\"{arm}\""));
                (Outcome::Chose(arm), how)
            }
            Outcome::Retry => (Outcome::Retry, How::Retry),
            // No attempt would help, or none is left.
            outcome => {
                let why = ("Broken".to_owned(), format!("attempt {}", token.0));
                let how = match value % 8 {
                    0..4 => How::Fail(why.0, why.1),
                    _ => How::Discard(why.0, why.1),
                };
                (outcome, how)
            }
        };
        let step = node.key.clone();
        let run_id = RunId(run);
        let rank = self.rank(at, &outcome);
        Sent {
            end: ManualEngine::end(&job, &how),
            event: Event::Ended {
                run: run_id,
                step,
                token,
                outcome,
            },
            run,
            no,
            rank,
            lost: false,
        }
    }

    /// The end of the same attempt by whoever takes it over.
    fn lost(&self, sent: Sent, end: AttemptEnd) -> Sent {
        let Event::Ended {
            run, step, token, ..
        } = sent.event
        else {
            return sent;
        };
        let outcome = if end.attempt() < ATTEMPTS {
            Outcome::Retry
        } else {
            Outcome::Stopped
        };
        let rank = self.rank(self.at_model(sent.no), &outcome);
        let event = Event::Ended {
            run,
            step,
            token,
            outcome,
        };
        Sent {
            end,
            event,
            rank,
            lost: true,
            ..sent
        }
    }

    fn rank(&self, at: usize, outcome: &Outcome) -> u8 {
        let graph = &self.model.run(RunId(0)).graph;
        let fails = match outcome {
            Outcome::EndRun(_) => return 0,
            Outcome::Failed | Outcome::Stopped => true,
            Outcome::Chose(arm) => match graph.kind(at) {
                pipeline::graph::spec::StepKind::Branch { arms, .. } => !arms.contains(arm),
                _ => false,
            },
            _ => false,
        };
        if fails && graph.nodes[at].strategy == Strategy::Halt {
            1
        } else {
            2
        }
    }

    /// The step's number in the model, which counts as declared.
    pub(super) fn at_model(&self, no: u32) -> usize {
        self.graph.node(no).map_or(0, |node| node.declared())
    }

    /// Does the same to the model: in the order that Postgres says.
    pub(super) async fn follow(
        &mut self,
        db: &Database,
        parts: &[Part],
        turns: &[Turn],
    ) -> Result<(), String> {
        // Where one worker alone has written, nobody needs to be asked.
        let writers = turns.iter().filter(|turn| !turn.ended.is_empty());
        let order = match writers.count() {
            0 | 1 => HashMap::new(),
            _ => self.order(db).await,
        };
        let is = |end: &AttemptEnd, sent: &Sent| {
            (end.job(), end.token()) == (sent.end.job(), sent.end.token())
        };
        for run in 0..self.ids.len() {
            let mut groups: Vec<(i32, Vec<Sent>)> = Vec::new();
            for (part, turn) in parts.iter().zip(turns) {
                if turn.held.len() + turn.ended.len() + turn.stale.len() != part.sent.len() {
                    return Err("an end was neither written nor put off".to_owned());
                }
                let written = turn.ended.iter().filter_map(|end| {
                    let sent = part.sent.iter().find(|sent| is(end, sent))?;
                    (sent.run == run).then(|| sent.clone())
                });
                let mut written: Vec<Sent> = written.collect();
                written.sort_by_key(|sent| (sent.rank, sent.no));
                let first = written
                    .iter()
                    .filter_map(|sent| order.get(&(run, sent.no)))
                    .min();
                groups.push((first.copied().unwrap_or(i32::MAX), written));
            }
            groups.sort_by_key(|(first, _)| *first);
            for (_, group) in groups {
                let events: Vec<Event> = group.iter().map(|sent| sent.event.clone()).collect();
                let effects = self.model.apply_together(&events).map_err(string)?;
                for (sent, effects) in group.iter().zip(&effects) {
                    if is_refused(effects) {
                        return Err(format!(
                            "Postgres took {:?}, the model does not",
                            sent.event
                        ));
                    }
                    self.running.remove(&(sent.run, sent.no));
                }
                self.effects.extend(effects.into_iter().flatten());
                self.past.extend(group);
            }
        }
        for (part, turn) in parts.iter().zip(turns) {
            for end in &turn.stale {
                let sent = part.sent.iter().find(|sent| is(end, sent));
                let sent = sent.ok_or("an end came back that was not sent")?;
                let effects = self.model.apply(&sent.event).map_err(string)?;
                if !is_refused(&effects) {
                    return Err(format!(
                        "the model takes {:?}, Postgres did not",
                        sent.event
                    ));
                }
            }
        }
        for turn in turns {
            for job in &turn.claimed {
                self.begin(job)?;
            }
        }
        Ok(())
    }

    /// When each step ended, by the number of the event.
    async fn order(&self, db: &Database) -> HashMap<(usize, u32), i32> {
        let rows: Vec<(i64, i32, i32)> = sqlx::query_as(
            "select run, step, no from pipeline.events
             where run = any ($1) and step is not null and status <> 'enqueued'",
        )
        .bind(&self.ids)
        .fetch_all(db.pool())
        .await
        .unwrap();
        let rows = rows.into_iter().filter_map(|(run, step, no)| {
            let run = self.ids.iter().position(|id| *id == run)?;
            Some(((run, u32::try_from(step).ok()?), no))
        });
        rows.collect()
    }

    /// A worker has begun an attempt.
    fn begin(&mut self, job: &Claimed) -> Result<(), String> {
        let run = self.ids.iter().position(|id| *id == job.id >> 18);
        let run = run.ok_or_else(|| format!("job {} is none of ours", job.id))?;
        let no = u32::try_from((job.id & 0x3_FFFF) / 2).map_err(string)?;
        let node = self.graph.node(no).ok_or("no such step")?;
        let step = node.key().into();
        let taken = self.model.apply(&Event::Taken {
            run: RunId(run),
            step,
        });
        taken.map_err(|refused| format!("Postgres started it, and {refused}"))?;
        let token = self.model.step(RunId(run), node.key()).token;
        if i64::from(job.attempt) != i64::from(token.0) {
            return Err(format!(
                "attempt {} of {} is number {}",
                job.attempt,
                node.key(),
                token.0
            ));
        }
        self.given(RunId(run), node.key(), job)?;
        self.tokens.insert((run, no, token), job.token);
        let job = job.clone();
        self.running.insert((run, no), Begun { job, token });
        Ok(())
    }
}

/// The end changed nothing.
fn is_refused(effects: &[Effect]) -> bool {
    matches!(
        effects,
        [Effect::Stale { .. } | Effect::AlreadyEnded { .. }]
    )
}
