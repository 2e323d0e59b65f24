//! The reconciler: repairs runs whose rows were changed outside the pipeline.
//!
//! A step and its queue row, and a run and its counts, are written in one transaction and always agree. If a
//! queue row is deleted or changed by hand, no worker would ever continue the step. Every worker therefore
//! tries to run a pass at an interval, and one worker at a time does. A step that cannot run any more fails
//! with a reason. Normally a pass finds no problems;
//! [`Client::reconciler_stats`](crate::Client::reconciler_stats) returns the number of passes and problems.

use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::extension::{Effects, MaintenanceTask};
use sqlx::PgConnection;

use crate::db::is_conflict;
use crate::db::notifications::runs_ended;

/// The default interval between two passes.
pub(crate) const RECONCILE_INTERVAL: Duration = Duration::from_secs(10);
/// The maximum number of runs in one pass.
const MAX_RUNS_PER_PASS: i32 = 500;
/// The number of steps and edges after which a pass ends. A larger run is checked in parts.
const MAX_STEPS_AND_EDGES_PER_PASS: i64 = 20_000;

/// Checks live runs and repairs them.
#[derive(Debug)]
pub(crate) struct ReconcilerTask {
    pub(crate) every: Duration,
}

impl MaintenanceTask for ReconcilerTask {
    fn name(&self) -> &'static str {
        "reconciler"
    }

    fn every(&self) -> Duration {
        self.every
    }

    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        worker: i64,
    ) -> BoxFuture<'a, Result<Effects, sqlx::Error>> {
        Box::pin(async move {
            let pass = sqlx::query_file!(
                "src/sql/reconcile.sql",
                worker,
                i64::try_from(self.every.as_millis()).unwrap_or(i64::MAX),
                MAX_RUNS_PER_PASS,
                MAX_STEPS_AND_EDGES_PER_PASS,
            )
            .fetch_one(&mut *connection)
            .await?;
            let mut effects = Effects::default();
            if pass.runs.is_empty() {
                return Ok(effects);
            }
            let suspects = sqlx::query_scalar!(
                "select pipeline.runs_to_check_v1($1, $2, $3, $4)",
                &pass.runs,
                &pass.firsts,
                &pass.lasts,
                &pass.is_end
            )
            .fetch_one(&mut *connection)
            .await?
            .unwrap_or_default();
            let parts = pass.runs.iter().zip(pass.firsts.iter().zip(&pass.lasts));
            for ((run, (first, last)), is_end) in parts.zip(&pass.is_end) {
                if suspects.contains(run) {
                    let part = Part {
                        run: *run,
                        first: *first,
                        last: *last,
                        is_end: *is_end,
                    };
                    repair(connection, worker, &part, &mut effects).await?;
                }
            }
            Ok(effects)
        })
    }
}

/// Steps of a run that are checked together.
struct Part {
    run: i64,
    first: i32,
    last: i32,
    is_end: bool,
}

/// Checks one run again under its lock, and repairs it. An error of the database for one run does not stop the
/// pass.
async fn repair(
    connection: &mut PgConnection,
    worker: i64,
    part: &Part,
    effects: &mut Effects,
) -> Result<(), sqlx::Error> {
    let run = part.run;
    let repaired = sqlx::query_file!(
        "src/sql/repair_run.sql",
        run,
        worker,
        part.first,
        part.last,
        part.is_end
    )
    .fetch_one(&mut *connection)
    .await;
    match repaired {
        Ok(repaired) => {
            for problem in repaired.problems.unwrap_or_default() {
                tracing::warn!(
                    run.id = run,
                    problem,
                    "rows of a run were changed from outside"
                );
            }
            effects.queues.extend(repaired.queues.unwrap_or_default());
            effects
                .notifications
                .extend(runs_ended(&repaired.ended_runs.unwrap_or_default()));
        }
        Err(error) if is_conflict(&error) => {
            tracing::debug!(run.id = run, %error, "run is held by another transaction; repairing it in the next pass");
        }
        Err(error) if error.as_database_error().is_some() => {
            tracing::error!(run.id = run, %error, "run was changed from outside and cannot be repaired");
            sqlx::query!("select pipeline.count_problems_v1(1)")
                .execute(connection)
                .await?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
