//! The statements that insert the runs of a start.

use sqlx::PgConnection;
use sqlx::postgres::PgRow;

use super::Client;
use super::hand_over::Statement;
use super::rows::{RunRow, StepRow};
use super::send::{Found, FoundRun};
use super::start_plan::{Group, StartPlan};
use crate::db::graphs::{Visibility, store};
use crate::db::requests;
use crate::{Error, Result};

/// The maximum number of times that a start takes other ids because other runs have its ids.
pub(super) const MAX_ID_RETRIES: u32 = 10;

/// Inserts the runs of a start that is a single statement. The statement writes all of them or nothing, so it needs
/// no transaction of its own.
pub(super) async fn insert_alone(
    client: &Client,
    connection: &mut PgConnection,
    plan: &StartPlan<'_>,
    group: &Group<'_>,
    ids: &mut [i64],
) -> Result<Vec<FoundRun>> {
    let mut found = FoundRun::unanswered(ids);
    insert_group(client, connection, plan, group, ids, &mut found).await?;
    Ok(found)
}

/// Inserts the runs of a start in an open transaction, with the chains between them. Returns only the runs of the
/// first stage if their keys belong to existing runs: the whole chain exists then.
pub(super) async fn insert(
    client: &Client,
    connection: &mut PgConnection,
    plan: &StartPlan<'_>,
    ids: &mut [i64],
) -> Result<Vec<FoundRun>> {
    if !plan.after.is_empty()
        && let Some(missing) = sqlx::query_file_scalar!("src/sql/missing_runs.sql", plan.after)
            .fetch_optional(&mut *connection)
            .await?
    {
        return Err(Error::NoRun(missing.into()));
    }
    let mut found = FoundRun::unanswered(ids);
    for group in &plan.first {
        insert_group(client, connection, plan, group, ids, &mut found).await?;
    }
    let first = plan.stages.first().copied().unwrap_or(0);
    let is_new = |run: &FoundRun| run.found == Found::New;
    if !plan.rest.is_empty() && !found[..first].iter().all(is_new) {
        found.truncate(first);
        // If only some of the keys belong to existing runs, another start has made those runs.
        if found.iter().any(is_new) {
            let others = found.iter_mut().filter(|run| run.found != Found::New);
            others.for_each(|run| run.found = Found::Conflict);
        }
        return Ok(found);
    }
    for group in &plan.rest {
        insert_group(client, connection, plan, group, ids, &mut found).await?;
    }
    if plan.stages.len() > 1 || !plan.after.is_empty() {
        let ids: Vec<i64> = found.iter().map(|run| run.id).collect();
        let (ups, downs) = plan.chains(&ids);
        sqlx::query_file!("src/sql/chain.sql", &ups, &downs)
            .execute(&mut *connection)
            .await?;
        if !plan.after.is_empty() {
            requests::insert(connection, "chain", &ids[..first]).await?;
        }
    }
    Ok(found)
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
pub(super) enum Sent {
    /// Every run exists now, or a key belongs to a run with other params and nothing was written. `None` if all runs
    /// are new, with the ids that were sent.
    Done(Option<Vec<Outcome>>),
    /// The graph does not exist: the transaction that stored it was rolled back, or the database was restored.
    NoGraph,
    /// Another run has one of the ids. Nothing was written.
    IdTaken,
}

/// The database's answer for one run of a statement.
pub(super) struct Outcome {
    run: FoundRun,
    /// Whether this statement inserted the run, and not an earlier one whose answer was lost.
    is_inserted: bool,
}

impl From<StartRow> for Sent {
    fn from(row: StartRow) -> Self {
        let outcome = |(id, outcome): (i64, &str)| Outcome {
            is_inserted: outcome == "new",
            run: FoundRun {
                id,
                found: match outcome {
                    "same" => Found::Existing,
                    "other" => Found::Conflict,
                    _ => Found::New,
                },
            },
        };
        match row.result.as_str() {
            "no_graph" => Self::NoGraph,
            "ids_taken" => Self::IdTaken,
            _ => Self::Done(row.found().map(|found| found.map(outcome).collect())),
        }
    }
}

/// Writes the answers for the runs of a group to their positions in the call.
pub(super) fn note(
    group: &Group<'_>,
    ids: &[i64],
    outcomes: Option<&[Outcome]>,
    found: &mut [FoundRun],
) {
    for (no, at) in group.at.iter().enumerate() {
        let new = FoundRun {
            id: ids[*at],
            found: Found::New,
        };
        let outcome = outcomes.and_then(|outcomes| outcomes.get(no));
        found[*at] = outcome.map_or(new, |outcome| outcome.run);
    }
}

/// Inserts the runs of one group. Takes other ids if other runs have these, and stores the graph if it does not
/// exist.
async fn insert_group(
    client: &Client,
    connection: &mut PgConnection,
    plan: &StartPlan<'_>,
    group: &Group<'_>,
    ids: &mut [i64],
    found: &mut [FoundRun],
) -> Result<()> {
    let fingerprint = group.graph.fingerprint();
    let mut graph = client.id_cache().graph(&fingerprint);
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
                if outcomes.is_some_and(|outcomes| !outcomes.iter().any(|it| it.is_inserted)) {
                    return Ok(());
                }
                break;
            }
            // The graph disappears each time after it was stored.
            Sent::NoGraph if tries > MAX_ID_RETRIES => return Err(sqlx::Error::RowNotFound.into()),
            Sent::NoGraph => {
                let stored = store(connection, group.graph, Visibility::AtCommit).await?;
                client.id_cache().set_graph(fingerprint, stored);
                graph = Some(stored);
            }
            Sent::IdTaken if tries > MAX_ID_RETRIES => return Err(Error::IdsTaken { tries }),
            Sent::IdTaken => {
                client.id_cache().forget_ids();
                let others = client
                    .id_cache()
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
pub(super) fn statement(
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
