//! Renews leases, stops jobs whose leases are lost, and reports rows that keep ends from being written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::Config;
use super::connection::{EngineConnection, timed_out};
use super::hooks::Hooks;
use super::lifecycle::{Lifecycle, Phase};
use super::report;
use crate::attempt::Ledger;

/// The interval at which leases are checked. A lease is at least a second long.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The time limit of one renewal. Jobs whose leases run out are stopped meanwhile.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval at which held rows are checked.
const HELD_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a warning about held rows.
const HELD_WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of leases in one statement.
const MAX_LEASES: usize = 5_000;

/// Opens the connection for renewals before the first claim: the shortest lease leaves little time to connect.
pub(crate) async fn connect(connection: &mut EngineConnection) {
    if let Err(error) = connection.get().await {
        connection.failed(&error);
    }
}

/// The task that watches leases, with the parts of the engine that it uses.
#[derive(Debug)]
pub(crate) struct Leases {
    pub(crate) config: Arc<Config>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) lifecycle: Arc<Lifecycle>,
}

impl Leases {
    /// Renews leases until the last end is committed.
    pub(crate) async fn run(self, mut connection: EngineConnection) {
        tokio::select! {
            () = renew_all(&self.ledger, &mut connection) => {}
            () = stop_lapsed(&self.ledger) => {}
            () = self.report_held() => {}
            () = self.lifecycle.reached(Phase::Closing) => {}
        }
        connection.close().await;
    }

    /// Logs the rows that other sessions hold for long. The ends that wait for such rows keep their leases.
    async fn report_held(&self) {
        let limit = self.config.held_warning;
        loop {
            tokio::time::sleep(limit.min(HELD_CHECK_INTERVAL)).await;
            let rows = self.ledger.long_held(Instant::now(), limit);
            if !rows.is_empty() {
                report::held(&rows, &self.hooks);
                tokio::time::sleep(HELD_WARNING_INTERVAL).await;
            }
        }
    }
}

/// Renews the leases that are due, in a loop.
async fn renew_all(ledger: &Ledger, connection: &mut EngineConnection) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        for due in ledger.leases_due().chunks(MAX_LEASES) {
            let sent = Instant::now();
            let renewal = renew(connection, due);
            let renewal = tokio::time::timeout(RENEWAL_TIMEOUT, renewal).await;
            match renewal.unwrap_or_else(|_| Err(timed_out(RENEWAL_TIMEOUT))) {
                Ok(answer) => {
                    connection.succeeded();
                    note(ledger, due, &answer, sent);
                }
                Err(error) => {
                    connection.failed(&error);
                    break;
                }
            }
        }
    }
}

/// Stops the jobs whose leases could not be renewed in time, also while a renewal waits for its answer.
async fn stop_lapsed(ledger: &Ledger) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        for job in ledger.stop_lapsed() {
            tracing::warn!(job.id = job, "lease could not be renewed; job stopped");
        }
    }
}

/// The result of a renewal: the tokens whose leases were not renewed.
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
        "select lost, held from pipeline.renew_leases_v1($1, $2)",
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
