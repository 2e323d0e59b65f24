//! The end hook of batches: counts the ended jobs of each batch in the transaction that ends their attempts.

use std::collections::{BTreeMap, HashSet};

use futures_util::future::BoxFuture;
use sqlx::PgConnection;

use crate::attempt::AttemptEnd;
use crate::engine::{EndHook, EndSettings, Ended, SlotOffer, end_jobs};

/// The end hook of batches.
#[derive(Debug)]
pub(crate) struct BatchHook;

impl EndHook for BatchHook {
    fn row(&self, end: &AttemptEnd) -> Option<i64> {
        end.batch().filter(|_| end.may_be_last())
    }

    fn span(&self, row: i64, _label: Option<&str>) -> tracing::Span {
        tracing::error_span!("batch", batch.id = row)
    }

    fn end<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        ends: &'a [&'a AttemptEnd],
        _: &'a SlotOffer,
        settings: EndSettings,
    ) -> BoxFuture<'a, Result<Ended, sqlx::Error>> {
        Box::pin(async move {
            let mut batches: Vec<i64> = ends.iter().filter_map(|end| self.row(end)).collect();
            batches.sort_unstable();
            batches.dedup();
            let held_rows = sqlx::query_file_scalar!("src/sql/batches_lock.sql", &batches)
                .fetch_all(&mut *connection)
                .await?;
            // The positions of the ends whose batches are locked now.
            let free: Vec<usize> = (0..ends.len())
                .filter(|at| {
                    !self
                        .row(ends[*at])
                        .is_some_and(|row| held_rows.contains(&row))
                })
                .collect();
            let of_free: Vec<&AttemptEnd> = free.iter().map(|at| ends[*at]).collect();
            let mut ended = end_jobs(&mut *connection, &of_free, settings).await?;
            for at in ended.stale.iter_mut().chain(&mut ended.held) {
                *at = free.get(*at).copied().unwrap_or(usize::MAX);
            }
            for (at, _) in &mut ended.failed {
                *at = free.get(*at).copied().unwrap_or(usize::MAX);
            }
            let unwritten: HashSet<usize> =
                ended.stale.iter().chain(&ended.held).copied().collect();
            let failed: HashSet<usize> = ended.failed.iter().map(|(at, _)| *at).collect();
            let written = free.into_iter().filter(|at| !unwritten.contains(at));
            let counted = written.filter(|at| failed.contains(at) || ends[*at].is_success());
            let mut counts: BTreeMap<i64, (i32, i32)> = BTreeMap::new();
            for at in counted {
                let Some(batch) = ends[at].batch() else {
                    continue;
                };
                let (count, failures) = counts.entry(batch).or_default();
                *count += 1;
                *failures += i32::from(failed.contains(&at));
            }
            ended.held_rows = held_rows;
            if counts.is_empty() {
                return Ok(ended);
            }
            let batches: Vec<i64> = counts.keys().copied().collect();
            let (counts, failures): (Vec<i32>, Vec<i32>) = counts.into_values().unzip();
            let queues = sqlx::query_scalar!(
                "select pipeline.settle_batches_v1($1, $2, $3)",
                &batches,
                &counts,
                &failures
            )
            .fetch_one(connection)
            .await?;
            ended.effects.queues = queues.unwrap_or_default();
            Ok(ended)
        })
    }
}
