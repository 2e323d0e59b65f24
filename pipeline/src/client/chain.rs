//! Chains: runs that start when others have succeeded.

use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use sqlx::PgConnection;

use super::new_run::{History, IntoRun, NewRun};
use super::start::{Target, chained};
use super::{Client, Run};
use crate::{Invalid, Result, RunId};

/// Runs of a chain that start together.
#[derive(Debug, Clone)]
pub struct Stage(pub(super) Vec<Result<NewRun, Invalid>>);

impl Stage {
    pub(super) fn of<O>(run: Result<NewRun<O>, Invalid>) -> Self {
        Self(vec![run.map(NewRun::erased)])
    }

    pub(super) fn all(stages: Vec<Self>) -> Self {
        Self(stages.into_iter().flat_map(|stage| stage.0).collect())
    }
}

/// What can be chained: one pipeline, a tuple of them, or a list (an array or a `Vec`).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be chained",
    label = "neither a pipeline, nor a tuple or a list of them",
    note = "declare one with `Pipeline::configure(..)?`, or derive `Pipeline` for its params"
)]
pub trait IntoStage {
    /// The runs.
    fn into_stage(self) -> Stage;
}

impl<R: IntoRun> IntoStage for R {
    fn into_stage(self) -> Stage {
        Stage::of(self.into_run())
    }
}

impl<R: IntoRun> IntoStage for Vec<R> {
    fn into_stage(self) -> Stage {
        Stage::all(self.into_iter().map(IntoStage::into_stage).collect())
    }
}

impl<R: IntoRun, const N: usize> IntoStage for [R; N] {
    fn into_stage(self) -> Stage {
        Vec::from(self).into_stage()
    }
}

macro_rules! tuples {
    ($($name:ident $at:tt),*) => {
        #[diagnostic::do_not_recommend]
        impl<$($name: IntoRun),*> IntoStage for ($($name,)*) {
            fn into_stage(self) -> Stage {
                Stage::all(vec![$(self.$at.into_stage()),*])
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// Starts runs together, or after others, when awaited; returns those of each stage.
#[must_use = "runs are started when this is awaited"]
pub struct Chain<'a> {
    client: Client,
    target: Target<'a>,
    after: Vec<i64>,
    stages: Vec<Stage>,
}

impl Chain<'_> {
    /// Chains the next to all of the stage before: they start when all of it has succeeded, and are
    /// skipped as soon as one of it ended otherwise.
    pub fn then(mut self, stage: impl IntoStage) -> Self {
        self.stages.push(stage.into_stage());
        self
    }

    fn with(mut self, change: impl Fn(NewRun) -> NewRun) -> Self {
        if let Some(first) = self.stages.first_mut() {
            let runs = std::mem::take(&mut first.0);
            first.0 = runs.into_iter().map(|run| run.map(&change)).collect();
        }
        self
    }

    /// On whose behalf the runs of the first stage run; those of a later one say it with [`NewRun`].
    pub fn actor(self, actor: impl Into<String>) -> Self {
        let actor = actor.into();
        self.with(|run| run.actor(&actor))
    }

    /// A word to find the runs of the first stage by, besides those of their pipelines.
    pub fn tag(self, tag: impl Into<String>) -> Self {
        let tag = tag.into();
        self.with(|run| run.tag(&tag))
    }

    /// What is kept of the runs of the first stage as events; by default, how the runs and each of
    /// their steps ended.
    pub fn history(self, history: History) -> Self {
        self.with(|run| run.history(history))
    }
}

impl<'a> IntoFuture for Chain<'a> {
    type Output = Result<Vec<Vec<Run>>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let stages = chained(&self.client, self.target, &self.after, self.stages).await?;
            let run = |(id, fresh): (i64, bool)| Run::new(self.client.clone(), id, fresh);
            Ok(stages
                .into_iter()
                .map(|stage| stage.into_iter().map(run).collect())
                .collect())
        })
    }
}

impl std::fmt::Debug for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chain")
            .field("after", &self.after)
            .field("stages", &self.stages.len())
            .finish()
    }
}

impl Client {
    /// Starts several runs at once, which others can be chained to: `client.start_all((a, b)).then(c)`.
    pub fn start_all(&self, stage: impl IntoStage) -> Chain<'_> {
        Chain {
            client: self.clone(),
            target: Target::Pool(self.pool()),
            after: Vec::new(),
            stages: vec![stage.into_stage()],
        }
    }

    /// The same inside a transaction of yours.
    pub fn start_all_in<'a>(&self, tx: &'a mut PgConnection, stage: impl IntoStage) -> Chain<'a> {
        Chain {
            client: self.clone(),
            target: Target::Connection(tx),
            after: Vec::new(),
            stages: vec![stage.into_stage()],
        }
    }

    /// Chains runs to runs that are there, whether they have ended or not:
    /// `client.after([a.id(), b.id()], c)` starts `c` when both have succeeded.
    pub fn after(&self, runs: impl IntoIterator<Item = RunId>, stage: impl IntoStage) -> Chain<'_> {
        Chain {
            client: self.clone(),
            target: Target::Pool(self.pool()),
            after: distinct(runs),
            stages: vec![stage.into_stage()],
        }
    }

    /// The same inside a transaction of yours: a worker takes it up when that is committed.
    pub fn after_in<'a>(
        &self,
        tx: &'a mut PgConnection,
        runs: impl IntoIterator<Item = RunId>,
        stage: impl IntoStage,
    ) -> Chain<'a> {
        Chain {
            client: self.clone(),
            target: Target::Connection(tx),
            after: distinct(runs),
            stages: vec![stage.into_stage()],
        }
    }
}

fn distinct(runs: impl IntoIterator<Item = RunId>) -> Vec<i64> {
    let mut runs: Vec<i64> = runs.into_iter().map(RunId::get).collect();
    runs.sort_unstable();
    runs.dedup();
    runs
}

impl<O> Run<O> {
    /// Chains runs to this one, whether it has ended or not.
    pub fn then(&self, stage: impl IntoStage) -> Chain<'_> {
        self.client().after([self.id()], stage)
    }

    /// The same inside a transaction of yours: a worker takes it up when that is committed.
    pub fn then_in<'a>(&self, tx: &'a mut PgConnection, stage: impl IntoStage) -> Chain<'a> {
        self.client().after_in(tx, [self.id()], stage)
    }
}
