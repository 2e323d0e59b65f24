//! Recovery after a lost connection: confirms claims of this worker, and releases claims whose answer was lost.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::config::Config;
use super::connection::{EngineConnection, limited};
use super::lifecycle::{Lifecycle, Phase};
use crate::attempt::Claimed;
use crate::limits;

/// How long to wait for an orphaned backend to finish its transaction.
const ORPHANED_BACKEND_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval at which an orphaned backend is checked.
const ORPHANED_BACKEND_POLL: Duration = Duration::from_millis(20);
/// The maximum age of unanswered claims that are released. An older one costs its job an attempt, when the
/// lease expires.
const MAX_CLAIM_AGE: Duration = Duration::from_secs(15 * 60);

/// Releases jobs that were claimed for this worker in an answer that never arrived: rows of this worker with
/// tokens that it does not know. Returns the queues of these jobs and their earliest `run_at`.
pub(super) async fn give_back_unknown(
    config: &Config,
    connection: &mut EngineConnection,
    known: &[i64],
) -> Result<Option<(Vec<String>, DateTime<Utc>)>, sqlx::Error> {
    let given_back = limited(async {
        let connection = connection.get().await?;
        sqlx::query!(
            "select count, queues, since from pipeline.release_unknown_claims_v1($1, $2, $3)",
            config.worker(),
            known,
            limits::millis(MAX_CLAIM_AGE),
        )
        .fetch_one(connection)
        .await
    });
    let row = given_back.await?;
    let (Some(count), Some(queues), Some(since)) = (row.count, row.queues, row.since) else {
        return Ok(None);
    };
    tracing::warn!(count, "released claims whose commit answer was lost");
    Ok(Some((queues, since)))
}

/// Returns those of these jobs that a commit without an answer has claimed. The rows decide, not the
/// transaction id: after a crash, a server may assign an id that had not reached its log a second time.
///
/// The backend of the session that sent the commit may still be active: the rows are read once it has ended.
pub(super) async fn confirmed(
    config: &Config,
    lifecycle: &Lifecycle,
    connection: &mut EngineConnection,
    lost: Option<&str>,
    claimed: Vec<Claimed>,
) -> Vec<Claimed> {
    let (ids, tokens): (Vec<i64>, Vec<i64>) = claimed.iter().map(|job| (job.id, job.token)).unzip();
    let began = Instant::now();
    loop {
        let answer = limited(async {
            let connection = connection.get().await?;
            sqlx::query_file!("src/sql/confirm.sql", &ids, &tokens, lost, config.worker(),)
                .fetch_one(connection)
                .await
        });
        match answer.await {
            Ok(row) if row.in_progress && began.elapsed() < ORPHANED_BACKEND_TIMEOUT => {
                if lifecycle.gives_up() {
                    return Vec::new();
                }
                tokio::time::sleep(ORPHANED_BACKEND_POLL).await;
            }
            Ok(row) => {
                connection.succeeded();
                let ours: HashSet<i64> = row.tokens.unwrap_or_default().into_iter().collect();
                let is_ours = |job: &Claimed| ours.contains(&job.token);
                return claimed.into_iter().filter(is_ours).collect();
            }
            Err(error) => {
                connection.failed(&error);
                if lifecycle.gives_up() {
                    return Vec::new();
                }
                connection.back_off(lifecycle, Phase::Flushing).await;
            }
        }
    }
}

/// Returns whether the shortest of these leases is half over, `elapsed` after the claim was sent: a job that is
/// started now might be stopped before its lease can be renewed.
pub(super) fn lease_is_half_over(claimed: &[Claimed], elapsed: Duration) -> bool {
    let shortest = claimed.iter().map(|job| job.lease_ms).min().unwrap_or(0);
    let shortest = Duration::from_millis(u64::try_from(shortest).unwrap_or(0));
    elapsed > shortest / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(lease_ms: i32) -> Claimed {
        let mut job = Claimed::handed_over(1, 1, "k".into(), "q".into());
        job.lease_ms = lease_ms;
        job
    }

    #[test]
    fn the_shortest_lease_decides_whether_claims_are_confirmed_too_late() {
        let claims = [claimed(30_000), claimed(4_000)];
        let half = Duration::from_secs(2);
        assert!(!lease_is_half_over(&claims, half));
        assert!(lease_is_half_over(&claims, half + Duration::from_millis(1)));
        assert!(!lease_is_half_over(&claims[..1], half * 2));
    }
}
