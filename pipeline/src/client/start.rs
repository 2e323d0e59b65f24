//! Starts runs: alone, together, in bulk, in the caller's transaction, after other runs.

use std::future::IntoFuture;
use std::marker::PhantomData;

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, PgPool};

use super::grouped;
use super::new_run::{EventLevel, NewRun};
use super::send::{Found, FoundRun, on_connection, on_pool};
use super::stage::{IntoStage, Stage, Started, StartedRuns};
use super::start_plan::StartPlan;
use super::{Client, Run};
use crate::db::requests::process_chain_requests;
use crate::{Error, Result, RunId};

/// The connection that a start is sent on.
pub(crate) enum Target<'a> {
    Pool(&'a PgPool),
    Connection(&'a mut PgConnection),
}

/// Starts runs when awaited, and returns those of its first stage.
///
/// `R` is the type of the returned runs: [`Run<O>`](Run) for one pipeline, a tuple of runs for a tuple of
/// pipelines, a `Vec` of runs for an array or a `Vec`. The call writes all of its runs in one transaction, or none.
#[must_use = "runs are started when this is awaited"]
pub struct Start<'a, R> {
    client: Client,
    target: Target<'a>,
    after: Vec<i64>,
    first: Stage,
    rest: Vec<Stage>,
    runs: PhantomData<fn() -> R>,
}

impl<'a, R> Start<'a, R> {
    pub(super) fn new<S: IntoStage<Runs = R>>(
        client: &Client,
        target: Target<'a>,
        stage: S,
    ) -> Self {
        Self {
            client: client.clone(),
            target,
            after: Vec::new(),
            first: stage.into_stage(),
            rest: Vec::new(),
            runs: PhantomData,
        }
    }

    /// Chains the next stage: one run, or a tuple, an array or a `Vec` of runs that start together when all runs of
    /// the stage before have succeeded. If one of those runs ends otherwise, all runs after it are skipped.
    ///
    /// The start still returns the runs of its first stage; [`Run::chained`] leads to the others.
    pub fn then(mut self, stage: impl IntoStage) -> Self {
        self.rest.push(stage.into_stage());
        self
    }

    /// Chains the first stage to existing runs, whether they have ended or not: it starts when all of them have
    /// succeeded, and is skipped as soon as one of them ends otherwise.
    ///
    /// ```no_run
    /// # use pipeline::{Client, Pipeline};
    /// # async fn example(client: Client, [a, b, c]: [Pipeline; 3]) -> pipeline::Result<()> {
    /// let (a, b) = client.start((a, b)).await?;
    /// let c = client.start(c).after([&a, &b]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn after<I>(mut self, runs: I) -> Self
    where
        I: IntoIterator<Item: Into<RunId>>,
    {
        let runs = runs.into_iter().map(Into::into);
        self.after.extend(runs.map(RunId::get));
        self.after.sort_unstable();
        self.after.dedup();
        self
    }

    fn with(mut self, change: impl Fn(NewRun) -> NewRun) -> Self {
        self.first.change(change);
        self
    }

    /// Sets the actor on whose behalf the runs of the first stage run. A run of a later stage has its own:
    /// [`NewRun::actor`].
    pub fn actor(self, actor: impl Into<String>) -> Self {
        let actor = actor.into();
        self.with(|run| run.actor(&actor))
    }

    /// Adds a tag to the runs of the first stage, besides the tags of their pipelines.
    pub fn tag(self, tag: impl Into<String>) -> Self {
        let tag = tag.into();
        self.with(|run| run.tag(&tag))
    }

    /// Sets which events of the runs of the first stage are stored; by default, those of the run and the end of each
    /// step.
    pub fn event_level(self, level: EventLevel) -> Self {
        self.with(|run| run.event_level(level))
    }
}

impl<O> Start<'_, Run<O>> {
    /// Sets the key of the run, which is unique among the runs of its pipeline.
    ///
    /// As long as the run is kept, starting the pipeline again with the same key and params returns the existing run,
    /// and starting it with other params returns [`Error::KeyConflict`]. The key also applies to the runs that are
    /// chained with [`then`](Self::then).
    pub fn key(self, key: impl Into<String>) -> Self {
        let key = key.into();
        self.with(|run| run.key(&key))
    }
}

impl<'a, R: StartedRuns + Send + 'a> IntoFuture for Start<'a, R> {
    type Output = Result<R>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let first = self.first.into_runs()?;
            let count = first.len();
            let mut stages = vec![first];
            for stage in self.rest {
                stages.push(stage.into_runs()?);
            }
            // A stage without runs is passed over.
            stages.retain(|stage| !stage.is_empty());
            let mut started = start(&self.client, self.target, &self.after, stages).await?;
            started.truncate(count);
            let mut started = Started::new(&self.client, started);
            let runs = R::take(&mut started).ok_or(sqlx::Error::RowNotFound)?;
            Ok(runs)
        })
    }
}

impl<R> std::fmt::Debug for Start<'_, R> {
    /// Omits the params, which must not appear in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start")
            .field("after", &self.after)
            .field("first", &self.first)
            .field("rest", &self.rest)
            .finish()
    }
}

/// Starts a single run together with other waiting starts of this client.
async fn start_grouped(client: &Client, run: NewRun) -> Result<Vec<(i64, bool)>> {
    Ok(vec![(grouped::wait(client, run).await?, true)])
}

/// Starts the runs of each stage after those of the stage before it, and the first stage after the runs `after`.
/// Checks all runs before any is written. Returns the id of each run, stage after stage, and whether the run is new.
async fn start(
    client: &Client,
    mut target: Target<'_>,
    after: &[i64],
    mut stages: Vec<Vec<NewRun>>,
) -> Result<Vec<(i64, bool)>> {
    let plan = StartPlan::of(&stages, after, client.bytes())?;
    if plan.count == 0 {
        return Ok(Vec::new());
    }
    client.warn_unroutable(plan.demands());
    let is_groupable = matches!(target, Target::Pool(_)) && grouped::is_groupable(&plan);
    let sender = is_groupable.then(|| grouped::try_send(client)).flatten();
    if is_groupable && sender.is_none() {
        drop(plan);
        let only = stages.pop().and_then(|mut stage| stage.pop());
        let run = only.ok_or(sqlx::Error::RowNotFound)?;
        return start_grouped(client, run).await;
    }
    let found = match &mut target {
        Target::Connection(connection) => on_connection(client, connection, &plan).await?,
        Target::Pool(pool) => on_pool(client, pool, &plan).await?,
    };
    drop(sender);
    if let (Target::Pool(pool), false) = (&target, after.is_empty()) {
        // If the runs before them in the chain have ended, the new runs start or are skipped at once.
        let ids: Vec<i64> = found.iter().map(|run| run.id).collect();
        process_chain_requests(pool, &ids).await;
    }
    let runs = stages.iter().flatten().zip(found);
    runs.map(|(run, FoundRun { id, found })| match found {
        Found::New => Ok((id, true)),
        Found::Existing => Ok((id, false)),
        Found::Conflict => Err(Error::KeyConflict {
            pipeline: run.pipeline.name().to_owned(),
            key: run.key.clone().unwrap_or_default(),
            run: id.into(),
        }),
    })
    .collect()
}

/// A marker for the type of a run's output.
pub(crate) type Returns<O> = PhantomData<fn() -> O>;
