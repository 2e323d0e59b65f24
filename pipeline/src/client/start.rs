//! Starting: alone, in the caller's transaction, in bulk; from the same types in each case.

use std::future::IntoFuture;
use std::marker::PhantomData;

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, PgPool};

use super::chain::{IntoStage, Stage};
use super::control::tell;
use super::grouped;
use super::new_run::{History, NewRun};
use super::plan::Plan;
use super::send::{on_connection, on_pool};
use super::{Client, Run};
use crate::coordinator::take_up_chains;
use crate::{Error, Invalid, Result};

/// Where the statements run.
pub(crate) enum Target<'a> {
    Pool(&'a PgPool),
    Connection(&'a mut PgConnection),
}

/// Starts one run when awaited, and with it those that are chained to it.
#[must_use = "a run is started when this is awaited"]
pub struct Start<'a, O> {
    client: Client,
    target: Target<'a>,
    run: Result<NewRun<O>, Invalid>,
    then: Vec<Stage>,
}

impl<'a, O> Start<'a, O> {
    pub(crate) fn new(
        client: &Client,
        target: Target<'a>,
        run: Result<NewRun<O>, Invalid>,
    ) -> Self {
        Self {
            client: client.clone(),
            target,
            run,
            then: Vec::new(),
        }
    }

    /// Chains runs to it: one, or a tuple or a list of them that all start when it has succeeded. Said
    /// again, chains the next to all of these. If a run does not succeed, all after it are skipped.
    pub fn then(mut self, stage: impl IntoStage) -> Self {
        self.then.push(stage.into_stage());
        self
    }

    fn with(mut self, change: impl FnOnce(NewRun<O>) -> NewRun<O>) -> Self {
        self.run = self.run.map(change);
        self
    }

    /// At most one run of this pipeline with this key, as long as it is kept: starting it again with the
    /// same params returns the run that is there, and with other params is [`Error::KeyConflict`]. The key
    /// stands for what is chained with [`then`](Self::then) too.
    pub fn key(self, key: impl Into<String>) -> Self {
        self.with(|run| run.key(key))
    }

    /// On whose behalf it runs.
    pub fn actor(self, actor: impl Into<String>) -> Self {
        self.with(|run| run.actor(actor))
    }

    /// A word to find it by, besides those of its pipeline.
    pub fn tag(self, tag: impl Into<String>) -> Self {
        self.with(|run| run.tag(tag))
    }

    /// What is kept of it as events; by default, how the run and each of its steps ended.
    pub fn history(self, history: History) -> Self {
        self.with(|run| run.history(history))
    }
}

impl<'a, O: Send + 'a> IntoFuture for Start<'a, O> {
    type Output = Result<Run<O>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut stages = vec![Stage::of(self.run)];
            stages.extend(self.then);
            let mut stages = chained(&self.client, self.target, &[], stages)
                .await?
                .into_iter();
            let first = stages.next().and_then(|mut stage| stage.pop());
            let (id, fresh) = first.ok_or(sqlx::Error::RowNotFound)?;
            let chained = stages.flatten().map(|(id, _)| id.into()).collect();
            Ok(Run::new(self.client, id, fresh).with_chained(chained))
        })
    }
}

/// Starts runs: checks all of them before any is written.
pub(crate) async fn start<O>(
    client: &Client,
    target: Target<'_>,
    runs: Vec<Result<NewRun<O>, Invalid>>,
) -> Result<Vec<Run<O>>> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let stage = runs.into_iter().map(Stage::of).collect::<Vec<_>>();
    let started = chained(client, target, &[], vec![Stage::all(stage)]).await?;
    Ok(started
        .into_iter()
        .flatten()
        .map(|(id, fresh)| Run::new(client.clone(), id, fresh))
        .collect())
}

/// Starts a single run together with other starts of this client that wait.
async fn together(client: &Client, stages: Vec<Vec<NewRun>>) -> Result<Vec<Vec<(i64, bool)>>> {
    let mut started = Vec::with_capacity(stages.len());
    for stage in stages {
        let mut ids = Vec::with_capacity(stage.len());
        for run in stage {
            ids.push((grouped::wait(client, run).await?, true));
        }
        started.push(ids);
    }
    Ok(started)
}

/// Starts the runs of each stage after those of the stage before it, and the first after these. Returns
/// their ids, and whether they are new.
pub(crate) async fn chained(
    client: &Client,
    mut target: Target<'_>,
    after: &[i64],
    stages: Vec<Stage>,
) -> Result<Vec<Vec<(i64, bool)>>> {
    let stages = stages
        .into_iter()
        .map(|stage| stage.0.into_iter().collect::<Result<Vec<_>, _>>())
        .collect::<Result<Vec<_>, _>>()?;
    let plan = Plan::of(&stages, after, client.bytes())?;
    if plan.count == 0 {
        return Ok(stages.iter().map(|_| Vec::new()).collect());
    }
    client.warn_unroutable(plan.demands());
    let is_groupable = matches!(target, Target::Pool(_)) && grouped::is_groupable(&plan);
    let sender = is_groupable.then(|| grouped::try_send(client)).flatten();
    if is_groupable && sender.is_none() {
        return together(client, stages).await;
    }
    let found = match &mut target {
        Target::Connection(connection) => on_connection(client, connection, &plan).await?,
        Target::Pool(pool) => on_pool(client, pool, &plan).await?,
    };
    drop(sender);
    if let (Target::Pool(pool), false) = (&target, after.is_empty()) {
        // The runs that it is chained to may have ended: then it begins, or is skipped, at once.
        let ids: Vec<i64> = found.iter().map(|(id, _)| *id).collect();
        let effects = take_up_chains(pool, &ids).await;
        tell(pool, &effects.queues, effects.notifications, false).await;
    }
    let mut found = found.into_iter();
    let mut started = Vec::new();
    for stage in &stages {
        let mut ids = Vec::new();
        for (run, found) in stage.iter().zip(&mut found) {
            match found {
                (id, Some(false)) => {
                    return Err(Error::KeyConflict {
                        pipeline: run.pipeline.name().to_owned(),
                        key: run.key.clone().unwrap_or_default(),
                        run: id.into(),
                    });
                }
                (id, found) => ids.push((id, found.is_none())),
            }
        }
        started.push(ids);
    }
    Ok(started)
}

impl<O> std::fmt::Debug for Start<'_, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start")
            .field("run", &self.run.as_ref().map(|run| run.pipeline.name()))
            .finish()
    }
}

/// Only to name the type that a run returns.
pub(crate) type Returns<O> = PhantomData<fn() -> O>;
