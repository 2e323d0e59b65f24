//! After a lost connection: what was claimed for us, and what was not.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::Shared;
use super::link::{Link, limited};
use crate::backend::Claimed;
use crate::limits;

/// How far back claims that were never heard of are looked for. Later ones cost an attempt: their leases
/// run out.
const UNHEARD: Duration = Duration::from_secs(15 * 60);
/// So long is waited for the end of a transaction whose client is gone.
const LIMIT: Duration = Duration::from_secs(60);

/// On a new connection: what was claimed for us in an answer that never arrived goes back.
pub(super) async fn disown(shared: &Shared, link: &mut Link, known: &[i64]) {
    let given_back = limited(async {
        let connection = link.try_get().await?;
        sqlx::query!(
            "select count, queues, since from pipeline.disown_v1($1, $2, $3)",
            shared.worker(),
            known,
            limits::millis(UNHEARD),
        )
        .fetch_one(connection)
        .await
    });
    match given_back.await {
        Ok(row) => {
            if let (Some(count), Some(queues), Some(since)) = (row.count, row.queues, row.since) {
                tracing::warn!(count, "jobs claimed but never heard of were given back");
                shared.announce_since(queues.into_iter(), since);
            }
        }
        Err(error) => {
            tracing::warn!(%error, "could not give back what was never heard of");
            link.forget();
        }
    }
}

/// Asks which of these the lost commit has claimed for us. The rows tell; the transaction's id could
/// not: after a crash, a server gives an id that had not reached its log to another transaction, and
/// `pg_xact_status` speaks of that one.
pub(super) async fn confirmed(
    shared: &Shared,
    link: &mut Link,
    xid: &str,
    claimed: Vec<Claimed>,
) -> Vec<Claimed> {
    if claimed.is_empty() {
        return claimed;
    }
    let (ids, tokens): (Vec<i64>, Vec<i64>) = claimed.iter().map(|job| (job.id, job.token)).unzip();
    let asked = Instant::now();
    loop {
        let answer = limited(async {
            let connection = link.try_get().await?;
            sqlx::query_file!("src/sql/confirm.sql", &ids, &tokens, xid, shared.worker())
                .fetch_one(connection)
                .await
        });
        match answer.await {
            // Its backend may not have noticed yet that nobody listens.
            Ok(row) if row.in_progress && asked.elapsed() < LIMIT => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(row) => {
                let ours: HashSet<i64> = row.tokens.unwrap_or_default().into_iter().collect();
                let is_ours = |job: &Claimed| ours.contains(&job.token);
                return claimed.into_iter().filter(is_ours).collect();
            }
            Err(error) => {
                tracing::warn!(%error, "cannot ask what came of a commit");
                if shared.gives_up() {
                    return Vec::new();
                }
                link.bad(&shared.closing).await;
            }
        }
    }
}
