//! A worker whose claims and ends the test makes one by one; its steps are never performed.

use std::collections::HashMap;

use ::jobs::extension::Claimed;
use ::jobs::testing::{ManualEngine, Outcome, Slots, Turn};
use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Branch, Client, Pipeline, PipelineBuilder, Run, Step, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tests::Database;

use crate::runs::support::{Act, Told};

/// What a branch of these tests chooses between.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, Branch)]
pub(super) enum Way {
    Hd,
    Sd,
}

/// Decides by what the steps before it returned; after none, it is a root.
#[derive(Debug, Serialize, Deserialize, Job)]
pub(super) struct Choose;

impl Perform for Choose {
    type Input = Vec<String>;
    type Output = Way;

    async fn perform(self, _: Vec<String>, _: &Context) -> Result<Way, JobError> {
        Ok(Way::Hd)
    }
}

/// A pipeline called `p`.
pub(super) fn declare(steps: impl FnOnce(&PipelineBuilder)) -> Pipeline {
    named("p", steps)
}

pub(super) fn named(name: &str, steps: impl FnOnce(&PipelineBuilder)) -> Pipeline {
    Pipeline::configure(name, |p| steps(p)).unwrap()
}

/// A branch called `way`: one arm has a step, `work`, and the other none. After nothing, it is a root.
pub(super) fn work_or_nothing(p: &PipelineBuilder, upstreams: &[Step<String>]) -> Step<()> {
    let hd = || {
        p.step("work", Act("work".into()));
    };
    let arms = WayArms { hd, sd: || {} };
    p.after(upstreams).branch("way", Choose, arms)
}

/// The three callbacks, each of which is told what it is for.
pub(super) fn callbacks(p: &PipelineBuilder) {
    p.on_complete(Told("complete".into()));
    p.on_success(Told("success".into()));
    p.on_failure(Told("failure".into()));
}

pub(super) fn success() -> Outcome {
    Outcome::Success("\"done\"".into())
}

pub(super) fn failure() -> Outcome {
    Outcome::Discard("Broken".into(), "made to".into())
}

pub(super) fn end_run() -> Outcome {
    Outcome::EndOwner("\"enough\"".into())
}

/// The answer of a deciding step.
pub(super) fn chose(arm: &str) -> Outcome {
    Outcome::Success(format!("\"{arm}\""))
}

/// An engine of its own.
pub(super) async fn engine(pool: &PgPool) -> ManualEngine {
    let worker = Worker::new(pool.clone())
        .register::<(Act, Told, Choose)>()
        .queue("*", 1_000);
    worker.into_jobs().manual().await.unwrap()
}

pub(super) const CLAIM: Slots = Slots {
    free: 100,
    claim: true,
};

pub(super) struct Hand<'a> {
    pub(super) db: &'a Database,
    pub(super) client: Client,
    pub(super) engine: ManualEngine,
    /// What was taken and has not ended.
    open: HashMap<i64, Claimed>,
    /// The last attempt that was taken, for each job.
    last: HashMap<i64, Claimed>,
}

impl<'a> Hand<'a> {
    pub(super) async fn new(db: &'a Database) -> Self {
        Self {
            db,
            client: Client::new(db.pool().clone()),
            engine: engine(db.pool()).await,
            open: HashMap::new(),
            last: HashMap::new(),
        }
    }

    pub(super) async fn start(&self, pipeline: Pipeline) -> Run {
        self.client.start(pipeline).await.unwrap()
    }

    /// Takes all that is due; how many jobs that were.
    pub(super) async fn take(&mut self) -> usize {
        self.engine.tick().await.unwrap();
        let turn = self.engine.turn(Vec::new(), CLAIM, true).await.unwrap();
        let count = turn.claimed.len();
        for job in turn.claimed {
            self.last.insert(job.id, job.clone());
            self.open.insert(job.id, job);
        }
        count
    }

    /// The attempt of this step that was taken last.
    pub(super) async fn taken<O>(&mut self, run: &Run<O>, step: &str) -> Claimed {
        let id = self.job(run, step).await;
        if !self.open.contains_key(&id) && !self.last.contains_key(&id) {
            self.take().await;
        }
        let job = self.last.get(&id).cloned();
        job.unwrap_or_else(|| panic!("`{step}` cannot be taken"))
    }

    /// The id of a step's job.
    pub(super) async fn job<O>(&self, run: &Run<O>, step: &str) -> i64 {
        sqlx::query_scalar("select batch from pipeline.run_steps where run = $1 and step = $2")
            .bind(run.id())
            .bind(step)
            .fetch_one(self.db.pool())
            .await
            .unwrap()
    }

    /// Sends the end of the attempt that was taken last, for the first time or again.
    async fn send<O>(&mut self, run: &Run<O>, step: &str, how: &Outcome) -> Turn {
        let job = self.taken(run, step).await;
        self.open.remove(&job.id);
        let ends = vec![ManualEngine::end(&job, how)];
        let turn = self.engine.turn(ends, Slots::default(), true).await;
        if *how == Outcome::Retry {
            self.last.remove(&job.id);
        }
        turn.unwrap()
    }

    /// Ends a step, which is taken first if it was not.
    pub(super) async fn end<O>(&mut self, run: &Run<O>, step: &str, how: Outcome) {
        let turn = self.send(run, step, &how).await;
        assert_eq!(turn.ended.len(), 1, "the end of `{step}` changed nothing");
    }

    /// The end comes again, or late: it changes nothing.
    pub(super) async fn again<O>(&mut self, run: &Run<O>, step: &str, how: Outcome) {
        let turn = self.send(run, step, &how).await;
        assert_eq!(turn.stale.len(), 1, "the end of `{step}` counted again");
    }

    pub(super) async fn succeed<O>(&mut self, run: &Run<O>, step: &str) {
        self.end(run, step, success()).await;
    }

    pub(super) async fn fail<O>(&mut self, run: &Run<O>, step: &str) {
        self.end(run, step, failure()).await;
    }

    /// Runs all there is until nothing is left; steps that nothing is said of succeed.
    pub(super) async fn drain(&mut self, told: &[(&str, Outcome)]) {
        loop {
            self.take().await;
            if self.open.is_empty() {
                return;
            }
            let mut ends = Vec::new();
            for (id, job) in std::mem::take(&mut self.open) {
                let step: Option<String> =
                    sqlx::query_scalar("select step from pipeline.run_steps where batch = $1")
                        .bind(id)
                        .fetch_optional(self.db.pool())
                        .await
                        .unwrap();
                let how = told.iter().find(|(key, _)| Some(*key) == step.as_deref());
                let how = how.map_or_else(success, |(_, how)| how.clone());
                ends.push(ManualEngine::end(&job, &how));
            }
            let turn = self.engine.turn(ends, Slots::default(), true).await;
            turn.unwrap();
        }
    }

    /// The run has this status, and its steps these: `a failed, b skipped`.
    #[track_caller]
    pub(super) fn is<'s, O>(
        &'s self,
        run: &Run<O>,
        status: &'s str,
        steps: &'s str,
    ) -> impl Future<Output = ()> + 's {
        let (at, run) = (std::panic::Location::caller(), run.id());
        async move {
            let found = (self.status(run).await, self.steps(run).await);
            let wanted = (status.to_owned(), steps.to_owned());
            assert_eq!(found, wanted, "at {at}");
        }
    }

    pub(super) async fn status(&self, run: pipeline::RunId) -> String {
        sqlx::query_scalar("select status::text from pipeline.runs where id = $1")
            .bind(run)
            .fetch_one(self.db.pool())
            .await
            .unwrap()
    }

    async fn steps(&self, run: pipeline::RunId) -> String {
        let steps: Vec<String> = sqlx::query_scalar(
            "select step || ' ' || status from pipeline.run_steps where run = $1 order by no",
        )
        .bind(run)
        .fetch_all(self.db.pool())
        .await
        .unwrap();
        steps.join(", ")
    }

    /// The callbacks that a run has fired, in all its rounds.
    pub(super) async fn fired<O>(&self, run: &Run<O>) -> String {
        let fired: Vec<String> = sqlx::query_scalar(
            "select c.fires from pipeline.dispatched_callbacks f
             join pipeline.runs r on r.id = f.run
             join pipeline.callbacks c on c.graph = r.graph and c.position = f.position
             join pipeline.all_jobs j on j.id = f.job
             where f.run = $1 order by f.round, f.position",
        )
        .bind(run.id())
        .fetch_all(self.db.pool())
        .await
        .unwrap();
        fired.join(", ")
    }

    /// A value about a run: `$1` is its id.
    pub(super) async fn ask<O, T>(&self, run: &Run<O>, question: &'static str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        sqlx::query_scalar(question)
            .bind(run.id())
            .fetch_one(self.db.pool())
            .await
            .unwrap()
    }

    /// How many jobs of a run's steps are in the queue.
    pub(super) async fn queued<O>(&self, run: &Run<O>) -> i64 {
        let question = "select count(*) from pipeline.jobs
                        where id % 2 = 0 and pipeline.run_of(id) = $1";
        self.ask(run, question).await
    }

    /// Whether the run's callbacks have been dispatched.
    pub(super) async fn is_stamped<O>(&self, run: &Run<O>) -> bool {
        let question =
            "select callbacks_dispatched_at is not null from pipeline.runs where id = $1";
        self.ask(run, question).await
    }

    /// Whether a step that failed under Halt has halted the run.
    pub(super) async fn is_halted<O>(&self, run: &Run<O>) -> bool {
        self.ask(
            run,
            "select halt_triggered from pipeline.runs where id = $1",
        )
        .await
    }
}
