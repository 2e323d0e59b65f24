//! Tells the clients of this process about runs that its worker has ended, with what the runs returned.
//!
//! A client in another process learns of the end by a notification. That takes two connections and two more
//! statements, which a client in this process need not wait for.

use jobs::seams::AfterCommit;
use sqlx::PgConnection;

use crate::client::output::{OutputRow, Returned, read};
use crate::client::waiters::{self, Told};

/// The maximum number of runs that one transaction tells about directly. Waiters of further runs are notified.
const MAX_RUNS: usize = 200;

/// Returns the call that tells the waiters of this process about runs that end in this transaction.
pub(super) async fn ended(
    connection: &mut PgConnection,
    runs: &[i64],
) -> Result<Option<AfterCommit>, sqlx::Error> {
    let runs = waiters::waited_for(runs, MAX_RUNS);
    if runs.is_empty() {
        return Ok(None);
    }
    let rows = read(connection, &runs, false).await?;
    let ended: Vec<(i64, Told)> = rows
        .chunk_by(|one, other| one.run == other.run)
        .filter_map(told)
        .collect();
    Ok(Some(AfterCommit::new(move |database| {
        waiters::tell(database, ended);
    })))
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
