//! What a worker sees to besides its jobs: requests, deadlines, and jobs that are to stop.

use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::seams::{Chore, Settled};
use sqlx::{Connection as _, PgConnection};

use super::news;

/// The channel on which requests are told, and that a run is being cancelled.
pub(crate) const REQUESTS: &str = "pipeline_requests";

/// Requests, deadlines, and jobs that are to stop.
#[derive(Debug)]
pub(crate) struct Errands;

impl Chore for Errands {
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
    ) -> BoxFuture<'a, Result<Settled, sqlx::Error>> {
        Box::pin(async move {
            let mut settled = Settled::default();
            let found = sqlx::query_file!("src/sql/errands.sql", worker)
                .fetch_one(&mut *connection)
                .await?;
            if found.requested == Some(true) {
                add(&mut settled, take_up(connection).await?);
            }
            for run in found.overdue.unwrap_or_default() {
                add(&mut settled, drain(connection, run).await?);
            }
            settled.stop.extend(found.stop.unwrap_or_default());
            Ok(settled)
        })
    }
}

fn add(settled: &mut Settled, more: Settled) {
    settled.queues.extend(more.queues);
    settled.news.extend(more.news);
    settled.stop.extend(more.stop);
}

/// Takes up what was requested, each in a transaction of its own. What concerns a run that somebody
/// else holds is left for the next time.
pub(crate) async fn take_up(connection: &mut PgConnection) -> Result<Settled, sqlx::Error> {
    let mut settled = Settled::default();
    let mut after = 0;
    loop {
        let row = sqlx::query_file!("src/sql/take_up.sql", after)
            .fetch_one(&mut *connection)
            .await?;
        let Some(id) = row.id else {
            return Ok(settled);
        };
        after = id;
        settled.queues.extend(row.queues.unwrap_or_default());
        settled.news.extend(news(&row.over.unwrap_or_default()));
        settled.stop.extend(row.asked.unwrap_or_default());
    }
}

/// Drains a run whose deadline has passed, unless somebody else holds it: then the next time.
async fn drain(connection: &mut PgConnection, run: i64) -> Result<Settled, sqlx::Error> {
    let mut tx = connection.begin().await?;
    let locked = sqlx::query_scalar!("select pipeline.lock_runs_v1($1)", &[run])
        .fetch_one(&mut *tx)
        .await?;
    let mut settled = Settled::default();
    if locked == Some(true) {
        let row = sqlx::query!(
            "select queues, over, asked from pipeline.cancel_v1($1, 'deadline')",
            run
        )
        .fetch_one(&mut *tx)
        .await?;
        settled.queues = row.queues.unwrap_or_default();
        settled.news = news(&row.over.unwrap_or_default());
        settled.stop = row.asked.unwrap_or_default();
    }
    tx.commit().await?;
    Ok(settled)
}
