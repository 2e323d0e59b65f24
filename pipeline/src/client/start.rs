//! Starting: alone, in the caller's transaction, in bulk; from the same types in each case.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::ops::Range;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::limits;
use sha2::{Digest as _, Sha256};
use sqlx::{Connection as _, PgConnection, PgPool};

use super::chain::{IntoStage, Stage};
use super::control::{request, tell};
use super::{Client, Run};
use crate::coordinator::{kind_name, store, take_up};
use crate::declare::{Named, Pipeline, PipelineOutput};
use crate::graph::spec::StepKind;
use crate::{Error, Invalid, Result};

/// The most tags of a run, and the longest.
const TAGS: usize = 16;
const TAG: usize = 64;
/// The longest actor.
const ACTOR: usize = 256;
/// So many steps go into one statement, and so many at most into one call.
const STATEMENT: usize = 50_000;
const CALL: usize = 1_000_000;
/// How many ids are taken ahead.
const AHEAD: usize = 64;
/// How often a start is sent again whose answer was lost.
const AGAIN: u32 = 3;

/// What is kept of a run as [events](Run::events).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum History {
    /// Nothing.
    None = 0,
    /// That the run started and how it ended.
    Runs = 1,
    /// The end of each step besides.
    #[default]
    Steps = 2,
    /// Each step that was enqueued besides.
    All = 3,
}

/// A run to be, and what is different about it.
#[derive(Debug)]
pub struct NewRun<O = ()> {
    pipeline: Pipeline<O>,
    key: Option<String>,
    actor: Option<String>,
    tags: Vec<String>,
    history: History,
}

impl<O> NewRun<O> {
    /// A run of this pipeline.
    pub fn new(pipeline: Pipeline<O>) -> Self {
        Self {
            tags: pipeline.graph().spec().tags.clone(),
            pipeline,
            key: None,
            actor: None,
            history: History::default(),
        }
    }

    /// At most one run of this pipeline with this key, ever: starting it again with the same params
    /// returns the run that is there.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// On whose behalf it runs.
    #[must_use]
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// A word to find it by, besides those of its pipeline.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// What is kept of it as events; by default, how the run and each of its steps ended.
    #[must_use]
    pub fn history(mut self, history: History) -> Self {
        self.history = history;
        self
    }

    /// The same run, whatever it returns.
    pub(crate) fn erased(self) -> NewRun {
        NewRun {
            pipeline: self.pipeline.erased(),
            key: self.key,
            actor: self.actor,
            tags: self.tags,
            history: self.history,
        }
    }

    /// Everything that can be wrong with it, before anything is written.
    fn check(&self) -> Result<()> {
        let name = || self.pipeline.name().to_owned();
        for node in self.pipeline.graph().nodes() {
            match node.kind() {
                StepKind::Job { .. }
                | StepKind::Branch { .. }
                | StepKind::Merge { .. }
                | StepKind::Barrier => {}
                kind => {
                    return Err(Error::NotRunnable {
                        pipeline: name(),
                        step: node.key().to_owned(),
                        kind: kind_name(kind),
                    });
                }
            }
        }
        let specs = &self.pipeline.graph().spec().steps;
        for (spec, params) in specs.iter().zip(self.pipeline.params()) {
            if let Some(params) = params {
                text(&spec.key, "params", params, limits::DATA)?;
            }
        }
        for params in self.pipeline.callback_params() {
            text(
                self.pipeline.name(),
                "callback's params",
                params,
                limits::DATA,
            )?;
        }
        if let Some(params) = self.pipeline.own_params() {
            text(self.pipeline.name(), "params", params, limits::DATA)?;
        }
        let word = |what, word: &str, limit| {
            if word.is_empty() {
                return Err(Error::Empty {
                    pipeline: name(),
                    what,
                });
            }
            text(self.pipeline.name(), what, word, limit)
        };
        if let Some(key) = &self.key {
            word("key", key, limits::KEY)?;
        }
        if let Some(actor) = &self.actor {
            word("actor", actor, ACTOR)?;
        }
        if self.tags.len() > TAGS {
            return Err(Error::TooManyTags {
                pipeline: name(),
                count: self.tags.len(),
                limit: TAGS,
            });
        }
        self.tags.iter().try_for_each(|tag| word("tag", tag, TAG))
    }

    /// What "the same params" means: those of the pipeline where it has its own, else those of its
    /// steps and callbacks; the order of keys in an object does not matter.
    fn params_hash(&self) -> Vec<u8> {
        let mut hash = Sha256::new();
        let mut add = |json: Option<&str>| {
            let value: Option<serde_json::Value> =
                json.and_then(|json| serde_json::from_str(json).ok());
            let text = value.map_or_else(String::new, |value| value.to_string());
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        match self.pipeline.own_params() {
            Some(params) => add(Some(params)),
            None => {
                let steps = self.pipeline.graph().spec().steps.iter();
                for (step, params) in steps.zip(self.pipeline.params()) {
                    add(Some(&format!("{:?}", step.key)));
                    add(params.as_deref());
                }
                for params in self.pipeline.callback_params() {
                    add(Some(params));
                }
            }
        }
        hash.finalize().to_vec()
    }
}

/// Text of a bearable length, without the one character that Postgres cannot store.
fn text(of: &str, what: &'static str, text: &str, limit: usize) -> Result<()> {
    if text.len() > limit {
        return Err(Error::TooLarge {
            of: of.to_owned(),
            what,
            size: text.len(),
            limit,
        });
    }
    if text.contains('\0') || limits::has_nul(text) {
        return Err(Error::HasNul {
            of: of.to_owned(),
            what,
        });
    }
    Ok(())
}

/// What can be started: a pipeline, the params of a named one, or a [`NewRun`] that says more about
/// it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pipeline that can be started",
    label = "neither a `Pipeline` nor the params of a named one",
    note = "declare one with `Pipeline::configure(..)?`, or derive `Pipeline` for its params"
)]
pub trait IntoRun {
    /// What a run of it returns.
    type Output;

    /// The run with its options.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the graph, at once.
    fn into_run(self) -> Result<NewRun<Self::Output>, Invalid>;
}

impl<O> IntoRun for NewRun<O> {
    type Output = O;

    fn into_run(self) -> Result<Self, Invalid> {
        Ok(self)
    }
}

impl<O> IntoRun for Pipeline<O> {
    type Output = O;

    fn into_run(self) -> Result<NewRun<O>, Invalid> {
        Ok(NewRun::new(self))
    }
}

impl<P: Named> IntoRun for P {
    type Output = <P::Output as PipelineOutput>::Value;

    fn into_run(self) -> Result<NewRun<Self::Output>, Invalid> {
        Ok(NewRun::new(self.pipeline()?))
    }
}

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

    /// At most one run of this pipeline with this key, ever: starting it again with the same params
    /// returns the run that is there, and with other params is [`Error::KeyConflict`].
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
            let chained = stages.flatten().map(|(id, _)| id).collect();
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
    let plan = Plan::of(&stages, after)?;
    if plan.count == 0 {
        return Ok(stages.iter().map(|_| Vec::new()).collect());
    }
    let found = match &mut target {
        Target::Connection(connection) => {
            let ids = client.take_ids(connection, plan.count).await?;
            insert(client, connection, &plan, &ids).await?
        }
        Target::Pool(pool) => on_pool(client, pool, &plan).await?,
    };
    if let (Target::Pool(pool), false) = (&target, after.is_empty()) {
        // What it is chained to may have ended: that acts at once. If we die here, a worker takes it up.
        let settled = take_up(&mut *pool.acquire().await?).await?;
        let stops = !settled.stop.is_empty();
        tell(pool, &settled.queues, settled.news, stops).await;
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
                        run: id,
                    });
                }
                (id, found) => ids.push((id, found.is_none())),
            }
        }
        started.push(ids);
    }
    Ok(started)
}

/// A start, ready to be sent.
struct Plan<'a> {
    /// Those of the first stage.
    first: Vec<Group<'a>>,
    /// Those that are chained to it.
    rest: Vec<Group<'a>>,
    count: usize,
    /// How many runs each stage has.
    stages: Vec<usize>,
    after: &'a [i64],
}

impl<'a> Plan<'a> {
    /// Checks everything, before anything is written.
    fn of(stages: &'a [Vec<NewRun>], after: &'a [i64]) -> Result<Self> {
        let runs = || stages.iter().flatten();
        let steps: usize = runs().map(|run| run.pipeline.graph().len()).sum();
        if steps > CALL {
            return Err(Error::TooMany {
                what: "steps",
                count: steps,
                limit: CALL,
            });
        }
        runs().try_for_each(NewRun::check)?;
        for (at, stage) in stages.iter().enumerate() {
            let keyed = stage.iter().find(|run| run.key.is_some());
            if let (Some(run), true) = (keyed, at > 0 || !after.is_empty()) {
                return Err(Error::KeyInChain {
                    pipeline: run.pipeline.name().to_owned(),
                    key: run.key.clone().unwrap_or_default(),
                });
            }
        }
        Ok(Self {
            first: Group::of(stages, 0..1, !after.is_empty()),
            rest: Group::of(stages, 1..stages.len(), true),
            count: runs().count(),
            stages: stages.iter().map(Vec::len).collect(),
            after,
        })
    }

    /// "After" between the runs: each stage after all of the one before.
    fn chains(&self, ids: &[i64]) -> (Vec<i64>, Vec<i64>) {
        let (mut ups, mut downs) = (Vec::new(), Vec::new());
        let mut before = self.after;
        let mut rest = ids;
        for (at, count) in self.stages.iter().enumerate() {
            let (stage, after) = rest.split_at(*count);
            for down in stage {
                for up in before {
                    ups.push(*up);
                    downs.push(*down);
                }
            }
            if !stage.is_empty() || at == 0 {
                before = stage;
            }
            rest = after;
        }
        (ups, downs)
    }
}

/// On a connection of our own, where a lost answer can be asked for again: the ids are known, and a
/// start that has been committed is recognised.
async fn on_pool(
    client: &Client,
    pool: &PgPool,
    plan: &Plan<'_>,
) -> Result<Vec<(i64, Option<bool>)>> {
    let mut connection = pool.acquire().await?;
    let ids = client.take_ids(&mut connection, plan.count).await?;
    let mut tries = 0;
    loop {
        let outcome = async {
            let mut tx = connection.begin().await?;
            let found = insert(client, &mut tx, plan, &ids).await?;
            if found.iter().any(|(_, found)| *found == Some(false)) {
                // All of them or none.
                tx.rollback().await?;
            } else {
                tx.commit().await?;
            }
            Ok(found)
        };
        match outcome.await {
            Err(Error::Database(error)) if tries < AGAIN && is_passing(&error) => {
                tracing::debug!(%error, "a start is sent again");
                tries += 1;
                // Given back first: it may be the only one.
                drop(connection);
                tokio::time::sleep(Duration::from_millis(50 << tries)).await;
                connection = pool.acquire().await?;
            }
            outcome => return outcome,
        }
    }
}

/// Whether an error says nothing about what was sent: the connection broke, or another transaction
/// was in the way.
pub(super) fn is_passing(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(error) => matches!(
            error.code().as_deref(),
            Some("40001" | "40P01" | "57P01" | "57P02" | "57P03")
        ),
        _ => false,
    }
}

/// Runs of one graph: what one statement starts.
struct Group<'a> {
    graph: &'a crate::Graph,
    /// Where they are in the call.
    at: Vec<usize>,
    history: Vec<i16>,
    params: Vec<Option<&'a str>>,
    callbacks: Vec<Option<String>>,
    hashes: Vec<Option<Vec<u8>>>,
    keys: Vec<Option<&'a str>>,
    actors: Vec<Option<&'a str>>,
    tags: Vec<Option<String>>,
    rerun_of: Vec<Option<i64>>,
    pending: Vec<bool>,
    steps: Vec<Option<&'a str>>,
}

impl<'a> Group<'a> {
    fn of(stages: &'a [Vec<NewRun>], which: Range<usize>, pending: bool) -> Vec<Self> {
        let mut open: BTreeMap<_, Self> = BTreeMap::new();
        let mut full = Vec::new();
        let before: usize = stages.iter().take(which.start).map(Vec::len).sum();
        let runs = stages.get(which).unwrap_or_default().iter().flatten();
        for (at, run) in runs.enumerate() {
            let at = before + at;
            let graph = run.pipeline.graph();
            let group = open
                .entry(graph.fingerprint())
                .or_insert_with(|| Self::new(graph));
            group.add(at, run, pending);
            if group.steps.len() >= STATEMENT
                && let Some(group) = open.remove(&graph.fingerprint())
            {
                full.push(group);
            }
        }
        full.extend(open.into_values());
        full
    }

    fn new(graph: &'a crate::Graph) -> Self {
        Self {
            graph,
            at: Vec::new(),
            history: Vec::new(),
            params: Vec::new(),
            callbacks: Vec::new(),
            hashes: Vec::new(),
            keys: Vec::new(),
            actors: Vec::new(),
            tags: Vec::new(),
            rerun_of: Vec::new(),
            pending: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn add(&mut self, at: usize, run: &'a NewRun, pending: bool) {
        let pipeline = &run.pipeline;
        let callbacks = pipeline.callback_params();
        self.at.push(at);
        self.history.push(run.history as i16);
        self.params.push(pipeline.own_params());
        self.callbacks
            .push((!callbacks.is_empty()).then(|| format!("[{}]", callbacks.join(","))));
        self.hashes
            .push(run.key.as_ref().map(|_| run.params_hash()));
        self.keys.push(run.key.as_deref());
        self.actors.push(run.actor.as_deref());
        self.tags.push(
            (!run.tags.is_empty()).then(|| serde_json::Value::from(run.tags.clone()).to_string()),
        );
        self.rerun_of.push(None);
        self.pending.push(pending);
        // Params lie as the steps were declared, and rows as the graph numbers them.
        let declared = pipeline.params();
        self.steps.extend(
            pipeline
                .graph()
                .nodes()
                .map(|node| declared.get(node.declared()).and_then(Option::as_deref)),
        );
    }

    /// `None` where the graph is not there.
    async fn insert(
        &self,
        connection: &mut PgConnection,
        graph: i64,
        ids: &[i64],
    ) -> Result<Option<Vec<(i64, Option<bool>)>>, sqlx::Error> {
        let ids: Vec<i64> = self.at.iter().map(|at| ids[*at]).collect();
        let mut rows = sqlx::query_file!(
            "src/sql/start.sql",
            graph,
            &ids,
            &self.history,
            &self.params as &[Option<&str>],
            &self.callbacks as &[Option<String>],
            &self.hashes as &[Option<Vec<u8>>],
            &self.keys as &[Option<&str>],
            &self.actors as &[Option<&str>],
            &self.tags as &[Option<String>],
            &self.rerun_of as &[Option<i64>],
            &self.pending,
            &self.steps as &[Option<&str>],
        )
        .fetch_all(connection)
        .await?;
        rows.sort_unstable_by_key(|row| row.ord);
        let found = rows.into_iter().map(|row| (row.id, row.found)).collect();
        Ok(Some(found).filter(|found: &Vec<_>| !found.is_empty()))
    }
}

async fn insert(
    client: &Client,
    connection: &mut PgConnection,
    plan: &Plan<'_>,
    ids: &[i64],
) -> Result<Vec<(i64, Option<bool>)>> {
    if !plan.after.is_empty()
        && let Some(missing) = sqlx::query_file_scalar!("src/sql/missing_runs.sql", plan.after)
            .fetch_optional(&mut *connection)
            .await?
    {
        return Err(Error::NoRun(missing));
    }
    let mut found = vec![(0, None); ids.len()];
    insert_groups(client, connection, &plan.first, ids, &mut found).await?;
    let first = plan.stages.first().copied().unwrap_or(0);
    if !plan.rest.is_empty() && found[..first].iter().any(|(_, found)| found.is_some()) {
        // Its key led to a run that is there, and with it what was chained to it then.
        let ups: Vec<i64> = found[..first].iter().map(|(id, _)| *id).collect();
        let there = sqlx::query_scalar!(
            r#"select run as "run!" from unnest(pipeline.reach_v1($1)) as run order by run"#,
            &ups
        )
        .fetch_all(&mut *connection)
        .await?;
        let same = found[..first]
            .iter()
            .all(|(_, found)| *found != Some(false));
        for (at, run) in found[first..].iter_mut().zip(there) {
            *at = (run, Some(same));
        }
        return Ok(found);
    }
    insert_groups(client, connection, &plan.rest, ids, &mut found).await?;
    if plan.stages.len() > 1 || !plan.after.is_empty() {
        let ids: Vec<i64> = found.iter().map(|(id, _)| *id).collect();
        let (ups, downs) = plan.chains(&ids);
        sqlx::query_file!("src/sql/chain.sql", &ups, &downs)
            .execute(&mut *connection)
            .await?;
        if !plan.after.is_empty() {
            request(connection, "chain", &ids[..first]).await?;
        }
    }
    Ok(found)
}

async fn insert_groups(
    client: &Client,
    connection: &mut PgConnection,
    groups: &[Group<'_>],
    ids: &[i64],
    found: &mut [(i64, Option<bool>)],
) -> Result<()> {
    for group in groups {
        let fingerprint = group.graph.fingerprint();
        let known = client.shared.graphs.lock().get(&fingerprint).copied();
        let mut inserted = match known {
            Some(graph) => group.insert(connection, graph, ids).await?,
            None => None,
        };
        if inserted.is_none() {
            // Not there, or stored by a transaction that was rolled back.
            let graph = store(connection, group.graph).await?;
            client.shared.graphs.lock().insert(fingerprint, graph);
            inserted = group.insert(connection, graph, ids).await?;
        }
        for (at, one) in group.at.iter().zip(inserted.into_iter().flatten()) {
            found[*at] = one;
        }
    }
    Ok(())
}

/// A new run of the graph that another has, with the same params.
pub(super) async fn copy<O>(run: &Run<O>) -> Result<Run<O>> {
    let mut connection = run.client().pool().acquire().await?;
    let ids = run.client().take_ids(&mut connection, 1).await?;
    let copied = sqlx::query_file_scalar!("src/sql/rerun.sql", run.id(), &ids)
        .fetch_optional(&mut *connection)
        .await?;
    let id = copied.ok_or(Error::NoRun(run.id()))?;
    Ok(Run::new(run.client().clone(), id, true))
}

impl Client {
    /// Ids for runs, of which some are taken ahead.
    async fn take_ids(
        &self,
        connection: &mut PgConnection,
        count: usize,
    ) -> Result<Vec<i64>, sqlx::Error> {
        let take = |ids: &mut Vec<i64>| {
            let rest = ids.len().checked_sub(count)?;
            let mut taken = ids.split_off(rest);
            taken.reverse();
            Some(taken)
        };
        if let Some(taken) = take(&mut self.shared.ids.lock()) {
            return Ok(taken);
        }
        let mut fresh = sqlx::query_scalar!(
            r#"select nextval('pipeline.run_ids') as "id!" from generate_series(1, $1)"#,
            i32::try_from(count + AHEAD).unwrap_or(i32::MAX)
        )
        .fetch_all(connection)
        .await?;
        let taken = fresh.drain(..count).collect();
        // The smallest is taken first.
        fresh.reverse();
        *self.shared.ids.lock() = fresh;
        Ok(taken)
    }
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
