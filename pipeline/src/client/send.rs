//! Sends a start to the database.

use std::time::Duration;

use jobs::extension::Savepoint;
use jobs::extension::sqlstate::ErrorClass;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Postgres};

use super::control::request;
use super::hand_over::{Offer, Statement};
use super::plan::{Group, Plan};
use super::rows::{RunRow, StepRow};
use super::{Client, Run};
use crate::coordinator::{Kept, store};
use crate::{Error, Result};

/// The maximum number of times that a start is sent again after a lost answer or a conflict.
const MAX_RESENDS: u32 = 3;
/// The maximum number of times that a start takes other ids because other runs have its ids.
const MAX_ID_RETRIES: u32 = 10;

/// The runs of a start: the id of each, and whether its key belongs to an existing run with the same params
/// (`true`) or with other params (`false`); `None` for a new run.
pub(super) type Found = Vec<(i64, Option<bool>)>;

/// Sends a start on a connection of the pool, and sends it again if the answer is lost: the database recognises
/// the start by its nonces.
pub(super) async fn on_pool(client: &Client, pool: &PgPool, plan: &Plan<'_>) -> Result<Found> {
    resend_on_pool(client, pool, plan, &mut Vec::new(), &mut Vec::new()).await
}

/// Sends a start that may have been sent before with these ids. `lost` has to be dropped when the start is done: only
/// then do the claims of lost answers exist for sure, or not at all.
pub(super) async fn resend_on_pool(
    client: &Client,
    pool: &PgPool,
    plan: &Plan<'_>,
    ids: &mut Vec<i64>,
    lost: &mut Vec<Offer>,
) -> Result<Found> {
    let mut tries = 0;
    loop {
        // Returned to the pool before the pause: it may be the pool's only connection.
        let connection = pool.acquire().await?;
        let outcome = try_on(client, connection, plan, ids, lost).await;
        match outcome {
            Err(Error::Database(error)) if is_passing(&error) => {
                client.forget_ids_if_lost(&error);
                if tries == MAX_RESENDS {
                    return Err(error.into());
                }
                tracing::debug!(%error, "start failed; sending it again");
                tries += 1;
                tokio::time::sleep(Duration::from_millis(50 << tries)).await;
            }
            outcome => return outcome,
        }
    }
}

async fn try_on(
    client: &Client,
    mut connection: PoolConnection<Postgres>,
    plan: &Plan<'_>,
    ids: &mut Vec<i64>,
    lost: &mut Vec<Offer>,
) -> Result<Found> {
    if ids.is_empty() {
        *ids = client
            .remembered()
            .take_ids(&mut connection, plan.count)
            .await?;
    }
    store_graphs(client, &mut connection, plan).await?;
    let Some(group) = plan.only_statement() else {
        let mut savepoint = Savepoint::transaction(&mut connection).await?;
        let found = insert(client, savepoint.connection(), plan, ids).await;
        return finish(savepoint, found).await;
    };
    if lost.is_empty() {
        let answer;
        (connection, answer) = offer(client, connection, plan, group, ids, lost).await?;
        if let Some(found) = answer? {
            return Ok(found);
        }
    }
    insert_alone(client, &mut connection, plan, group, ids).await
}

/// Sends a start that is a single statement, and hands its first steps over to a worker of this process. Returns
/// `None` if nothing was sent, because no worker of this process takes them, or if nothing was written.
async fn offer(
    client: &Client,
    connection: PoolConnection<Postgres>,
    plan: &Plan<'_>,
    group: &Group<'_>,
    ids: &[i64],
    lost: &mut Vec<Offer>,
) -> Result<(PoolConnection<Postgres>, Result<Option<Found>>), sqlx::Error> {
    let (Some(database), Some(graph)) = (
        client.remembered().database(),
        client.remembered().graph(&group.graph.fingerprint()),
    ) else {
        return Ok((connection, Ok(None)));
    };
    let (runs, mut steps) = group.rows(ids, &plan.nonces);
    let Some(offer) = Offer::of(&database, group, &mut steps) else {
        return Ok((connection, Ok(None)));
    };
    let statement = statement(group, graph, runs, steps, Some(offer.worker()));
    let answer = offer.send(connection, statement).await?;
    lost.extend(answer.lost);
    let found = answer.row.map(|row| match Sent::from(row) {
        Sent::Done(outcomes) => {
            let mut found = vec![(0, None); ids.len()];
            note(group, ids, outcomes.as_deref(), &mut found);
            Some(found)
        }
        Sent::NoGraph | Sent::IdTaken => None,
    });
    Ok((answer.connection, found.map_err(Error::from)))
}

/// Sends a start on the caller's connection. If the start fails or the future is dropped, the caller's
/// transaction keeps none of its changes.
pub(super) async fn on_connection(
    client: &Client,
    connection: &mut PgConnection,
    plan: &Plan<'_>,
) -> Result<Found> {
    store_graphs_apart(client, plan).await;
    let outcome = async {
        let mut ids = client.remembered().take_ids(connection, plan.count).await?;
        if let (Some(group), false) = (plan.only_statement(), plan.has_keys) {
            return insert_alone(client, connection, plan, group, &mut ids).await;
        }
        let mut savepoint = Savepoint::begin(connection).await?;
        let found = insert(client, savepoint.connection(), plan, &mut ids).await;
        finish(savepoint, found).await
    };
    let outcome = outcome.await;
    if let Err(Error::Database(error)) = &outcome {
        client.forget_ids_if_lost(error);
    }
    outcome
}

/// Keeps a start, or rolls it back if it failed or if a key belongs to a run with other params.
async fn finish(savepoint: Savepoint<'_>, found: Result<Found>) -> Result<Found> {
    match found {
        Ok(found) if found.iter().any(|(_, found)| *found == Some(false)) => {
            savepoint.rollback().await?;
            Ok(found)
        }
        found => savepoint.finish(found).await,
    }
}

/// Returns whether an error is transient: the connection broke, or another transaction conflicted.
pub(super) fn is_passing(error: &sqlx::Error) -> bool {
    is_lost(error) || ErrorClass::of(error) == ErrorClass::Conflict
}

/// Returns whether the connection broke. The next connection may lead to another server.
fn is_lost(error: &sqlx::Error) -> bool {
    ErrorClass::is_disconnect(error)
}

/// Stores the graphs that the client does not remember, on a connection that is in no transaction.
async fn store_graphs(
    client: &Client,
    connection: &mut PgConnection,
    plan: &Plan<'_>,
) -> Result<(), sqlx::Error> {
    for group in plan.groups() {
        let fingerprint = group.graph.fingerprint();
        if client.remembered().graph(&fingerprint).is_none() {
            let graph = store(connection, group.graph, Kept::AtOnce).await?;
            client.remembered().set_graph(fingerprint, graph);
        }
    }
    Ok(())
}

/// Stores the graphs that the client does not remember, outside the caller's transaction. The graphs are
/// visible at once, even if the caller's transaction rolls back.
///
/// Does not wait for a connection, because the caller may hold the pool's last one. Graphs that are not stored
/// here are stored in the caller's transaction.
async fn store_graphs_apart(client: &Client, plan: &Plan<'_>) {
    let is_known = |group: &Group<'_>| {
        let fingerprint = group.graph.fingerprint();
        client.remembered().graph(&fingerprint).is_some()
    };
    if plan.groups().all(is_known) {
        return;
    }
    if let Some(mut connection) = client.pool().try_acquire()
        && let Err(error) = store_graphs(client, &mut connection, plan).await
    {
        tracing::debug!(%error, "graph could not be stored outside the caller's transaction; storing it inside");
    }
}

/// Inserts the runs of a start that is a single statement. The statement writes all of them or nothing, so it needs
/// no transaction of its own.
async fn insert_alone(
    client: &Client,
    connection: &mut PgConnection,
    plan: &Plan<'_>,
    group: &Group<'_>,
    ids: &mut [i64],
) -> Result<Found> {
    let mut found = vec![(0, None); ids.len()];
    insert_group(client, connection, plan, group, ids, &mut found).await?;
    Ok(found)
}

async fn insert(
    client: &Client,
    connection: &mut PgConnection,
    plan: &Plan<'_>,
    ids: &mut [i64],
) -> Result<Found> {
    if !plan.after.is_empty()
        && let Some(missing) = sqlx::query_file_scalar!("src/sql/missing_runs.sql", plan.after)
            .fetch_optional(&mut *connection)
            .await?
    {
        return Err(Error::NoRun(missing));
    }
    let mut found = vec![(0, None); ids.len()];
    for group in &plan.first {
        insert_group(client, connection, plan, group, ids, &mut found).await?;
    }
    let first = plan.stages.first().copied().unwrap_or(0);
    if !plan.rest.is_empty() && found[..first].iter().any(|(_, found)| found.is_some()) {
        find_chained(connection, &mut found, first).await?;
        return Ok(found);
    }
    for group in &plan.rest {
        insert_group(client, connection, plan, group, ids, &mut found).await?;
    }
    if plan.stages.len() > 1 || !plan.after.is_empty() {
        let ids: Vec<i64> = found.iter().map(|(id, _)| *id).collect();
        let (ups, downs) = plan.chains(&ids);
        sqlx::query_file!("src/sql/chain.sql", &ups, &downs)
            .execute(&mut *connection)
            .await?;
        if plan.has_keys && !plan.rest.is_empty() {
            sqlx::query_file!("src/sql/set_chained.sql", ids[0], &ids[first..])
                .execute(&mut *connection)
                .await?;
        }
        if !plan.after.is_empty() {
            request(connection, "chain", &ids[..first]).await?;
        }
    }
    Ok(found)
}

/// Finds the runs that are chained to the existing runs with the keys of the first stage.
async fn find_chained(
    connection: &mut PgConnection,
    found: &mut [(i64, Option<bool>)],
    first: usize,
) -> Result<()> {
    let (starts, rest) = found.split_at_mut(first);
    if starts.iter().all(|(_, found)| *found == Some(true)) {
        // The first run of the first stage has the list of the runs that were started with it.
        let run = starts[0].0;
        let there = sqlx::query_file_scalar!("src/sql/chained.sql", run)
            .fetch_optional(connection)
            .await?
            .flatten();
        let there = there.filter(|there| there.len() == rest.len());
        let there = there.ok_or(Error::NoRun(run))?;
        for (at, run) in rest.iter_mut().zip(there) {
            *at = (run, Some(true));
        }
    } else {
        // Some keys belong to existing runs and others do not: this is not the start that made those runs.
        for (_, found) in starts {
            *found = found.map(|_| false);
        }
    }
    Ok(())
}

/// The answer of `pipeline.start_runs_v1`.
#[derive(Debug)]
pub(super) struct StartRow {
    result: String,
    ids: Option<Vec<i64>>,
    outcomes: Option<Vec<String>>,
    pub(super) handed_over: bool,
}

impl StartRow {
    /// Returns the id and the outcome of each run; `None` if all are new.
    pub(super) fn found(&self) -> Option<impl Iterator<Item = (i64, &str)>> {
        let (ids, outcomes) = (self.ids.as_ref()?, self.outcomes.as_ref()?);
        Some(ids.iter().copied().zip(outcomes.iter().map(String::as_str)))
    }
}

/// The result of a statement.
enum Sent {
    /// Every run exists now, or a key belongs to a run with other params and nothing was written. `None` if all runs
    /// are new, with the ids that were sent.
    Done(Option<Vec<Outcome>>),
    /// The graph does not exist: the transaction that stored it was rolled back, or the database was restored.
    NoGraph,
    /// Another run has one of the ids. Nothing was written.
    IdTaken,
}

struct Outcome {
    id: i64,
    /// Whether this statement inserted the run.
    is_new: bool,
    found: Option<bool>,
}

impl From<StartRow> for Sent {
    fn from(row: StartRow) -> Self {
        let outcome = |(id, outcome): (i64, &str)| Outcome {
            id,
            is_new: outcome == "new",
            found: match outcome {
                "same" => Some(true),
                "other" => Some(false),
                _ => None,
            },
        };
        match row.result.as_str() {
            "no_graph" => Self::NoGraph,
            "ids_taken" => Self::IdTaken,
            _ => Self::Done(row.found().map(|found| found.map(outcome).collect())),
        }
    }
}

/// Notes the runs of a group.
fn note(
    group: &Group<'_>,
    ids: &[i64],
    outcomes: Option<&[Outcome]>,
    found: &mut [(i64, Option<bool>)],
) {
    for (no, at) in group.at.iter().enumerate() {
        let outcome = outcomes.and_then(|outcomes| outcomes.get(no));
        found[*at] = outcome.map_or((ids[*at], None), |it| (it.id, it.found));
    }
}

/// Inserts the runs of one group. Takes other ids if other runs have these, and stores the graph if it does not
/// exist.
async fn insert_group(
    client: &Client,
    connection: &mut PgConnection,
    plan: &Plan<'_>,
    group: &Group<'_>,
    ids: &mut [i64],
    found: &mut [(i64, Option<bool>)],
) -> Result<()> {
    let fingerprint = group.graph.fingerprint();
    let mut graph = client.remembered().graph(&fingerprint);
    let mut tries = 0;
    loop {
        let sent = match graph {
            Some(graph) => {
                let (runs, steps) = group.rows(ids, &plan.nonces);
                let statement = statement(group, graph, runs, steps, None);
                statement.fetch_one(&mut *connection).await?.into()
            }
            None => Sent::NoGraph,
        };
        match sent {
            Sent::Done(outcomes) => {
                note(group, ids, outcomes.as_deref(), found);
                if outcomes.is_some_and(|outcomes| !outcomes.iter().any(|it| it.is_new)) {
                    return Ok(());
                }
                break;
            }
            // The graph disappears each time after it was stored.
            Sent::NoGraph if tries > MAX_ID_RETRIES => return Err(sqlx::Error::RowNotFound.into()),
            Sent::NoGraph => {
                let stored = store(connection, group.graph, Kept::WithTheTransaction).await?;
                client.remembered().set_graph(fingerprint, stored);
                graph = Some(stored);
            }
            Sent::IdTaken if tries > MAX_ID_RETRIES => return Err(Error::IdsTaken { tries }),
            Sent::IdTaken => {
                client.remembered().forget_ids();
                let others = client
                    .remembered()
                    .take_ids(connection, group.at.len())
                    .await?;
                for (at, id) in group.at.iter().zip(others) {
                    ids[*at] = id;
                }
            }
        }
        tries += 1;
    }
    // Only a group of one run has further statements.
    if let ([at], Some(graph)) = (group.at.as_slice(), graph) {
        for (from, params) in &group.more {
            let steps: Vec<StepRow<'_>> = group.step_rows(ids[*at], *from, params).collect();
            sqlx::query_file!(
                "src/sql/start_steps.sql",
                graph,
                group.is_chained,
                steps as _
            )
            .fetch_one(&mut *connection)
            .await?;
        }
    }
    Ok(())
}

/// Returns the statement that starts the runs of a group, and hands the steps with a token over to a worker of this
/// process: the worker's id, and the identity of its database.
fn statement(
    group: &Group<'_>,
    graph: i64,
    runs: Vec<RunRow<'_>>,
    steps: Vec<StepRow<'_>>,
    worker: Option<(i64, &str)>,
) -> Statement<impl FnMut(PgRow) -> Result<StartRow, sqlx::Error> + Send + 'static> {
    let fingerprint = group.graph.fingerprint();
    let (worker, database) = worker.unzip();
    sqlx::query_file_as!(
        StartRow,
        "src/sql/start.sql",
        graph,
        fingerprint.as_bytes(),
        group.is_chained,
        runs as _,
        steps as _,
        worker,
        database,
    )
}

/// Starts a new run with the graph and the params of another run.
pub(super) async fn copy<O>(run: &Run<O>) -> Result<Run<O>> {
    let client = run.client();
    let nonce = fastrand::i64(..);
    let mut ids = Vec::new();
    let (mut resent, mut tries) = (0, 0);
    loop {
        let outcome = async {
            let mut connection = client.pool().acquire().await?;
            if ids.is_empty() {
                ids = client.remembered().take_ids(&mut connection, 1).await?;
            }
            sqlx::query_file!("src/sql/rerun.sql", run.id(), ids[0], nonce)
                .fetch_optional(&mut *connection)
                .await
        };
        match outcome.await {
            Ok(None) => return Err(Error::NoRun(run.id())),
            Ok(Some(row)) if row.result == "started" => {
                return Ok(Run::new(client.clone(), row.id, true));
            }
            Ok(Some(_)) if tries == MAX_ID_RETRIES => return Err(Error::IdsTaken { tries }),
            Ok(Some(_)) => {
                client.remembered().forget_ids();
                ids.clear();
                tries += 1;
            }
            Err(error) if is_passing(&error) => {
                client.forget_ids_if_lost(&error);
                if resent == MAX_RESENDS {
                    return Err(error.into());
                }
                tracing::debug!(%error, run.id = run.id(), "rerun failed; sending it again");
                resent += 1;
                tokio::time::sleep(Duration::from_millis(50 << resent)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

impl Client {
    fn forget_ids_if_lost(&self, error: &sqlx::Error) {
        if is_lost(error) {
            self.remembered().forget_ids();
        }
    }
}
