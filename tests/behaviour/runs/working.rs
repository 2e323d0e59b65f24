//! Queries of the tests of runs.

use pipeline::Worker;
use tests::Database;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::jobs::support::eventually;

/// A worker in the test's own process, until it is stopped.
pub(super) struct Working {
    stop: DropGuard,
    worker: JoinHandle<pipeline::Result<()>>,
}

impl Working {
    pub(super) fn start(worker: Worker) -> Self {
        let stop = CancellationToken::new();
        let worker = worker.run_until(stop.clone().cancelled_owned());
        Self {
            stop: stop.drop_guard(),
            worker: tokio::spawn(worker),
        }
    }

    pub(super) async fn stop(self) {
        drop(self.stop);
        self.worker.await.unwrap().unwrap();
    }
}

/// Waits until a run is over; its status.
pub(super) async fn run_ended(db: &Database, run: pipeline::RunId) -> String {
    eventually("the end of a run", async || {
        sqlx::query_scalar(
            "select status::text from pipeline.runs where id = $1 and ended_at is not null",
        )
        .bind(run)
        .fetch_optional(db.pool())
        .await
        .unwrap()
    })
    .await
}

/// The steps of a run in the order of its graph: key, status, output.
pub(super) async fn steps(
    db: &Database,
    run: pipeline::RunId,
) -> Vec<(String, String, Option<String>)> {
    sqlx::query_as(
        "select v.step, v.status, s.output::text from pipeline.run_steps v
         join pipeline.steps s on s.run = v.run and s.no = v.no
         where v.run = $1 order by v.no",
    )
    .bind(run)
    .fetch_all(db.pool())
    .await
    .unwrap()
}
