//! The ids that a client caches: reserved run ids, and ids of graphs.
//!
//! Cached ids are hints. After a failover or a restore, another run or graph may have a cached id: a start
//! therefore sends nonces and fingerprints, and the database compares them.

use std::collections::HashMap;

use parking_lot::Mutex;
use sqlx::PgConnection;

use crate::graph::Fingerprint;

/// The number of run ids that are reserved for later starts.
const RESERVED_IDS: usize = 64;
/// The maximum number of run ids that one statement takes.
const MAX_IDS_PER_STATEMENT: usize = 1_000_000;
/// The maximum number of graphs that are cached. Graphs may depend on data, so their number is unbounded.
const MAX_CACHED_GRAPHS: usize = 10_000;

/// The cached ids, shared by all clones of a client.
#[derive(Debug, Default)]
pub(crate) struct IdCache {
    graphs: Mutex<HashMap<Fingerprint, i64>>,
    /// The reserved run ids in descending order.
    ids: Mutex<Vec<i64>>,
    /// The identity of the database that returned the last ids: `pipeline.database_id_v1`.
    database: Mutex<Option<String>>,
}

impl IdCache {
    /// Returns the cached id of a graph.
    pub(super) fn graph(&self, fingerprint: &Fingerprint) -> Option<i64> {
        self.graphs.lock().get(fingerprint).copied()
    }

    /// Caches the id of a graph.
    pub(super) fn set_graph(&self, fingerprint: Fingerprint, id: i64) {
        let mut graphs = self.graphs.lock();
        if graphs.len() >= MAX_CACHED_GRAPHS && !graphs.contains_key(&fingerprint) {
            let any = graphs.keys().next().copied();
            any.and_then(|any| graphs.remove(&any));
        }
        graphs.insert(fingerprint, id);
    }

    /// Returns the identity of the database that returned the last run ids.
    pub(super) fn database(&self) -> Option<String> {
        self.database.lock().clone()
    }

    /// Drops the reserved run ids. After a lost connection, or if another run had one of them, other runs may
    /// have the rest too.
    pub(super) fn forget_ids(&self) {
        self.ids.lock().clear();
    }

    /// Takes `count` run ids, and reserves further ids for later starts.
    pub(super) async fn take_ids(
        &self,
        connection: &mut PgConnection,
        count: usize,
    ) -> Result<Vec<i64>, sqlx::Error> {
        if let Some(taken) = self.take_reserved(count) {
            return Ok(taken);
        }
        let mut fresh: Vec<i64> = Vec::new();
        let mut block = count + RESERVED_IDS;
        while fresh.len() < count {
            let ids = i32::try_from(block).unwrap_or(i32::MAX);
            let free = sqlx::query_file!("src/sql/take_run_ids.sql", ids)
                .fetch_all(&mut *connection)
                .await?;
            if let Some(row) = free.first() {
                *self.database.lock() = Some(row.database.clone());
            }
            fresh.extend(free.into_iter().map(|row| row.id));
            // Ids that runs already have are omitted: the sequence may be far behind, so take larger blocks.
            block = (block * 2).min(MAX_IDS_PER_STATEMENT.max(count));
        }
        let ahead = fresh.split_off(count);
        let ahead = ahead.into_iter().take(RESERVED_IDS).rev().collect();
        *self.ids.lock() = ahead;
        Ok(fresh)
    }

    /// Takes `count` reserved run ids, if as many are reserved.
    fn take_reserved(&self, count: usize) -> Option<Vec<i64>> {
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
    fn the_cached_graphs_are_bounded() {
        let cache = IdCache::default();
        for no in 0..MAX_CACHED_GRAPHS as u64 + 500 {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&no.to_le_bytes());
            cache.set_graph(Fingerprint::from_bytes(bytes), 1);
        }
        assert_eq!(cache.graphs.lock().len(), MAX_CACHED_GRAPHS);
    }
}
