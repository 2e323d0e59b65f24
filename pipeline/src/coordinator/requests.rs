//! The maintenance task for stops, deadlines and requests.
//!
//! Stops come first, and deadlines before other requests. Each request is processed in its own transaction,
//! which is a single statement. A call processes requests for at most [`REQUEST_TIME_BUDGET`], so that many
//! requests do not delay the next stops. A request that cannot be processed now is deferred in its row, for
//! all workers: see `process_request_v1` and `defer_request_v1`.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::extension::{Effects, MaintenanceTask};
use sqlx::PgConnection;
use tokio::time::Instant;

use crate::db::notifications::{REQUESTS_CHANNEL, requests_added};
use crate::db::requests::{Processed, Request, process};

/// The interval between two calls without a notification.
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum time for which one call processes requests.
const REQUEST_TIME_BUDGET: Duration = Duration::from_millis(500);
/// The maximum number of requests that are read at once, and of deadlines that become requests at once.
const MAX_REQUESTS_PER_PAGE: i32 = 50;

/// Stops jobs of cancelled runs, and processes deadlines and other requests.
#[derive(Debug)]
pub(crate) struct RequestTask;

impl MaintenanceTask for RequestTask {
    fn name(&self) -> &'static str {
        "requests"
    }

    fn every(&self) -> Duration {
        REQUEST_INTERVAL
    }

    fn channel(&self) -> Option<&'static str> {
        Some(REQUESTS_CHANNEL)
    }

    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        worker: i64,
    ) -> BoxFuture<'a, Result<Effects, sqlx::Error>> {
        Box::pin(async move {
            let pending = sqlx::query_file!("src/sql/pending_requests.sql", worker)
                .fetch_one(&mut *connection)
                .await?;
            let mut effects = Effects::default();
            effects.stop.extend(pending.stop.unwrap_or_default());
            if pending.is_overdue || pending.is_requested {
                let processed =
                    process_requests(connection, pending.is_overdue, &mut effects).await;
                // The stops and notifications so far must not be lost with this error. If the connection is
                // broken, the next call fails.
                if let Err(error) = processed {
                    tracing::warn!(%error, "requests could not be processed; retrying at the next interval");
                }
            }
            Ok(effects)
        })
    }
}

/// Processes the due requests until none is left or [`REQUEST_TIME_BUDGET`] has passed.
async fn process_requests(
    connection: &mut PgConnection,
    is_overdue: bool,
    effects: &mut Effects,
) -> Result<(), sqlx::Error> {
    let until = Instant::now() + REQUEST_TIME_BUDGET;
    if is_overdue {
        sqlx::query!(
            "select pipeline.request_deadlines_v1($1)",
            MAX_REQUESTS_PER_PAGE
        )
        .execute(&mut *connection)
        .await?;
    }
    // The time at which the next deferred request may be retried.
    let mut next: Option<Instant> = None;
    // Requests whose own rows another transaction has locked: they stay due, and are left for the next call.
    let mut locked: HashSet<i64> = HashSet::new();
    loop {
        let mut due =
            sqlx::query_file_as!(Request, "src/sql/due_requests.sql", MAX_REQUESTS_PER_PAGE)
                .fetch_all(&mut *connection)
                .await?;
        due.retain(|request| !locked.contains(&request.id));
        if due.is_empty() {
            match next.take() {
                Some(at) if at < until => tokio::time::sleep_until(at).await,
                _ => return Ok(()),
            }
        }
        for request in due {
            if Instant::now() >= until {
                // More requests are due: wake the workers to continue at once.
                effects.notifications.push(requests_added());
                return Ok(());
            }
            match process(connection, &request, effects).await? {
                Processed::Done => {}
                Processed::Locked => {
                    locked.insert(request.id);
                }
                Processed::Deferred(wait) => {
                    let again = Instant::now() + wait;
                    next = Some(next.map_or(again, |next| next.min(again)));
                }
            }
        }
    }
}
