//! The maintenance task for stops, deadlines and requests.
//!
//! Stops come first, and deadlines before other requests. Each request is executed in its own transaction,
//! which is a single statement. A call executes requests for at most [`REQUEST_TIME_BUDGET`], so that many
//! requests do not delay the next stops. A request that cannot be executed now is postponed in its row, for
//! all workers: see `process_request_v1` and `defer_request_v1`.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::extension::sqlstate::ErrorClass;
use jobs::extension::{Effects, MaintenanceTask, Notification};
use sqlx::{PgConnection, PgPool};
use tokio::time::Instant;

use super::news;

/// The channel that announces requests and cancelled runs.
pub(crate) const REQUESTS: &str = "pipeline_requests";
/// The maximum time for which one call executes requests.
const REQUEST_TIME_BUDGET: Duration = Duration::from_millis(500);
/// The maximum number of requests that are read at once, and of deadlines that become requests at once.
const PAGE: i32 = 50;

/// Stops jobs of cancelled runs, and executes deadlines and other requests.
#[derive(Debug)]
pub(crate) struct Errands;

impl MaintenanceTask for Errands {
    fn name(&self) -> &'static str {
        "requests"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn channel(&self) -> Option<&'static str> {
        Some(REQUESTS)
    }

    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        worker: i64,
    ) -> BoxFuture<'a, Result<Effects, sqlx::Error>> {
        Box::pin(async move {
            let found = sqlx::query_file!("src/sql/errands.sql", worker)
                .fetch_one(&mut *connection)
                .await?;
            let mut effects = Effects::default();
            effects.stop.extend(found.stop.unwrap_or_default());
            if found.is_overdue || found.is_requested {
                let taken_up = take_up_due(connection, found.is_overdue, &mut effects).await;
                // The stops and notifications so far must not be lost with this error. If the connection is
                // broken, the next call fails.
                if let Err(error) = taken_up {
                    tracing::warn!(%error, "requests could not be executed; retrying at the next interval");
                }
            }
            Ok(effects)
        })
    }
}

/// Executes the due requests until none is left or [`REQUEST_TIME_BUDGET`] has passed.
async fn take_up_due(
    connection: &mut PgConnection,
    is_overdue: bool,
    effects: &mut Effects,
) -> Result<(), sqlx::Error> {
    let until = Instant::now() + REQUEST_TIME_BUDGET;
    if is_overdue {
        sqlx::query!("select pipeline.request_deadlines_v1($1)", PAGE)
            .execute(&mut *connection)
            .await?;
    }
    // When the next held request may be retried.
    let mut next: Option<Instant> = None;
    // Requests whose own rows another transaction has locked: they stay due, and are left for the next call.
    let mut locked: HashSet<i64> = HashSet::new();
    loop {
        let mut due = sqlx::query_file_as!(Request, "src/sql/due_requests.sql", PAGE)
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
                effects.notifications.push(Notification {
                    channel: REQUESTS,
                    payload: String::new(),
                });
                return Ok(());
            }
            match take_up_one(connection, &request, effects).await? {
                Taken::Done => {}
                Taken::Locked => {
                    locked.insert(request.id);
                }
                Taken::PutOff(wait) => {
                    let again = Instant::now() + wait;
                    next = Some(next.map_or(again, |next| next.min(again)));
                }
            }
        }
    }
}

/// A request in the list of due requests.
struct Request {
    id: i64,
    run: i64,
    kind: String,
}

/// What became of a request.
enum Taken {
    Done,
    /// Another transaction has locked the request's row.
    Locked,
    /// A run that it needs is locked; it is due again after this time.
    PutOff(Duration),
}

/// Executes one request of many: if the database refuses it, the others go on.
async fn take_up_one(
    connection: &mut PgConnection,
    request: &Request,
    effects: &mut Effects,
) -> Result<Taken, sqlx::Error> {
    let taken = sqlx::query_file!("src/sql/take_up.sql", request.id, false)
        .fetch_one(&mut *connection)
        .await;
    let error = match taken {
        Ok(row) => {
            effects.queues.extend(row.queues.unwrap_or_default());
            effects
                .notifications
                .extend(news(&row.ended_runs.unwrap_or_default()));
            effects.stop.extend(row.asked.unwrap_or_default());
            return Ok(match row.wait_ms {
                Some(wait) => Taken::PutOff(millis(wait)),
                None if row.state == "held" => Taken::Locked,
                None => Taken::Done,
            });
        }
        Err(error) if error.as_database_error().is_some() => error,
        Err(error) => return Err(error),
    };
    let held = is_in_the_way(&error);
    if held {
        tracing::debug!(run.id = request.run, request.kind, %error, "request held by another transaction; retrying");
    } else {
        tracing::error!(run.id = request.run, request.kind, %error, "the database refused a request");
    }
    let wait = sqlx::query_scalar!(
        "select pipeline.defer_request_v1($1, false, $2, false)",
        request.id,
        !held
    )
    .fetch_one(connection)
    .await?;
    let wait = wait.filter(|_| held).map(millis);
    Ok(wait.map_or(Taken::Done, Taken::PutOff))
}

fn millis(wait: i64) -> Duration {
    Duration::from_millis(u64::try_from(wait).unwrap_or(0))
}

/// Executes the `chain` requests of these runs, each of them once. Requests that cannot be executed now are
/// left to the workers.
pub(crate) async fn take_up_chains(pool: &PgPool, runs: &[i64]) -> Effects {
    let mut effects = Effects::default();
    let taken_up = async {
        let mut connection = pool.acquire().await?;
        let requests = sqlx::query_file_as!(Request, "src/sql/requests_of.sql", runs)
            .fetch_all(&mut *connection)
            .await?;
        for request in requests {
            take_up_one(&mut connection, &request, &mut effects).await?;
        }
        Ok::<_, sqlx::Error>(())
    };
    if let Err(error) = taken_up.await {
        tracing::debug!(%error, "chain requests could not be executed; left to the workers");
    }
    effects
}

/// Returns whether the error is a conflict with another transaction, so that the statement may be retried: a
/// chained run is held (PB001, see `settle_chains_v1`), a lock is held, or a serialization failed.
pub(crate) fn is_in_the_way(error: &sqlx::Error) -> bool {
    ErrorClass::of(error) == ErrorClass::Conflict
}
