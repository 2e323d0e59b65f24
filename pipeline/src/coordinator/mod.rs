//! The coordinator: advances runs when attempts of their steps end.
//!
//! The coordinator is not a separate process: it is part of every worker, and uses the engine's extension
//! points. It locks the runs before it reads their rows, advances the runs in the transaction that ends the
//! attempts, and loads the inputs of claimed steps. The transitions are written in SQL: see
//! `migrations/0611_advance.sql`.

mod input;
mod reconciler;
mod requests;
mod rows;

use std::collections::{HashMap, HashSet};

use futures_util::future::BoxFuture;
use jobs::extension::{
    AfterCommit, AttemptEnd, ClaimHook, Claimed, EndHook, EndRow, EndSettings, Ended, FailedRow,
    SlotOffer, positions,
};
use sqlx::PgConnection;

use crate::db::ended_run::EndedRunRow;
use crate::db::ids::run_of;
use crate::db::notifications::runs_ended;

pub(crate) use input::InputLimits;
pub(crate) use reconciler::{RECONCILE_INTERVAL, ReconcilerTask};
pub(crate) use requests::RequestTask;
use rows::{OfferRow, StartedRow};

/// Builds an [`input::Row`] from a row of any query with the columns of `pipeline.load_inputs_v1`.
macro_rules! given {
    ($row:ident) => {
        input::Row {
            params: $row.params,
            options: $row.options,
            shape: $row.shape,
            takes: $row.takes,
            outputs: $row.outputs,
            failed: $row.failed,
            classes: $row.classes,
            messages: $row.messages,
            cancelled: $row.cancelled,
            key: $row.key,
            round: $row.round,
            size: $row.size,
            put_off: $row.put_off,
        }
    };
}

/// Advances runs when attempts of their steps end.
#[derive(Debug)]
pub(crate) struct Coordinator {
    pub(crate) limits: InputLimits,
    /// The function that returns the call that passes ended runs, and the outputs among the written ends, on to the
    /// clients of this process.
    pub(crate) tell: fn(Vec<EndedRunRow>, &[&AttemptEnd]) -> Option<AfterCommit>,
}

impl EndHook for Coordinator {
    fn row(&self, end: &AttemptEnd) -> Option<i64> {
        end.is_owned().then(|| run_of(end.job()))
    }

    fn ends_owned_jobs(&self) -> bool {
        true
    }

    fn span(&self, row: i64, label: Option<&str>) -> tracing::Span {
        tracing::error_span!("run", run.id = row, step.key = label)
    }

    fn is_one_statement(&self) -> bool {
        true
    }

    fn prepare<'a>(
        &'a self,
        connection: &'a mut PgConnection,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>> {
        Box::pin(async move {
            // Without rows: sqlx prepares the statements and asks for their types.
            let (offer, settings) = (SlotOffer::default(), EndSettings::default());
            self.end(&mut *connection, &[], &offer, settings).await?;
            let (none, limits) = (Vec::<i64>::new(), self.limits);
            sqlx::query_file!("src/sql/inputs.sql", &none, limits.step, limits.together)
                .fetch_all(&mut *connection)
                .await?;
            sqlx::query!("select pipeline.plan_advance_v1()")
                .fetch_one(connection)
                .await?;
            Ok(())
        })
    }

    fn end<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        ends: &'a [&'a AttemptEnd],
        offer: &'a SlotOffer,
        settings: EndSettings,
    ) -> BoxFuture<'a, Result<Ended, sqlx::Error>> {
        Box::pin(async move {
            let mut runs: Vec<i64> = ends.iter().map(|end| run_of(end.job())).collect();
            runs.sort_unstable();
            runs.dedup();
            let (rows, offers) = (EndRow::of(ends), OfferRow::of(offer));
            let row = sqlx::query_file!(
                "src/sql/advance.sql",
                &runs,
                &rows as _,
                offer.worker,
                &offers as _,
                &offer.job_types,
                settings.unknown_ms,
                self.limits.step,
                self.limits.together,
                settings.asynchronous_commit,
            )
            .fetch_one(&mut *connection)
            .await?;
            let mut ended = Ended::default();
            ended.stale = positions(row.stale);
            ended.held = positions(row.held);
            ended.held_rows = row.held_runs.unwrap_or_default();
            ended.failed = row
                .failed
                .into_iter()
                .flatten()
                .map(FailedRow::into_parts)
                .collect();
            ended.effects.queues = row.queues.unwrap_or_default();
            let over = row.ended_runs.unwrap_or_default();
            let ids: Vec<i64> = over.iter().map(|run| run.id).collect();
            ended.effects.notifications = runs_ended(&ids);
            let started = row.started.into_iter().flatten();
            ended.effects.started = started
                .map(|step| step.into_claimed(ends, self.limits))
                .collect();
            if !over.is_empty() {
                let unwritten: HashSet<usize> =
                    ended.stale.iter().chain(&ended.held).copied().collect();
                let written: Vec<&AttemptEnd> = (0..ends.len())
                    .filter(|at| !unwritten.contains(at))
                    .map(|at| ends[at])
                    .collect();
                ended
                    .effects
                    .after_commit
                    .extend((self.tell)(over, &written));
            }
            Ok(ended)
        })
    }
}

/// Undoes claims whose inputs exceed [`InputLimits::together`] now. The claims may be committed already.
async fn give_back(
    connection: &mut PgConnection,
    claims: &[(i64, i64)],
) -> Result<(), sqlx::Error> {
    if claims.is_empty() {
        return Ok(());
    }
    let (ids, tokens): (Vec<i64>, Vec<i64>) = claims.iter().copied().unzip();
    sqlx::query!("select pipeline.release_claims_v1($1, $2)", &ids, &tokens)
        .fetch_one(connection)
        .await?;
    Ok(())
}

impl ClaimHook for Coordinator {
    fn load<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        claimed: &'a mut Vec<Claimed>,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>> {
        Box::pin(async move {
            let ids: Vec<i64> = claimed
                .iter()
                .filter(|job| job.is_owned())
                .map(|job| job.id)
                .collect();
            if ids.is_empty() {
                return Ok(());
            }
            let rows = sqlx::query_file!(
                "src/sql/inputs.sql",
                &ids,
                self.limits.step,
                self.limits.together
            )
            .fetch_all(&mut *connection)
            .await?;
            let mut given: HashMap<i64, input::Row> = rows
                .into_iter()
                .map(|row| {
                    let id = row.id;
                    (id, given!(row))
                })
                .collect();
            let mut put_off = Vec::new();
            claimed.retain_mut(|job| {
                match given.remove(&job.id) {
                    Some(given) if given.put_off == Some(true) => {
                        put_off.push((job.id, job.token));
                        return false;
                    }
                    Some(given) => given.fill(job, self.limits),
                    None if job.is_owned() => input::lost(job),
                    None => {}
                }
                true
            });
            give_back(connection, &put_off).await
        })
    }
}
