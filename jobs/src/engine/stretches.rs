//! Positions and stretches in the index `jobs_ready`, in the order of the index.

use chrono::{DateTime, NaiveDate, Utc};

/// The first rank. A rank is a negated priority.
pub(super) const MIN_RANK: i32 = i32::MIN;
/// The last rank.
pub(super) const MAX_RANK: i32 = i32::MAX;

/// Returns the earliest timestamp of Postgres.
fn min_time() -> DateTime<Utc> {
    NaiveDate::from_ymd_opt(-4713, 11, 24)
        .and_then(|day| day.and_hms_opt(0, 0, 0))
        .map_or(DateTime::UNIX_EPOCH, |time| time.and_utc())
}

/// A position in the index `jobs_ready`. Positions compare in the order of the index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) queue: String,
    pub(super) rank: i32,
    pub(super) run_at: DateTime<Utc>,
    pub(super) id: i64,
}

impl Place {
    /// Returns the position before the first row of this queue and rank.
    pub(super) fn start(queue: &str, rank: i32) -> Self {
        Self::at(queue, rank, min_time())
    }

    /// Returns the position before the first row of this queue, rank and time.
    pub(super) fn at(queue: &str, rank: i32, run_at: DateTime<Utc>) -> Self {
        Self {
            queue: queue.to_owned(),
            rank,
            run_at,
            id: i64::MIN,
        }
    }

    /// Returns whether the position lies before the first row of its queue and rank.
    pub(super) fn is_start(&self) -> bool {
        self.id == i64::MIN && self.run_at == min_time()
    }

    pub(super) fn is_same_pair(&self, other: &Self) -> bool {
        self.queue == other.queue && self.rank == other.rank
    }
}

/// Returns the position of a row, or `None` if the query returned no row.
pub(super) fn place(
    queue: Option<String>,
    rank: Option<i32>,
    run_at: Option<DateTime<Utc>>,
    id: Option<i64>,
) -> Option<Place> {
    Some(Place {
        queue: queue?,
        rank: rank?,
        run_at: run_at?,
        id: id?,
    })
}

/// A part of the index in which a scan found no ready row: from `from` (inclusive) to `to` (exclusive).
/// `from` is the start of a pair of queue and rank.
#[derive(Debug, Clone)]
pub(super) struct Stretch {
    pub(super) from: Place,
    pub(super) to: Place,
    /// The number of index entries in the stretch when they were last counted.
    pub(super) visited: i64,
}

/// Stretches in the order of the index, without overlaps.
#[derive(Debug, Default)]
pub(super) struct Stretches(Vec<Stretch>);

impl Stretches {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stretch> {
        self.0.iter()
    }

    /// Adds a stretch and merges it with the stretches that it touches or overlaps. A stretch that begins in
    /// the middle of a pair is added only if it continues a known stretch, which may have been cut meanwhile.
    pub(super) fn add(&mut self, from: Place, to: Place, visited: i64) {
        if from >= to {
            return;
        }
        let continues = |it: &Stretch| it.from <= from && from <= it.to;
        if !from.is_start() && !self.0.iter().any(continues) {
            return;
        }
        let touches = |it: &Stretch| it.from <= to && from <= it.to;
        let (touched, mut apart): (Vec<_>, Vec<_>) = self.0.drain(..).partition(touches);
        let mut new = Stretch { from, to, visited };
        for it in touched {
            new.from = new.from.min(it.from);
            new.to = new.to.max(it.to);
            new.visited = new.visited.saturating_add(it.visited);
        }
        let at = apart.partition_point(|it| it.from < new.from);
        apart.insert(at, new);
        self.0 = apart;
    }

    /// Removes the positions of this queue from time `since` on from all stretches.
    pub(super) fn cut(&mut self, queue: &str, since: DateTime<Utc>) {
        let (start, end) = (Place::start(queue, MIN_RANK), Place::start(queue, MAX_RANK));
        if !self.0.iter().any(|it| it.from < end && start < it.to) {
            return;
        }
        let mut pieces = Vec::with_capacity(self.0.len() + 2);
        for it in self.0.drain(..) {
            if end <= it.from || it.to <= start {
                pieces.push(it);
                continue;
            }
            let mut keep = |from: Place, to: Place| {
                if from < to {
                    pieces.push(Stretch {
                        from,
                        to,
                        visited: it.visited,
                    });
                }
            };
            // Keep the positions in other queues, and those before `since` in the two ranks that are known.
            keep(it.from.clone(), it.to.clone().min(start.clone()));
            if it.from >= start {
                let before = Place::at(queue, it.from.rank, since);
                keep(it.from.clone(), it.to.clone().min(before));
            }
            if it.to < end && !(it.from >= start && it.from.rank == it.to.rank) {
                let before = Place::at(queue, it.to.rank, since);
                keep(Place::start(queue, it.to.rank), it.to.clone().min(before));
            }
            keep(it.from.clone().max(end.clone()), it.to.clone());
        }
        self.0 = pieces;
    }

    /// Shortens the stretch that contains this row, so that the stretch ends before the row.
    pub(super) fn cut_at(&mut self, row: &Place) {
        for it in &mut self.0 {
            if it.from <= *row && *row < it.to {
                it.to = row.clone();
            }
        }
        self.0.retain(|it| it.from < it.to);
    }

    /// Keeps the `most` stretches with the most entries and removes the others.
    pub(super) fn keep_most_visited(&mut self, most: usize) {
        if self.0.len() > most {
            let mut counts: Vec<i64> = self.0.iter().map(|it| it.visited).collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let least = counts[most - 1];
            self.0.retain(|it| it.visited >= least);
            self.0.truncate(most);
        }
    }

    /// Sets the number of entries of the stretch that begins at `from`, or removes the stretch if there are
    /// fewer than `few` entries.
    pub(super) fn counted(&mut self, from: &Place, visited: i64, few: i64) {
        if visited < few {
            self.0.retain(|it| it.from != *from);
        } else if let Some(it) = self.0.iter_mut().find(|it| it.from == *from) {
            it.visited = visited;
        }
    }
}

/// Returns the positions at which the queues of a pattern begin and end. Every character that a queue name
/// may contain sorts before `~`.
pub(super) fn bounds(pattern: &str) -> (Place, Place) {
    match pattern.strip_suffix('*') {
        Some(prefix) => (
            Place::start(prefix, MIN_RANK),
            Place::start(&format!("{prefix}~"), MIN_RANK),
        ),
        None => (
            Place::start(pattern, MIN_RANK),
            Place::start(pattern, MAX_RANK),
        ),
    }
}
