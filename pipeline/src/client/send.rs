//! Sends a start to the database.

use std::time::Duration;

use jobs::extension::Savepoint;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};

use super::Client;
use super::hand_over::Offer;
use super::insert::{Sent, insert, insert_alone, note, statement};
use super::start_plan::{Group, StartPlan};
use crate::db::graphs::{Visibility, store};
use crate::db::{is_disconnect, is_transient};
use crate::{Error, Result};

/// The maximum number of times that a start is sent again after a lost answer or a conflict.
pub(super) const MAX_RESENDS: u32 = 3;

/// A run of a start, and how the database found the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundRun {
    pub(super) id: i64,
    pub(super) found: Found,
}

/// How the database found a run of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The start created the run.
    New,
    /// The key belongs to an existing run with the same params.
    Existing,
    /// The key belongs to an existing run with other params. Nothing was written.
    Conflict,
}

impl FoundRun {
    /// Returns the runs of a start before the database has answered.
    pub(super) fn unanswered(ids: &[i64]) -> Vec<Self> {
        let new = |id: &i64| Self {
            id: *id,
            found: Found::New,
        };
        ids.iter().map(new).collect()
    }
}

/// Sends a start on a connection of the pool, and sends the start again if the answer is lost. The database recognises
/// the start by its nonces.
pub(super) async fn on_pool(
    client: &Client,
    pool: &PgPool,
    plan: &StartPlan<'_>,
) -> Result<Vec<FoundRun>> {
    resend_on_pool(client, pool, plan, &mut Vec::new(), &mut Vec::new()).await
}

/// Sends a start that may have been sent before with these ids. The caller has to keep `lost` until the start is done,
/// because only then is it certain whether the claims of lost answers exist.
pub(super) async fn resend_on_pool(
    client: &Client,
    pool: &PgPool,
    plan: &StartPlan<'_>,
    ids: &mut Vec<i64>,
    lost: &mut Vec<Offer>,
) -> Result<Vec<FoundRun>> {
    let mut tries = 0;
    loop {
        // The connection is returned to the pool before the pause, because it may be the pool's only connection.
        let connection = pool.acquire().await?;
        let outcome = try_on(client, connection, plan, ids, lost).await;
        match outcome {
            Err(Error::Database(error)) if is_transient(&error) => {
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

/// Sends a start once, on this connection.
async fn try_on(
    client: &Client,
    mut connection: PoolConnection<Postgres>,
    plan: &StartPlan<'_>,
    ids: &mut Vec<i64>,
    lost: &mut Vec<Offer>,
) -> Result<Vec<FoundRun>> {
    if ids.is_empty() {
        *ids = client
            .id_cache()
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
/// `None` if no worker of this process takes the steps and the start was not sent, or if the start was sent and wrote
/// nothing.
async fn offer(
    client: &Client,
    connection: PoolConnection<Postgres>,
    plan: &StartPlan<'_>,
    group: &Group<'_>,
    ids: &[i64],
    lost: &mut Vec<Offer>,
) -> Result<(PoolConnection<Postgres>, Result<Option<Vec<FoundRun>>>), sqlx::Error> {
    let (Some(database), Some(graph)) = (
        client.id_cache().database(),
        client.id_cache().graph(&group.graph.fingerprint()),
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
            let mut found = FoundRun::unanswered(ids);
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
    plan: &StartPlan<'_>,
) -> Result<Vec<FoundRun>> {
    store_graphs_apart(client, plan).await;
    let outcome = async {
        let mut ids = client.id_cache().take_ids(connection, plan.count).await?;
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

/// Keeps a start, or rolls the start back if it failed or if a key belongs to a run with other params.
async fn finish(savepoint: Savepoint<'_>, found: Result<Vec<FoundRun>>) -> Result<Vec<FoundRun>> {
    match found {
        Ok(found) if found.iter().any(|run| run.found == Found::Conflict) => {
            savepoint.rollback().await?;
            Ok(found)
        }
        found => savepoint.finish(found).await,
    }
}

/// Stores the graphs that the client has not cached, on a connection that is in no transaction.
async fn store_graphs(
    client: &Client,
    connection: &mut PgConnection,
    plan: &StartPlan<'_>,
) -> Result<(), sqlx::Error> {
    for group in plan.groups() {
        let fingerprint = group.graph.fingerprint();
        if client.id_cache().graph(&fingerprint).is_none() {
            let graph = store(connection, group.graph, Visibility::AtOnce).await?;
            client.id_cache().set_graph(fingerprint, graph);
        }
    }
    Ok(())
}

/// Stores the graphs that the client has not cached, outside the caller's transaction. The graphs are
/// visible at once, even if the caller's transaction rolls back.
///
/// The function does not wait for a connection, because the caller may hold the pool's last one. Graphs that are not
/// stored here are stored in the caller's transaction.
async fn store_graphs_apart(client: &Client, plan: &StartPlan<'_>) {
    let is_known = |group: &Group<'_>| {
        let fingerprint = group.graph.fingerprint();
        client.id_cache().graph(&fingerprint).is_some()
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

impl Client {
    /// Drops the reserved run ids if the error is a lost connection.
    pub(super) fn forget_ids_if_lost(&self, error: &sqlx::Error) {
        if is_disconnect(error) {
            self.id_cache().forget_ids();
        }
    }
}
