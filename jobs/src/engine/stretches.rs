//! Stretches of the index of ready jobs, in its order.

use chrono::{DateTime, NaiveDate, Utc};

/// The first and last rank; ranks are priorities negated.
pub(super) const MIN_RANK: i32 = i32::MIN;
pub(super) const MAX_RANK: i32 = i32::MAX;

/// The earliest time that Postgres knows.
fn min_time() -> DateTime<Utc> {
    NaiveDate::from_ymd_opt(-4713, 11, 24)
        .and_then(|day| day.and_hms_opt(0, 0, 0))
        .map_or(DateTime::UNIX_EPOCH, |time| time.and_utc())
}

/// A position in the index `jobs_ready`, in its order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) queue: String,
    pub(super) rank: i32,
    pub(super) run_at: DateTime<Utc>,
    pub(super) id: i64,
}

impl Place {
    /// Before the first row of this queue and rank.
    pub(super) fn start(queue: &str, rank: i32) -> Self {
        Self::at(queue, rank, min_time())
    }

    /// Before the first row of this queue, rank and time.
    pub(super) fn at(queue: &str, rank: i32, run_at: DateTime<Utc>) -> Self {
        Self {
            queue: queue.to_owned(),
            rank,
            run_at,
            id: i64::MIN,
        }
    }

    /// Whether it lies before the first row of its queue and rank.
    pub(super) fn is_start(&self) -> bool {
        self.id == i64::MIN && self.run_at == min_time()
    }

    pub(super) fn is_same_pair(&self, other: &Self) -> bool {
        self.queue == other.queue && self.rank == other.rank
    }
}

/// The position of a row that was found, if one was.
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

/// From `from` up to and without `to` nothing ready was seen. `from` is the start of a pair of queue and
/// rank.
#[derive(Debug, Clone)]
pub(super) struct Stretch {
    pub(super) from: Place,
    pub(super) to: Place,
    /// How many index entries it held when they were last counted.
    pub(super) visited: i64,
}

/// Stretches in order, apart from each other.
#[derive(Debug, Default)]
pub(super) struct Stretches(Vec<Stretch>);

impl Stretches {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stretch> {
        self.0.iter()
    }

    /// Adds a stretch, which may touch or overlap others. One that begins in the middle of a pair must
    /// continue another: that one may have been cut since.
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

    /// Takes what may lie in this queue from this time on out of all stretches.
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
            // What lies in other queues, and what lies before that time in the ranks we know.
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

    /// Ends the stretch that this row was found in before it.
    pub(super) fn cut_at(&mut self, row: &Place) {
        for it in &mut self.0 {
            if it.from <= *row && *row < it.to {
                it.to = row.clone();
            }
        }
        self.0.retain(|it| it.from < it.to);
    }

    /// Keeps so many stretches, those with the most entries.
    pub(super) fn keep_most_visited(&mut self, most: usize) {
        if self.0.len() > most {
            let mut counts: Vec<i64> = self.0.iter().map(|it| it.visited).collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let least = counts[most - 1];
            self.0.retain(|it| it.visited >= least);
            self.0.truncate(most);
        }
    }

    /// Sets how many entries the stretch that begins here holds; forgets it if they are few.
    pub(super) fn counted(&mut self, from: &Place, visited: i64, few: i64) {
        if visited < few {
            self.0.retain(|it| it.from != *from);
        } else if let Some(it) = self.0.iter_mut().find(|it| it.from == *from) {
            it.visited = visited;
        }
    }
}

/// Where the queues of a pattern begin and end. Every character of a name comes before `~`.
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
