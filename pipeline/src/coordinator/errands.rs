//! What a worker sees to besides its jobs: jobs that are to stop, deadlines, and requests.
//!
//! Stops come first, and deadlines before other requests. Each request is taken up in a transaction of its
//! own, which is a single statement. A call takes up requests for [`BUDGET`] at most, so that the next
//! stops are not late, however many requests there are. A request that cannot be done now is put off in
//! its row, for the whole fleet: see `take_up_v1` and `put_off_v1`.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::seams::{Effects, MaintenanceTask, Notification};
use jobs::sqlstate::ErrorClass;
use sqlx::{PgConnection, PgPool};
use tokio::time::Instant;

use super::news;

/// The channel on which requests are told, and that a run is being cancelled.
pub(crate) const REQUESTS: &str = "pipeline_requests";
/// How long one call takes up requests.
const BUDGET: Duration = Duration::from_millis(500);
/// The most requests that are read at once, and deadlines besides.
const PAGE: i32 = 50;

/// Jobs that are to stop, deadlines, and requests.
#[derive(Debug)]
pub(crate) struct Errands;

impl MaintenanceTask for Errands {
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
                // An error here must not cost the stops and the news that are known by now. If the
                // connection is broken, the next call finds out.
                if let Err(error) = taken_up {
                    tracing::warn!(%error, "requests are left for the next time");
                }
            }
            Ok(effects)
        })
    }
}

/// Takes up the requests that are due, until none is left or the budget is used up.
async fn take_up_due(
    connection: &mut PgConnection,
    is_overdue: bool,
    effects: &mut Effects,
) -> Result<(), sqlx::Error> {
    let until = Instant::now() + BUDGET;
    if is_overdue {
        sqlx::query!("select pipeline.request_deadlines_v1($1)", PAGE)
            .execute(&mut *connection)
            .await?;
    }
    // When a request that was held may be tried again.
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
                // There is more: whoever is free goes on at once.
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

/// A request, as it is listed.
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
                .extend(news(&row.over.unwrap_or_default()));
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
        tracing::debug!(run.id = request.run, request.kind, %error, "a request is held");
    } else {
        tracing::error!(run.id = request.run, request.kind, %error, "the database refused a request");
    }
    let wait = sqlx::query_scalar!(
        "select pipeline.put_off_v1($1, false, $2, false)",
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

/// Takes up the requests to look at the runs before these, each of them once. What cannot be done now is
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
        tracing::debug!(%error, "chained runs are left to the workers");
    }
    effects
}

/// Whether another transaction was in the way, and the same may be tried again: it holds a run that is
/// chained to the one concerned (PB001, see `settle_chains_v1`), or a lock, or came first.
pub(crate) fn is_in_the_way(error: &sqlx::Error) -> bool {
    ErrorClass::of(error) == ErrorClass::Conflict
}
