//! Requests: changes of runs that were stored as rows, and are processed after the transaction that stored them.

use std::time::Duration;

use jobs::extension::Effects;
use sqlx::{PgConnection, PgPool};

use super::{is_conflict, notifications};

/// A request in a list of requests.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: i64,
    pub(crate) run: i64,
    pub(crate) kind: String,
}

/// The result of processing a request.
#[derive(Debug)]
pub(crate) enum Processed {
    /// The request was executed, or refused.
    Done,
    /// Another transaction has locked the request's row.
    Locked,
    /// Another transaction holds a run that the request needs. The request is due again after this time.
    Deferred(Duration),
}

/// Inserts a request for each of these runs, which a worker processes after the commit.
pub(crate) async fn insert(
    connection: &mut PgConnection,
    kind: &str,
    runs: &[i64],
) -> Result<(), sqlx::Error> {
    sqlx::query_file!("src/sql/request.sql", runs, kind)
        .execute(connection)
        .await?;
    Ok(())
}

/// Processes one request of many, in a transaction of its own, which is a single statement. A request that the
/// database refuses is logged and deferred, so that it does not stop the others.
pub(crate) async fn process(
    connection: &mut PgConnection,
    request: &Request,
    effects: &mut Effects,
) -> Result<Processed, sqlx::Error> {
    let processed = sqlx::query_file!("src/sql/process_request.sql", request.id, false)
        .fetch_one(&mut *connection)
        .await;
    let error = match processed {
        Ok(row) => {
            effects.queues.extend(row.queues.unwrap_or_default());
            let ended = row.ended_runs.unwrap_or_default();
            let notifications = notifications::runs_ended(&ended);
            effects.notifications.extend(notifications);
            effects.stop.extend(row.asked.unwrap_or_default());
            return Ok(match row.wait_ms {
                Some(wait) => Processed::Deferred(millis(wait)),
                None if row.state == "held" => Processed::Locked,
                None => Processed::Done,
            });
        }
        Err(error) if error.as_database_error().is_some() => error,
        Err(error) => return Err(error),
    };
    let is_held = is_conflict(&error);
    if is_held {
        tracing::debug!(run.id = request.run, request.kind, %error, "request is held by another transaction; retrying");
    } else {
        tracing::error!(run.id = request.run, request.kind, %error, "request refused by the database");
    }
    let wait = sqlx::query_scalar!(
        "select pipeline.defer_request_v1($1, false, $2, false)",
        request.id,
        !is_held
    )
    .fetch_one(connection)
    .await?;
    let wait = wait.filter(|_| is_held).map(millis);
    Ok(wait.map_or(Processed::Done, Processed::Deferred))
}

fn millis(wait: i64) -> Duration {
    Duration::from_millis(u64::try_from(wait).unwrap_or(0))
}

/// Processes the `chain` requests of these runs, each of them once, and sends the notifications. Requests that cannot
/// be processed now are left to the workers.
pub(crate) async fn process_chain_requests(pool: &PgPool, runs: &[i64]) {
    let mut effects = Effects::default();
    let processed = async {
        let mut connection = pool.acquire().await?;
        let requests = sqlx::query_file_as!(Request, "src/sql/chain_requests.sql", runs)
            .fetch_all(&mut *connection)
            .await?;
        for request in requests {
            process(&mut connection, &request, &mut effects).await?;
        }
        Ok::<_, sqlx::Error>(())
    };
    if let Err(error) = processed.await {
        tracing::debug!(%error, "chain requests could not be processed; left to the workers");
    }
    notifications::send(pool, &effects.queues, &effects.notifications).await;
}
