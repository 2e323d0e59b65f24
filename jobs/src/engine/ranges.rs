//! Ranges of the index `jobs_ready`, as parameters of a query.

use chrono::{DateTime, Utc};

use super::marks::Found;
use super::stretches::{MAX_RANK, MIN_RANK, Place};

/// Ranges as columns for `pipeline.queue_heads_v1`. A range either lies in one queue, from a position up to a rank,
/// or holds all queues from one name up to another.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) queues: Vec<String>,
    pub(super) to_queues: Vec<Option<String>>,
    pub(super) ranks: Vec<i32>,
    pub(super) times: Vec<DateTime<Utc>>,
    pub(super) ids: Vec<i64>,
    pub(super) to_ranks: Vec<i32>,
    /// The positions at which each range begins and ends.
    places: Vec<(Place, Place)>,
}

impl Columns {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Adds the ranges between two positions: the rest of the first queue, the queues in between, and the
    /// beginning of the last queue. `to` is the start of a pair of queue and rank.
    pub(super) fn add(&mut self, from: Place, to: Place) {
        if from.queue == to.queue {
            self.push(from, to, None);
            return;
        }
        let (mut between, first) = (from.queue.clone(), from.clone());
        if from.rank > MIN_RANK || !from.is_start() {
            // Sorts after the first queue and before every longer name with this prefix, because no queue
            // name contains a space.
            between.push(' ');
            let end = Place::start(&from.queue, MAX_RANK);
            if from < end {
                self.push(from, end, None);
            }
        }
        let start = first.max(Place::start(&between, MIN_RANK));
        let last = Place::start(&to.queue, MIN_RANK);
        if between < to.queue {
            self.push(start, last.clone(), Some(between));
        }
        if last < to {
            self.push(last, to, None);
        }
    }

    /// Adds one range: all queues from the name `queues_from` on, or a part of one queue if it is `None`.
    fn push(&mut self, from: Place, to: Place, queues_from: Option<String>) {
        let is_several = queues_from.is_some();
        self.queues
            .push(queues_from.unwrap_or_else(|| from.queue.clone()));
        self.to_queues.push(is_several.then(|| to.queue.clone()));
        self.ranks.push(from.rank);
        self.times.push(from.run_at);
        self.ids.push(from.id);
        self.to_ranks
            .push(if is_several { MAX_RANK } else { to.rank });
        self.places.push((from, to));
    }

    /// Returns the positions between which a scan counted the entries of this result.
    pub(super) fn met(&self, found: &Found) -> Option<(Place, Place)> {
        let at = usize::try_from(found.range - 1).ok()?;
        let (from, to) = self.places.get(at)?;
        let from = match &found.after {
            Some((queue, rank)) if found.step > 1 => Place::start(queue, rank.saturating_add(1)),
            _ => from.clone(),
        };
        Some((from, found.place.clone().unwrap_or_else(|| to.clone())))
    }
}
