//! What a worker sees to besides its jobs: requests, deadlines, and jobs that are to stop.

use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::seams::{Effects, MaintenanceTask};
use sqlx::{Connection as _, PgConnection};

use super::news;

/// The channel on which requests are told, and that a run is being cancelled.
pub(crate) const REQUESTS: &str = "pipeline_requests";

/// Requests, deadlines, and jobs that are to stop.
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
            let mut effects = Effects::default();
            let found = sqlx::query_file!("src/sql/errands.sql", worker)
                .fetch_one(&mut *connection)
                .await?;
            if found.requested == Some(true) {
                add(&mut effects, take_up(connection).await?);
            }
            for run in found.overdue.unwrap_or_default() {
                let drained = drain(connection, run).await;
                add(&mut effects, one_of_many(drained, run)?);
            }
            effects.stop.extend(found.stop.unwrap_or_default());
            Ok(effects)
        })
    }
}

fn add(effects: &mut Effects, more: Effects) {
    effects.queues.extend(more.queues);
    effects.notifications.extend(more.notifications);
    effects.stop.extend(more.stop);
}

/// What became of one errand of many: if the database refuses it, that keeps nobody from the others,
/// and it is tried again the next time.
fn one_of_many(outcome: Result<Effects, sqlx::Error>, run: i64) -> Result<Effects, sqlx::Error> {
    match outcome {
        Err(error) if is_in_the_way(&error) => {
            tracing::debug!(run.id = run, %error, "somebody else holds what a run leads to");
            Ok(Effects::default())
        }
        Err(sqlx::Error::Database(error)) => {
            tracing::error!(run.id = run, %error, "what is asked of a run cannot be done");
            Ok(Effects::default())
        }
        outcome => outcome,
    }
}

/// Whether another transaction was in the way, and the same may be tried again.
pub(crate) fn is_in_the_way(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(code.as_deref(), Some("40001" | "40P01" | "55P03"))
}

/// Takes up what was requested, each in a transaction of its own. What concerns a run that somebody
/// else holds is left for the next time.
pub(crate) async fn take_up(connection: &mut PgConnection) -> Result<Effects, sqlx::Error> {
    let mut effects = Effects::default();
    let mut after = 0;
    loop {
        let requests = sqlx::query_file!("src/sql/requests.sql", after)
            .fetch_all(&mut *connection)
            .await?;
        let Some(last) = requests.last() else {
            return Ok(effects);
        };
        after = last.id;
        for request in requests {
            let taken = take_up_one(connection, request.id).await;
            add(&mut effects, one_of_many(taken, request.run)?);
        }
    }
}

fn asked_for(
    queues: Option<Vec<String>>,
    over: Option<Vec<i64>>,
    stop: Option<Vec<i64>>,
) -> Effects {
    let mut effects = Effects::of_queues(queues.unwrap_or_default());
    effects.notifications = news(&over.unwrap_or_default());
    effects.stop = stop.unwrap_or_default();
    effects
}

async fn take_up_one(connection: &mut PgConnection, request: i64) -> Result<Effects, sqlx::Error> {
    let row = sqlx::query_file!("src/sql/take_up.sql", request)
        .fetch_one(connection)
        .await?;
    Ok(asked_for(row.queues, row.over, row.asked))
}

/// Drains a run whose deadline has passed, unless somebody else holds it: then the next time.
async fn drain(connection: &mut PgConnection, run: i64) -> Result<Effects, sqlx::Error> {
    let mut tx = connection.begin().await?;
    let locked = sqlx::query_scalar!("select pipeline.lock_runs_v1($1)", &[run])
        .fetch_one(&mut *tx)
        .await?;
    let mut effects = Effects::default();
    if locked == Some(true) {
        let row = sqlx::query!(
            "select queues, over, asked from pipeline.cancel_v1($1, 'deadline')",
            run
        )
        .fetch_one(&mut *tx)
        .await?;
        effects = asked_for(row.queues, row.over, row.asked);
    }
    tx.commit().await?;
    Ok(effects)
}
