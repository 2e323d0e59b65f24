//! What a client remembers of the database: ids that it has taken ahead, and the ids of graphs.
//!
//! All of it is a hint. After a failover or a restore, an id may be that of another run or graph: a start
//! sends its own nonces and fingerprints along, and the database compares them.

use std::collections::HashMap;

use parking_lot::Mutex;
use sqlx::PgConnection;

use crate::graph::Fingerprint;

/// How many run ids are taken ahead.
const AHEAD: usize = 64;
/// The most run ids that one statement takes.
const BLOCK: usize = 1_000_000;
/// The most graphs that are remembered: shapes may depend on data, and then there is no end of them.
const GRAPHS: usize = 10_000;

/// What the clones of a client remember together.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    graphs: Mutex<HashMap<Fingerprint, i64>>,
    /// The smallest last.
    ids: Mutex<Vec<i64>>,
}

impl Remembered {
    /// The id that a graph had when it was stored or found.
    pub(super) fn graph(&self, fingerprint: &Fingerprint) -> Option<i64> {
        self.graphs.lock().get(fingerprint).copied()
    }

    pub(super) fn set_graph(&self, fingerprint: Fingerprint, id: i64) {
        let mut graphs = self.graphs.lock();
        if graphs.len() >= GRAPHS && !graphs.contains_key(&fingerprint) {
            let any = graphs.keys().next().copied();
            any.and_then(|any| graphs.remove(&any));
        }
        graphs.insert(fingerprint, id);
    }

    /// Drops the ids that were taken ahead: after a lost connection, or when one of them was found to be
    /// another's, the others may be too.
    pub(super) fn forget_ids(&self) {
        self.ids.lock().clear();
    }

    /// Takes ids for runs, and some more for the starts to come.
    pub(super) async fn take_ids(
        &self,
        connection: &mut PgConnection,
        count: usize,
    ) -> Result<Vec<i64>, sqlx::Error> {
        if let Some(taken) = self.take_from_those_ahead(count) {
            return Ok(taken);
        }
        let mut fresh: Vec<i64> = Vec::new();
        let mut block = count + AHEAD;
        while fresh.len() < count {
            let ids = i32::try_from(block).unwrap_or(i32::MAX);
            let free = sqlx::query_file_scalar!("src/sql/take_run_ids.sql", ids)
                .fetch_all(&mut *connection)
                .await?;
            fresh.extend(free);
            // Where runs have these ids, the sequence stands behind them, maybe by far.
            block = (block * 2).min(BLOCK.max(count));
        }
        let ahead = fresh.split_off(count);
        let ahead = ahead.into_iter().take(AHEAD).rev().collect();
        *self.ids.lock() = ahead;
        Ok(fresh)
    }

    fn take_from_those_ahead(&self, count: usize) -> Option<Vec<i64>> {
        let mut ids = self.ids.lock();
        let rest = ids.len().checked_sub(count)?;
        let mut taken = ids.split_off(rest);
        taken.reverse();
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graphs_that_are_remembered_are_bounded() {
        let remembered = Remembered::default();
        for no in 0..GRAPHS as u64 + 500 {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&no.to_le_bytes());
            remembered.set_graph(Fingerprint::from_bytes(bytes), 1);
        }
        assert_eq!(remembered.graphs.lock().len(), GRAPHS);
    }
}
