//! Whole histories with what comes from outside: runs are chained, cancelled and reopened at any
//! moment, while attempts end, end twice, and end late.
//!
//! Event by event, through the application's own calls and the engine's own turns; after each, every
//! status, every round and every callback must be what the model says.

use std::collections::{BTreeSet, HashMap};

use ::jobs::extension::Claimed;
use ::jobs::testing::{ManualEngine, Outcome as How, Slots};
use pipeline::graph::spec::{CallbackOn, GraphSpec, Takes};
use pipeline::{Client, Error, Graph, Pipeline, Run, Worker};
use tests::Database;
use tests::model::histories::History;
use tests::model::{
    Effect, Event, Key, Model, Outcome, RunId, RunStatus, StepStatus, Token, Value, Why,
};

use super::table::{Decide, Work, string};

/// A worker, and the application.
pub(super) struct Outside<'a> {
    db: &'a Database,
    client: Client,
    hand: ManualEngine,
    pub(super) seen: Seen,
}

/// What has happened: a proof that nothing of it was left out.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seen {
    pub(super) chained: usize,
    pub(super) cancelled: usize,
    pub(super) reopened: usize,
    /// Reopenings that named no ignored failure and had nothing else to run again.
    pub(super) refused: usize,
    /// Steps that succeeded, halted or were not taken, and were reset with their error path.
    pub(super) taken_back: usize,
    /// Reopenings that left out what an early end had left out.
    pub(super) left_out: usize,
    pub(super) skipped: usize,
    pub(super) stale: usize,
    pub(super) taken_over: usize,
    pub(super) callbacks: usize,
    /// Error paths behind barriers that began to run.
    pub(super) behind_barriers: usize,
    /// `after_any` steps of which no upstream was taken.
    pub(super) none_taken: usize,
}

/// A history on its way.
struct Story {
    graph: Graph,
    model: Model,
    runs: Vec<Run>,
    attempts: HashMap<(usize, String, Token), Claimed>,
    fired: BTreeSet<(usize, u32, i32)>,
}

impl<'a> Outside<'a> {
    pub(super) async fn new(db: &'a Database) -> Self {
        let worker = Worker::new(db.pool().clone())
            .register::<(Work, Decide)>()
            .queue("*", 10);
        Self {
            db,
            client: Client::new(db.pool().clone()),
            hand: worker.into_jobs().manual().await.unwrap(),
            seen: Seen::default(),
        }
    }

    pub(super) async fn play(&mut self, history: &History) -> Result<(), String> {
        let graph = Graph::compile(with_attempts(history.spec.0.clone())).map_err(string)?;
        let mut story = Story {
            graph,
            model: Model::new(&history.spec),
            runs: Vec::new(),
            attempts: HashMap::new(),
            fired: BTreeSet::new(),
        };
        for (at, event) in history.events.iter().enumerate() {
            let told = self.event(&mut story, event).await;
            told.map_err(|why| format!("event {at}, {event:?}: {why}"))?;
        }
        Ok(())
    }

    async fn event(&mut self, story: &mut Story, event: &Event) -> Result<(), String> {
        let before = story.model.clone();
        let effects = story.model.apply(event).map_err(string)?;
        self.note(story, event, &effects);
        self.note_reset(&before, story, event, &effects);
        match event {
            Event::Start { .. } => {
                let run = self.client.start(story.pipeline()).await.map_err(string)?;
                story.runs.push(run);
            }
            Event::Then { after, .. } => {
                let after = after.iter().map(|run| story.runs[run.0].id());
                let after: Vec<pipeline::RunId> = after.collect();
                let chain = self.client.start(story.pipeline()).after(after);
                story.runs.push(chain.await.map_err(string)?);
            }
            Event::Taken { run, step } => {
                let was_taken = before.step(*run, step).taken;
                let job = self.take(story, *run, step, was_taken).await?;
                let token = story.model.step(*run, step).token;
                story.attempts.insert((run.0, step.to_string(), token), job);
            }
            Event::Ended {
                run,
                step,
                token,
                outcome,
            } => {
                let attempt = (run.0, step.to_string(), *token);
                let job = story.attempts.get(&attempt).ok_or("no such attempt")?;
                let drains = before.status(*run) == RunStatus::Cancelling;
                let end = ManualEngine::end(job, &how(outcome, drains));
                let turn = self.hand.turn(vec![end], Slots::default(), true).await;
                let turn = turn.map_err(string)?;
                let refused = matches!(
                    effects.as_slice(),
                    [Effect::Stale { .. } | Effect::AlreadyEnded { .. }]
                );
                if refused == turn.stale.is_empty() {
                    return Err(format!("stale: {:?}, the model: {effects:?}", turn.stale));
                }
                self.seen.stale += turn.stale.len();
            }
            Event::Cancel { run } => story.runs[run.0].cancel().await.map_err(string)?,
            Event::Reopen { run, named } => {
                self.reopen_unnamed(&before, story, *run, named).await?;
                let mut reopen = story.runs[run.0].reopen().force();
                for step in named {
                    reopen = reopen.step(step.to_string());
                }
                reopen.await.map_err(string)?;
            }
            other => return Err(format!("{other:?} is not for such graphs")),
        }
        self.compare(story).await
    }

    /// A reopening that names ignored failures is first tried without them: if the model refuses that, so
    /// does Postgres, and writes nothing.
    async fn reopen_unnamed(
        &mut self,
        before: &Model,
        story: &Story,
        run: RunId,
        named: &[Key],
    ) -> Result<(), String> {
        let named_none = Event::Reopen { run, named: vec![] };
        if named.is_empty() || before.clone().apply(&named_none).is_ok() {
            return Ok(());
        }
        self.seen.refused += 1;
        let rows = "select (select r::text from pipeline.runs r where id = $1)
                        || (select string_agg(s::text, '' order by s.no) from pipeline.steps s where run = $1)";
        let rows = || sqlx::query_scalar::<_, String>(rows).bind(story.runs[run.0].id());
        let (pool, handle) = (self.db.pool(), &story.runs[run.0]);
        let unchanged = rows().fetch_one(pool).await.map_err(string)?;
        match handle.reopen().force().await {
            Err(Error::OnlyIgnored { .. }) => {}
            other => return Err(format!("the model refuses, Postgres: {other:?}")),
        }
        let found = rows().fetch_one(pool).await.map_err(string)?;
        if found != unchanged {
            return Err("a refused reopening has written".to_owned());
        }
        Ok(())
    }

    fn note(&mut self, story: &mut Story, event: &Event, effects: &[Effect]) {
        match event {
            Event::Then { .. } => self.seen.chained += 1,
            Event::Cancel { .. } => self.seen.cancelled += 1,
            Event::Reopen { .. } => self.seen.reopened += 1,
            _ => {}
        }
        for effect in effects {
            match effect {
                Effect::Callback { run, round, on } => {
                    self.seen.callbacks += 1;
                    story.fired.insert((run.0, *round, story.position(*on)));
                }
                Effect::Run {
                    status: RunStatus::Skipped,
                    ..
                } => self.seen.skipped += 1,
                Effect::Released { step, .. } => {
                    let node = story.graph.find(step).expect("the graph has this step");
                    let waits = node.upstream().iter().any(|up| up.takes == Takes::Ended);
                    self.seen.behind_barriers += usize::from(waits);
                }
                Effect::Ended {
                    why: Some(Why::NoneTaken),
                    ..
                } => self.seen.none_taken += 1,
                _ => {}
            }
        }
    }

    fn note_reset(&mut self, before: &Model, story: &Story, event: &Event, effects: &[Effect]) {
        let Event::Reopen { run, .. } = event else {
            return;
        };
        let was_taken_back = |effect: &&Effect| match effect {
            Effect::Reopened { run, step } => {
                let status = before.step(*run, step).status;
                !status.is_reset_by_reopening() && status != StepStatus::Pending
            }
            _ => false,
        };
        self.seen.taken_back += effects.iter().filter(was_taken_back).count();
        let steps = &story.model.run(*run).steps;
        let is_left_out = |why: &Option<Why>| matches!(why, Some(Why::EndedBy(_)));
        self.seen.left_out += usize::from(steps.iter().any(|step| is_left_out(&step.why)));
    }

    /// Claims this step's job and no other; from a worker that was lost, if one has it.
    async fn take(
        &mut self,
        story: &Story,
        run: RunId,
        step: &str,
        was_taken: bool,
    ) -> Result<Claimed, String> {
        let no = story.graph.find(step).ok_or("no such step")?.no();
        let id = (story.runs[run.0].id().get() << 18) + 2 * i64::from(no);
        if was_taken {
            self.seen.taken_over += 1;
            let lapse = "update pipeline.jobs set lease_until = pipeline.now() - interval '1 s'
                         where id = $1";
            self.sql(lapse, id).await;
            let lost = self.hand.tick().await.map_err(string)?;
            let turn = self.hand.turn(lost, Slots::default(), true).await;
            turn.map_err(string)?;
        }
        let first = "update pipeline.jobs set priority = case when id = $1 then 9 else 0 end
                     where status = 'ready'";
        self.sql(first, id).await;
        let slots = Slots {
            free: 1,
            claim: true,
        };
        let turn = self.hand.turn(Vec::new(), slots, true).await;
        let mut claimed = turn.map_err(string)?.claimed;
        match claimed.pop() {
            Some(job) if job.id == id => Ok(job),
            other => Err(format!("claimed {other:?} instead of {id}")),
        }
    }

    async fn sql(&self, statement: &'static str, id: i64) {
        let done = sqlx::query(statement).bind(id).execute(self.db.pool());
        done.await.unwrap();
    }

    /// Every status, round and callback, and every output.
    async fn compare(&self, story: &Story) -> Result<(), String> {
        let ids: Vec<i64> = story.runs.iter().map(|run| run.id().get()).collect();
        let runs: Vec<(i64, String, i32, bool)> = sqlx::query_as(
            "select id, status::text, round, halt_triggered from pipeline.runs where id = any ($1)",
        )
        .bind(&ids)
        .fetch_all(self.db.pool())
        .await
        .map_err(string)?;
        let place = |id: i64| ids.iter().position(|other| *other == id).unwrap_or(0);
        for (id, status, round, halt) in runs {
            let run = story.model.run(RunId(place(id)));
            let wanted = (run.status.to_string(), run.round, run.halt_triggered);
            let found = (status, round.cast_unsigned(), halt);
            if found != wanted {
                return Err(format!(
                    "run {}: {found:?}, the model: {wanted:?}",
                    place(id)
                ));
            }
        }
        let steps: Vec<(i64, i32, String, Option<String>)> = sqlx::query_as(
            "select run, no, status::text, output::text from pipeline.steps where run = any ($1)",
        )
        .bind(&ids)
        .fetch_all(self.db.pool())
        .await
        .map_err(string)?;
        for (id, no, status, output) in steps {
            let node = story.graph.node(no.cast_unsigned()).ok_or("no such step")?;
            let step = story.model.step(RunId(place(id)), node.key());
            let value = step.value.as_ref().map(|value| match value {
                Value::Of(value) => value.to_string(),
                Value::Arm(arm) => format!("\"{arm}\""),
                Value::TimedOut => "null".to_owned(),
            });
            let (found, wanted) = ((status, output), (step.status.to_string(), value));
            if found != wanted {
                let (run, key) = (place(id), node.key());
                return Err(format!(
                    "step {key} of run {run}: {found:?}, the model: {wanted:?}"
                ));
            }
        }
        let fired: Vec<(i64, i32, i32)> = sqlx::query_as(
            "select run, round, position from pipeline.dispatched_callbacks where run = any ($1)",
        )
        .bind(&ids)
        .fetch_all(self.db.pool())
        .await
        .map_err(string)?;
        let fired: BTreeSet<(usize, u32, i32)> = fired
            .into_iter()
            .map(|(run, round, pos)| (place(run), round.cast_unsigned(), pos))
            .collect();
        if fired != story.fired {
            return Err(format!("fired {fired:?}, the model: {:?}", story.fired));
        }
        Ok(())
    }
}

impl Story {
    fn pipeline(&self) -> Pipeline {
        let steps = self.graph.spec().steps.iter();
        let params = steps.map(|step| step.options.as_ref().map(|_| "null".to_owned()));
        Pipeline::from_graph(self.graph.clone(), params.collect())
    }

    fn position(&self, on: CallbackOn) -> i32 {
        let mut callbacks = self.graph.spec().callbacks.iter();
        let at = callbacks.position(|callback| callback.on == on);
        at.and_then(|at| i32::try_from(at).ok()).unwrap_or(-1)
    }
}

/// Lost workers must not use up the attempts: the model knows no limit.
fn with_attempts(mut spec: GraphSpec) -> GraphSpec {
    for options in spec
        .steps
        .iter_mut()
        .filter_map(|step| step.options.as_mut())
    {
        options.max_attempts = 1_000;
    }
    spec
}

fn how(outcome: &Outcome, drains: bool) -> How {
    let fail = || How::Fail("Broken".to_owned(), "told to".to_owned());
    match outcome {
        Outcome::Success(value) => How::Success(value.to_string()),
        Outcome::EndRun(value) => How::EndOwner(value.to_string()),
        Outcome::Chose(arm) => How::Success(format!("\"{arm}\"")),
        Outcome::Retry => How::Retry,
        Outcome::Stopped if drains => How::Stop,
        Outcome::Stopped | Outcome::Failed | Outcome::Child => fail(),
    }
}
