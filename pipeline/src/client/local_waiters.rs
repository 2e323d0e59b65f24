//! Passes the ends and outputs of runs from a worker to the waiting clients of the same process.
//!
//! A client in another process learns of the end by a notification. A notification takes two connections and two more
//! statements, which a client in this process need not wait for. If the steps whose outputs the run returns have
//! ended in the same transaction, their outputs are still in memory, and no query is necessary.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jobs::extension::{AfterCommit, AttemptEnd};
use parking_lot::Mutex;

use super::output::{OutputRow, Returned, read};
use super::waiters::{self, RunEnd};
use crate::RunStatus;
use crate::db::ended_run::EndedRunRow;
use crate::db::ids::{no_of, run_of};

/// The maximum number of runs whose ends one transaction passes on in memory. Waiters of further runs learn of the end
/// by a notification.
const MAX_RUNS: usize = 200;
/// The maximum number of graphs whose output steps are cached.
const MAX_GRAPHS: usize = 1_000;

/// The output steps of graphs: rows of [`read`] without the values of a run. A graph never changes. The key is the
/// identity of the database, which changes with a restore, and the graph's id.
type OutputSteps = HashMap<(String, i64), Arc<[OutputRow]>>;

/// The cached output steps of graphs whose runs have ended in this process.
static OUTPUT_STEPS: Mutex<Option<OutputSteps>> = Mutex::new(None);

/// An ended run with waiters, and the outputs of its steps that succeeded in the same transaction.
struct Ended {
    row: EndedRunRow,
    outputs: HashMap<i32, String>,
}

/// Returns the call that notifies the waiters of this process of the runs that end in this transaction. `ends` are the
/// ends that the transaction writes. If the outputs cannot be read, the waiters get only the statuses.
pub(crate) fn ended(runs: Vec<EndedRunRow>, ends: &[&AttemptEnd]) -> Option<AfterCommit> {
    let ids: Vec<i64> = runs.iter().map(|run| run.id).collect();
    let waited_for: HashSet<i64> = waiters::waited_for(&ids, MAX_RUNS).into_iter().collect();
    if waited_for.is_empty() {
        return None;
    }
    let mut outputs = outputs(ends, &waited_for);
    let runs: Vec<Ended> = runs
        .into_iter()
        .filter(|run| waited_for.contains(&run.id))
        .map(|row| Ended {
            outputs: outputs.remove(&row.id).unwrap_or_default(),
            row,
        })
        .collect();
    Some(AfterCommit::new(move |connection, database| {
        Box::pin(async move {
            let (mut ended, mut unknown) = (Vec::with_capacity(runs.len()), Vec::new());
            for mut run in runs {
                match from_memory(database, &mut run) {
                    Some(end) => ended.push((run.row.id, end)),
                    None => unknown.push(run.row),
                }
            }
            waiters::tell(database, ended);
            if unknown.is_empty() {
                return;
            }
            let ids: Vec<i64> = unknown.iter().map(|run| run.id).collect();
            let ended = match read(connection, &ids, false).await {
                Ok(rows) => rows
                    .chunk_by(|one, other| one.run == other.run)
                    .inspect(|rows| cache_output_steps(database, rows))
                    .filter_map(|rows| run_end(rows, &unknown))
                    .collect(),
                Err(error) => {
                    tracing::debug!(%error, "outputs of ended runs could not be read for the clients of this process");
                    unknown.iter().filter_map(status).collect()
                }
            };
            waiters::tell(database, ended);
        })
    }))
}

/// Returns the outputs of the succeeded steps of these runs, by run and step number.
fn outputs(ends: &[&AttemptEnd], runs: &HashSet<i64>) -> HashMap<i64, HashMap<i32, String>> {
    let mut outputs: HashMap<i64, HashMap<i32, String>> = HashMap::new();
    for end in ends
        .iter()
        .filter(|end| end.is_success() && !end.ends_owner())
    {
        let (run, no) = (run_of(end.job()), i32::try_from(no_of(end.job())));
        if let (true, Ok(no), Some(output)) = (runs.contains(&run), no, end.output()) {
            let steps = outputs.entry(run).or_default();
            steps.insert(no, output.get().to_owned());
        }
    }
    outputs
}

/// Returns the end of a run with its output, if all parts of the output are in memory.
fn from_memory(database: &str, run: &mut Ended) -> Option<RunEnd> {
    if run.row.status.parse().ok() != Some(RunStatus::Succeeded) || run.outputs.is_empty() {
        return None;
    }
    let key = (database.to_owned(), run.row.graph);
    let steps = Arc::clone(OUTPUT_STEPS.lock().as_ref()?.get(&key)?);
    let mut rows = Vec::with_capacity(steps.len());
    for step in steps.iter() {
        rows.push(OutputRow {
            run: run.row.id,
            status: run.row.status.clone(),
            step_status: Some("succeeded".to_owned()),
            // A step may be listed twice: the second lookup finds no output, and the database is queried instead.
            output: Some(run.outputs.remove(&step.no?)?),
            ..step.clone()
        });
    }
    Some(RunEnd {
        status: Some(RunStatus::Succeeded),
        returned: Some(Returned(rows)),
    })
}

/// Caches the output steps of a graph if all of them are jobs. Only the output of a job is always the output of its
/// attempt.
fn cache_output_steps(database: &str, rows: &[OutputRow]) {
    let is_job = |row: &OutputRow| row.kind.as_deref() == Some("job");
    if !rows.iter().all(is_job) {
        return;
    }
    let Some(graph) = rows.first().map(|row| row.graph) else {
        return;
    };
    let without_run = |row: &OutputRow| OutputRow {
        output: None,
        is_large: false,
        ..row.clone()
    };
    let mut known = OUTPUT_STEPS.lock();
    let known = known.get_or_insert_default();
    if known.len() >= MAX_GRAPHS {
        known.clear();
    }
    known.insert(
        (database.to_owned(), graph),
        rows.iter().map(without_run).collect(),
    );
}

/// Returns the end of a run without its output; `None` if this version does not know the run's status.
fn status(run: &EndedRunRow) -> Option<(i64, RunEnd)> {
    let status = Some(run.status.parse().ok()?);
    let returned = None;
    Some((run.id, RunEnd { status, returned }))
}

/// Returns the end of a run with its output; `None` if this version does not know the run's status. If the run was
/// reopened in the meantime, the end has only the status with which the run ended.
fn run_end(rows: &[OutputRow], ended: &[EndedRunRow]) -> Option<(i64, RunEnd)> {
    let first = rows.first()?;
    let end = ended.iter().find(|run| run.id == first.run)?;
    if end.status != first.status {
        return status(end);
    }
    let status = first.status.parse().ok();
    let is_large = rows.iter().any(|row| row.is_large);
    let returned = (!is_large).then(|| Returned(rows.to_vec()));
    status.map(|status| {
        let status = Some(status);
        (first.run, RunEnd { status, returned })
    })
}
