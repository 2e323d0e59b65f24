//! The coordinator: advances runs when attempts of their steps end.
//!
//! The coordinator is not a separate process: it is part of every worker, and uses the engine's extension
//! points. It locks the runs before it reads their rows, advances the runs in the transaction that ends the
//! attempts, and loads the inputs of claimed steps. The transitions are written in SQL: see
//! `migrations/0012_advance.sql`.

mod errands;
mod input;
mod local_waiters;
mod reconcile;
mod store;

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use jobs::seams::{
    AttemptEnd, ClaimHook, Claimed, Effects, EndHook, FailureLabel, Notification, Outcome,
    SlotOffer,
};
use sqlx::PgConnection;

pub(crate) use errands::{Errands, REQUESTS, is_in_the_way, take_up_chains};
pub(crate) use input::{InputLimits, shaped};
pub(crate) use reconcile::{EVERY, Reconciler};
pub(crate) use store::{Kept, kind_name, options_json, store};

/// The channel that announces ended runs.
pub(crate) const CHANNEL: &str = "pipeline_runs";
/// The number of run ids in one notification, whose payload is limited to less than 8,000 bytes.
const IDS_PER_NOTIFICATION: usize = 350;

/// Returns the id of a step's job, which is also the id of its batch.
pub(crate) fn step_id(run: i64, no: u32) -> i64 {
    (run << 18) + 2 * i64::from(no)
}

/// Returns the run that a step's job belongs to.
pub(crate) fn run_of(job: i64) -> i64 {
    job >> 18
}

/// Returns the number of the step in its graph.
#[cfg(test)]
fn no_of(job: i64) -> u32 {
    u32::try_from((job & 0x3_FFFF) >> 1).unwrap_or(0)
}

/// Builds an [`input::Row`] from a row of any query with the columns of `pipeline.inputs_v1`.
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
#[derive(Debug, Default)]
pub(crate) struct Coordinator {
    pub(crate) limits: InputLimits,
}

impl EndHook for Coordinator {
    fn row(&self, end: &AttemptEnd) -> Option<i64> {
        end.is_step().then(|| run_of(end.job()))
    }

    fn takes_steps(&self) -> bool {
        true
    }

    fn lock<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        runs: &'a [i64],
    ) -> BoxFuture<'a, Result<Vec<i64>, sqlx::Error>> {
        Box::pin(async move {
            sqlx::query_file_scalar!("src/sql/lock_for_advance.sql", runs)
                .fetch_one(connection)
                .await
        })
    }

    fn apply<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        ends: &'a [(&'a AttemptEnd, Outcome)],
        offer: &'a SlotOffer,
    ) -> BoxFuture<'a, Result<Effects, sqlx::Error>> {
        Box::pin(async move {
            let end = Ends::of(ends);
            let patterns: Vec<&str> = offer.queues.iter().map(|it| it.pattern.as_str()).collect();
            let free: Vec<i32> = offer.queues.iter().map(|it| it.free).collect();
            let floors: Vec<i16> = offer.queues.iter().map(|it| it.min_priority).collect();
            let rows = sqlx::query_file!(
                "src/sql/advance.sql",
                &end.ids,
                &end.tokens,
                &end.attempts,
                &end.came,
                &end.ran as &[Option<i32>],
                &end.outputs as &[Option<&str>],
                &end.classes as &[Option<&str>],
                &end.messages as &[Option<&str>],
                offer.worker,
                &patterns as &[&str],
                &free,
                &floors,
                &offer.kinds,
                self.limits.step,
                self.limits.together,
            )
            .fetch_all(&mut *connection)
            .await?;
            let mut put_off = Vec::new();
            let mut effects = Effects::default();
            effects.failed = failure_labels(connection, ends).await?;
            let mut tokens: HashMap<i64, i64> = HashMap::new();
            let mut over = Vec::new();
            for (at, row) in rows.into_iter().enumerate() {
                if at == 0 {
                    let started = row.started.unwrap_or_default().into_iter();
                    tokens = started.zip(row.tokens.unwrap_or_default()).collect();
                    effects.queues = row.queues.unwrap_or_default();
                    over = row.over.unwrap_or_default();
                    effects.notifications = news(&over);
                }
                let (Some(id), Some(kind), Some(queue)) = (row.id, row.kind, row.queue) else {
                    continue;
                };
                let Some(token) = tokens.get(&id) else {
                    continue;
                };
                if row.put_off == Some(true) {
                    put_off.push((id, *token));
                    effects.queues.push(queue);
                    continue;
                }
                let mut job = Claimed::handed_over(id, *token, kind, queue);
                job.priority = row.priority.unwrap_or(0);
                job.attempts = row.attempts.unwrap_or(1);
                job.lease_ms = row.lease_ms.unwrap_or(1_000);
                let given = given!(row);
                given.fill(&mut job, self.limits);
                effects.started.push(job);
            }
            give_back(connection, &put_off).await?;
            let told = local_waiters::ended(connection, &over).await?;
            effects.after_commit.extend(told);
            Ok(effects)
        })
    }
}

/// Returns the names, for log lines, of the steps that have failed for good.
async fn failure_labels(
    connection: &mut PgConnection,
    ends: &[(&AttemptEnd, Outcome)],
) -> Result<HashMap<i64, FailureLabel>, sqlx::Error> {
    let failed = |(_, outcome): &&(&AttemptEnd, Outcome)| *outcome == Outcome::Failed;
    let ids: Vec<i64> = ends
        .iter()
        .filter(failed)
        .map(|(end, _)| end.job())
        .collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = sqlx::query_file!("src/sql/failure_labels.sql", &ids)
        .fetch_all(connection)
        .await?;
    let mut labels = HashMap::new();
    for row in rows {
        let label = FailureLabel::of_step(row.run, row.step, row.key, row.is_optional);
        labels.insert(row.job, label);
    }
    Ok(labels)
}

/// Undoes claims in the transaction that made them, because the inputs exceed [`InputLimits::together`] now.
async fn give_back(
    connection: &mut PgConnection,
    claims: &[(i64, i64)],
) -> Result<(), sqlx::Error> {
    if claims.is_empty() {
        return Ok(());
    }
    let (ids, tokens): (Vec<i64>, Vec<i64>) = claims.iter().copied().unzip();
    sqlx::query!("select pipeline.unclaim_v1($1, $2)", &ids, &tokens)
        .fetch_one(connection)
        .await?;
    Ok(())
}

/// Ends of attempts, as one array for each column.
struct Ends<'a> {
    ids: Vec<i64>,
    tokens: Vec<i64>,
    attempts: Vec<i16>,
    came: Vec<i16>,
    ran: Vec<Option<i32>>,
    outputs: Vec<Option<&'a str>>,
    classes: Vec<Option<&'a str>>,
    messages: Vec<Option<&'a str>>,
}

impl<'a> Ends<'a> {
    fn of(ends: &'a [(&'a AttemptEnd, Outcome)]) -> Self {
        let came = |end: &AttemptEnd, came: Outcome| match came {
            Outcome::Failed if end.is_lost() => 3,
            Outcome::Failed => 1,
            Outcome::WillRetry if end.error().is_some() => 4,
            Outcome::WillRetry => 5,
            _ if end.halts() => 2,
            _ => 0,
        };
        Self {
            ids: ends.iter().map(|(end, _)| end.job()).collect(),
            tokens: ends.iter().map(|(end, _)| end.token()).collect(),
            attempts: ends.iter().map(|(end, _)| end.attempt()).collect(),
            came: ends.iter().map(|(end, how)| came(end, *how)).collect(),
            ran: ends
                .iter()
                .map(|(end, _)| {
                    end.ran()
                        .and_then(|ran| i32::try_from(ran.as_millis()).ok())
                })
                .collect(),
            outputs: ends
                .iter()
                .map(|(end, _)| end.output().map(|output| output.get()))
                .collect(),
            classes: ends.iter().map(|(end, _)| Some(end.error()?.0)).collect(),
            messages: ends.iter().map(|(end, _)| Some(end.error()?.1)).collect(),
        }
    }
}

/// Returns the notifications that announce ended runs.
pub(crate) fn news(runs: &[i64]) -> Vec<Notification> {
    let text = |runs: &[i64]| {
        let ids: Vec<String> = runs.iter().map(i64::to_string).collect();
        Notification {
            channel: CHANNEL,
            payload: ids.join(","),
        }
    };
    runs.chunks(IDS_PER_NOTIFICATION).map(text).collect()
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
                .filter(|job| job.is_step())
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
                    None if job.is_step() => input::lost(job),
                    None => {}
                }
                true
            });
            give_back(connection, &put_off).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_id_that_its_run_and_its_place_give_it() {
        for (run, no) in [(1, 0), (1, 1), (7, 99_999), (1 << 40, 131_071)] {
            let id = step_id(run, no);
            assert_eq!((run_of(id), no_of(id), id % 2), (run, no, 0), "{run} {no}");
        }
    }
}
