//! Tells the clients of this process about runs that its worker has ended, with what the runs returned.
//!
//! A client in another process learns of the end by a notification. That takes two connections and two more
//! statements, which a client in this process need not wait for.

use jobs::seams::AfterCommit;

use super::output::{OutputRow, Returned, read};
use super::waiters::{self, Told};
use crate::coordinator::EndedRunRow;

/// The maximum number of runs that one transaction tells about directly. Waiters of further runs are notified.
const MAX_RUNS: usize = 200;

/// Returns the call that tells the waiters of this process about runs that end in this transaction. If the outputs
/// cannot be read, only the statuses are told.
pub(crate) fn ended(mut runs: Vec<EndedRunRow>) -> Option<AfterCommit> {
    let ids: Vec<i64> = runs.iter().map(|run| run.id).collect();
    let waited_for = waiters::waited_for(&ids, MAX_RUNS);
    if waited_for.is_empty() {
        return None;
    }
    runs.retain(|run| waited_for.contains(&run.id));
    Some(AfterCommit::new(move |connection, database| {
        Box::pin(async move {
            let ended = match read(connection, &waited_for, false).await {
                Ok(rows) => rows
                    .chunk_by(|one, other| one.run == other.run)
                    .filter_map(told)
                    .collect(),
                Err(error) => {
                    tracing::debug!(%error, "outputs of ended runs could not be read for the clients of this process");
                    runs.iter().filter_map(status).collect()
                }
            };
            waiters::tell(database, ended);
        })
    }))
}

/// Returns what the waiters of a run are told if its outputs are not known.
fn status(run: &EndedRunRow) -> Option<(i64, Told)> {
    let status = Some(run.status.parse().ok()?);
    let returned = None;
    Some((run.id, Told { status, returned }))
}

/// Returns what the waiters of a run are told; `None` if this version does not know the run's status.
fn told(rows: &[OutputRow]) -> Option<(i64, Told)> {
    let first = rows.first()?;
    let status = first.status.parse().ok();
    let is_large = rows.iter().any(|row| row.is_large);
    let returned = (!is_large).then(|| Returned(rows.to_vec()));
    status.map(|status| {
        let status = Some(status);
        (first.run, Told { status, returned })
    })
}
