//! A start on its way into the database: one statement for the runs of one graph.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use jobs::seams::Wanted;
use sha2::{Digest as _, Sha256};
use sqlx::{Connection as _, PgConnection, PgPool};

use super::control::request;
use super::new_run::NewRun;
use super::{Client, Run};
use crate::coordinator::store;
use crate::{Error, Result};

/// So many steps go into one statement, and so many at most into one call.
const STATEMENT: usize = 50_000;
const CALL: usize = 1_000_000;
/// How many ids are taken ahead.
const AHEAD: usize = 64;
/// How often a start is sent again whose answer was lost.
const AGAIN: u32 = 3;

/// A start, ready to be sent.
pub(super) struct Plan<'a> {
    /// Those of the first stage.
    first: Vec<Group<'a>>,
    /// Those that are chained to it.
    rest: Vec<Group<'a>>,
    pub(super) count: usize,
    /// How many runs each stage has.
    stages: Vec<usize>,
    after: &'a [i64],
    pub(super) has_keys: bool,
}

impl<'a> Plan<'a> {
    /// Checks everything, before anything is written.
    pub(super) fn of(stages: &'a [Vec<NewRun>], after: &'a [i64]) -> Result<Self> {
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
        let has_rest = stages.iter().skip(1).any(|stage| !stage.is_empty());
        let first = stages.first().map_or(&[][..], Vec::as_slice);
        let keyed = first.iter().find(|run| run.key.is_some());
        let unkeyed = first.iter().find(|run| run.key.is_none());
        if let (true, Some(run), Some(without)) = (has_rest, keyed, unkeyed) {
            return Err(Error::KeyMissing {
                pipeline: without.pipeline.name().to_owned(),
                other: run.pipeline.name().to_owned(),
                key: run.key.clone().unwrap_or_default(),
            });
        }
        let chain = (has_rest && keyed.is_some()).then(|| chain_hash(stages));
        Ok(Self {
            has_keys: keyed.is_some(),
            first: Group::of(stages, 0..1, !after.is_empty(), chain.as_deref()),
            rest: Group::of(stages, 1..stages.len(), true, None),
            count: runs().count(),
            stages: stages.iter().map(Vec::len).collect(),
            after,
        })
    }

    /// What somebody must take.
    pub(super) fn wanted(&self) -> impl Iterator<Item = Wanted<'_>> {
        self.first.iter().chain(&self.rest).flat_map(|group| {
            let steps = group.graph.nodes().filter_map(|node| {
                Some(Wanted {
                    kind: node.job()?.0,
                    queue: &node.options()?.queue,
                    is_step: true,
                })
            });
            let callbacks = group.graph.spec().callbacks.iter();
            steps.chain(callbacks.map(|callback| Wanted {
                kind: &callback.job,
                queue: &callback.options.queue,
                is_step: false,
            }))
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

/// What a key stands for besides the params of its run: all that is started with it.
fn chain_hash(stages: &[Vec<NewRun>]) -> Vec<u8> {
    let mut hash = Sha256::new();
    for stage in stages.iter().filter(|stage| !stage.is_empty()) {
        hash.update((stage.len() as u64).to_le_bytes());
        for run in stage {
            for text in [run.pipeline.name(), run.key.as_deref().unwrap_or_default()] {
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text);
            }
            hash.update(run.params_hash());
        }
    }
    hash.finalize().to_vec()
}

/// On a connection of our own, where a lost answer can be asked for again: the ids are known, and a
/// start that has been committed is recognised.
pub(super) async fn on_pool(
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
            keep_or_undo(tx, &found).await?;
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
    fn of(
        stages: &'a [Vec<NewRun>],
        which: Range<usize>,
        pending: bool,
        chain: Option<&[u8]>,
    ) -> Vec<Self> {
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
            group.add(at, run, pending, chain);
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

    fn add(&mut self, at: usize, run: &'a NewRun, pending: bool, chain: Option<&[u8]>) {
        let pipeline = &run.pipeline;
        let callbacks = pipeline.callback_params();
        self.at.push(at);
        self.history.push(run.history as i16);
        self.params.push(pipeline.own_params());
        self.callbacks
            .push((!callbacks.is_empty()).then(|| format!("[{}]", callbacks.join(","))));
        self.hashes.push(run.key.as_ref().map(|_| match chain {
            Some(chain) => [run.params_hash(), chain.to_vec()].concat(),
            None => run.params_hash(),
        }));
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
        let (starts, rest) = found.split_at_mut(first);
        if starts.iter().all(|(_, found)| *found == Some(true)) {
            // Their keys led to runs that are there, and with them what was chained to them then.
            let run = starts[0].0;
            let there = sqlx::query_file_scalar!("src/sql/chained.sql", run)
                .fetch_optional(&mut *connection)
                .await?
                .flatten();
            let there = there.filter(|there| there.len() == rest.len());
            let there = there.ok_or(Error::NoRun(run))?;
            for (at, run) in rest.iter_mut().zip(there) {
                *at = (run, Some(true));
            }
        } else {
            // Where some are there and others are not, no key stands for all of it.
            for (_, found) in starts {
                *found = found.map(|_| false);
            }
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
        if plan.has_keys && !plan.rest.is_empty() {
            sqlx::query_file!("src/sql/set_chained.sql", &ids[..first], &ids[first..])
                .execute(&mut *connection)
                .await?;
        }
        if !plan.after.is_empty() {
            request(connection, "chain", &ids[..first]).await?;
        }
    }
    Ok(found)
}

/// The same in a transaction of the caller, who may go on with it after an error: where a key may lead
/// to a conflict, nothing of this start stays in it.
pub(super) async fn on_connection(
    client: &Client,
    connection: &mut PgConnection,
    plan: &Plan<'_>,
) -> Result<Vec<(i64, Option<bool>)>> {
    let ids = client.take_ids(connection, plan.count).await?;
    if !plan.has_keys || !connection.is_in_transaction() {
        return insert(client, connection, plan, &ids).await;
    }
    let mut savepoint = connection.begin().await?;
    let found = insert(client, &mut savepoint, plan, &ids).await?;
    keep_or_undo(savepoint, &found).await?;
    Ok(found)
}

/// All of them or none.
async fn keep_or_undo(
    tx: sqlx::PgTransaction<'_>,
    found: &[(i64, Option<bool>)],
) -> Result<(), sqlx::Error> {
    if found.iter().any(|(_, found)| *found == Some(false)) {
        tx.rollback().await
    } else {
        tx.commit().await
    }
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
    pub(super) async fn take_ids(
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
