//! Renews leases, and stops jobs whose leases are lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::{EngineConnection, timed_out};
use super::lifecycle::{Lifecycle, Phase};
use crate::attempt::Ledger;

/// The interval at which leases are checked. A lease is at least a second long.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum number of leases in one statement.
const PAGE: usize = 5_000;

/// Opens the connection before the first claim: the shortest lease leaves little time to connect.
pub(crate) async fn connect(connection: &mut EngineConnection) {
    if let Err(error) = connection.get().await {
        connection.failed(&error);
    }
}

/// Renews leases until the last end is committed.
pub(crate) async fn run(
    ledger: Arc<Ledger>,
    lifecycle: Arc<Lifecycle>,
    mut connection: EngineConnection,
) {
    let mut check = tokio::time::interval(CHECK_INTERVAL);
    check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = check.tick() => {}
            () = lifecycle.reached(Phase::Closing) => break,
        }
        let (stopped, time_left) = ledger.stop_lapsed();
        for job in stopped {
            tracing::warn!(job.id = job, "lease could not be renewed; job stopped");
        }
        for due in ledger.leases_due().chunks(PAGE) {
            let sent = Instant::now();
            // The timeout is the time until the next running job has to be stopped.
            match tokio::time::timeout(time_left, renew(&mut connection, due)).await {
                Ok(Ok(answer)) => {
                    connection.succeeded();
                    note(&ledger, due, &answer, sent);
                }
                Ok(Err(error)) => {
                    connection.failed(&error);
                    break;
                }
                Err(_) => {
                    connection.failed(&timed_out(time_left));
                    break;
                }
            }
        }
    }
    connection.close().await;
}

/// The tokens whose leases were not renewed.
struct Answer {
    /// Tokens that no row has any more.
    lost: Vec<i64>,
    /// Tokens whose row another transaction holds.
    held: Vec<i64>,
}

async fn renew(
    connection: &mut EngineConnection,
    due: &[(i64, i64)],
) -> Result<Answer, sqlx::Error> {
    let (ids, tokens): (Vec<i64>, Vec<i64>) = due.iter().copied().unzip();
    let row = sqlx::query!(
        "select lost, held from pipeline.renew_v1($1, $2)",
        &ids,
        &tokens
    )
    .fetch_one(connection.get().await?)
    .await?;
    Ok(Answer {
        lost: row.lost.unwrap_or_default(),
        held: row.held.unwrap_or_default(),
    })
}

fn note(ledger: &Ledger, due: &[(i64, i64)], answer: &Answer, sent: Instant) {
    for token in &answer.lost {
        if let Some(job) = ledger.lease_lost(*token) {
            tracing::warn!(job.id = job, "lease lost; job stopped");
        }
    }
    let renewed = |token: &i64| !answer.lost.contains(token) && !answer.held.contains(token);
    let tokens = due.iter().map(|(_, token)| *token).filter(renewed);
    ledger.renewed(tokens, sent);
}
