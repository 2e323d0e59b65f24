//! Counts the ends of attempts in their batches, in the transaction that ends them.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use sqlx::PgConnection;

use crate::attempt::{AttemptEnd, Outcome};
use crate::engine::{Effects, EndHook, SlotOffer};

/// The end hook of batches.
#[derive(Debug)]
pub(crate) struct BatchHook;

impl EndHook for BatchHook {
    fn row(&self, end: &AttemptEnd) -> Option<i64> {
        end.batch().filter(|_| end.may_be_last())
    }

    fn lock<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        rows: &'a [i64],
    ) -> BoxFuture<'a, Result<Vec<i64>, sqlx::Error>> {
        Box::pin(async move {
            sqlx::query_file_scalar!("src/sql/batches_lock.sql", rows)
                .fetch_all(connection)
                .await
        })
    }

    fn apply<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        ends: &'a [(&'a AttemptEnd, Outcome)],
        _: &'a SlotOffer,
    ) -> BoxFuture<'a, Result<Effects, sqlx::Error>> {
        Box::pin(async move {
            let mut counts: BTreeMap<i64, (i32, i32)> = BTreeMap::new();
            for (end, outcome) in ends {
                let (Some(batch), true) = (end.batch(), *outcome != Outcome::WillRetry) else {
                    continue;
                };
                let (ended, failed) = counts.entry(batch).or_default();
                *ended += 1;
                *failed += i32::from(*outcome == Outcome::Failed);
            }
            if counts.is_empty() {
                return Ok(Effects::default());
            }
            let batches: Vec<i64> = counts.keys().copied().collect();
            let (ended, failed): (Vec<i32>, Vec<i32>) = counts.into_values().unzip();
            let queues = sqlx::query_scalar!(
                "select pipeline.settle_batches_v1($1, $2, $3)",
                &batches,
                &ended,
                &failed
            )
            .fetch_one(connection)
            .await?;
            Ok(Effects::of_queues(queues.unwrap_or_default()))
        })
    }
}
