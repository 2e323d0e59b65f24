//! Low-water marks: stretches of the index `jobs_ready` that are known to hold no ready row.
//!
//! While a transaction elsewhere stays open, vacuum cannot remove dead rows: the index keeps an entry for
//! every job that was claimed since, and a scan steps over each of these entries. A worker therefore
//! remembers the stretches of the index in which it found no ready row, and its next scan skips them.
//!
//! A stretch is a hint. Rows can become ready inside of it: notifications say from which time on, and
//! cut it; a sweep looks into all stretches from time to time. See decision 11.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use super::covers;
use super::ranges::Columns;
pub(super) use super::stretches::place;
use super::stretches::{Place, Stretch, Stretches, bounds};

/// The maximum number of stretches that a worker remembers: each adds a few microseconds to a claim.
const MAX_STRETCHES: usize = 256;
/// The minimum number of index entries in a stretch: a sweep that counts fewer removes the stretch.
const MIN_STRETCH_ENTRIES: i64 = 256;
/// The minimum number of dead entries for which the gap between two queues becomes a stretch. A new queue
/// may appear in the gap: its notification or the sweep reports it.
const MIN_GAP_ENTRIES: i64 = 2_000;
/// How long after its `run_at` a row may become visible, because its transaction commits late. A stretch
/// in an empty queue ends this long before the time of the scan.
const MAX_COMMIT_DELAY: chrono::Duration = chrono::Duration::seconds(1);
/// How long a row must have been locked until stretches may contain it. A claim of another worker is shorter.
const LONG_HELD: chrono::Duration = chrono::Duration::seconds(2);
/// How long a locked row is remembered after the last claim that found it.
const HELD_MEMORY: chrono::Duration = chrono::Duration::seconds(60);
/// The maximum number of cuts that are kept for scans that have not finished.
const MAX_CUTS: usize = 1_024;
/// The duration of a sweep above which the next sweep scans less far back.
const SWEEP_LONG: Duration = Duration::from_secs(1);
/// The duration of a sweep below which the next sweep scans further back.
const SWEEP_SHORT: Duration = Duration::from_millis(250);
/// How far back a sweep scans after a full sweep that took longer than [`SWEEP_LONG`].
const REDUCED_SWEEP_DEPTH: Duration = Duration::from_secs(60 * 60);
/// The depth from which on a sweep is full again.
const FULL_DEPTH: Duration = Duration::from_secs(64 * 24 * 60 * 60);

/// The ranges that a scan covers: the index without the stretches, as columns for `pipeline.queue_heads_v1`.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// The line of each range that belongs to an exact pattern, counted from 1; `None` for other ranges.
    pub(super) lines: Vec<Option<i32>>,
    pub(super) columns: Columns,
    /// The number of the last cut when the scan began.
    cuts: u64,
}

/// The stretches as columns for `pipeline.sweep_ranges_v1`, each in two parts: the last pair of queue and rank, and
/// the ranges before that pair.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    pub(super) queues: Vec<String>,
    pub(super) ranks: Vec<i32>,
    pub(super) times: Vec<DateTime<Utc>>,
    pub(super) to_times: Vec<DateTime<Utc>>,
    pub(super) to_ids: Vec<i64>,
    pub(super) before: Columns,
    /// For each part, the start of the stretch that the part belongs to.
    starts: Vec<Place>,
    /// Whether the sweep scans each stretch completely, not only the times near its end.
    is_full: bool,
}

/// A scan result: a ready row behind many dead entries, or an empty range.
#[derive(Debug)]
pub(super) struct Found {
    /// The position of the range, counted from 1.
    pub(super) range: i32,
    /// The position of the row within the range, counted from 1.
    pub(super) step: i32,
    /// The queue and rank of the previous row; `None` for the first row.
    pub(super) after: Option<(String, i32)>,
    /// The position of the row; `None` if the range holds no further ready row.
    pub(super) place: Option<Place>,
    /// The number of index entries, including dead ones, between the previous row and this one.
    pub(super) visited: i64,
    /// A ready row before `place` that another transaction had locked. `place` is then a row that the claim took.
    pub(super) held: Option<i64>,
}

/// The result of a sweep for one part of a stretch.
#[derive(Debug)]
pub(super) struct Swept {
    /// The position of the part, counted from 1.
    pub(super) part: i32,
    pub(super) place: Option<Place>,
    pub(super) visited: i64,
}

/// The low-water marks of one worker.
#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    stretches: Stretches,
    /// The most recent cuts with their numbers, for scans that began before these cuts.
    cuts: VecDeque<(u64, String, DateTime<Utc>)>,
    last_cut: u64,
    /// The last known time of the database, and the local time at which it was received.
    clock: Option<(DateTime<Utc>, Instant)>,
    /// How far back a sweep scans; `None` for a full sweep.
    depth: Option<Duration>,
    /// Ready rows that other transactions had locked: when a claim first found each of them, and last.
    held: HashMap<i64, (DateTime<Utc>, DateTime<Utc>)>,
}

impl Marks {
    /// Returns the ranges that a scan for work of these patterns, given with their lines, has to cover.
    pub(super) fn ranges(&self, patterns: &[(i32, &str)]) -> Ranges {
        let state = self.0.lock();
        let mut ranges = Ranges {
            cuts: state.last_cut,
            ..Ranges::default()
        };
        for (line, pattern) in patterns {
            let covered = |(other, it): &(i32, &str)| {
                other != line && covers_all(it, pattern) && (it != pattern || other < line)
            };
            if patterns.iter().any(covered) {
                continue;
            }
            let (start, end) = bounds(pattern);
            let is_exact = !pattern.ends_with('*');
            ranges.add(is_exact.then_some(*line), start, end, &state.stretches);
        }
        ranges
    }

    /// Adds stretches where a scan stepped over many entries. The scan began with these ranges, and its
    /// transaction has been committed; `now` is the database's time.
    pub(super) fn learn(&self, ranges: &Ranges, found: &[Found], now: DateTime<Utc>) {
        let mut state = self.0.lock();
        if !state.knows_cuts_since(ranges.cuts) {
            return;
        }
        for found in found {
            let Some((from, end)) = ranges.columns.met(found) else {
                continue;
            };
            if let (Some(id), Some(row)) = (found.held, &found.place) {
                // Other ranks before the row are not known to be empty.
                let start = Some(from).filter(|from| from.is_same_pair(row));
                let start = start.unwrap_or_else(|| Place::start(&row.queue, row.rank));
                if state.is_long_held(id, now) {
                    state.stretches.add(start, row.clone(), found.visited);
                }
                continue;
            }
            if let Some(row) = found.place.as_ref().filter(|row| row.is_same_pair(&from)) {
                state.stretches.add(from, row.clone(), found.visited);
                continue;
            }
            let mut gap = from.clone();
            if !from.is_start() {
                // No ready row is left in this queue and rank. The stretch ends before `now`, so that
                // scans still see rows that become ready from now on.
                let to = Place::at(&from.queue, from.rank, now - MAX_COMMIT_DELAY);
                gap = Place::start(&from.queue, from.rank.saturating_add(1));
                if from < to {
                    state.stretches.add(from, to, found.visited);
                }
            }
            if found.visited >= MIN_GAP_ENTRIES {
                state.stretches.add(gap, end, found.visited);
            } else if let Some(row) = &found.place {
                state.stretches.add(
                    Place::start(&row.queue, row.rank),
                    row.clone(),
                    found.visited,
                );
            }
        }
        state.cut_again(ranges.cuts);
        state.stretches.keep_most_visited(MAX_STRETCHES);
    }

    /// Notes that rows of this queue with a `run_at` of `since` or later may have become ready.
    pub(super) fn cut(&self, queue: &str, since: DateTime<Utc>) {
        let mut state = self.0.lock();
        state.last_cut += 1;
        let number = state.last_cut;
        state.cuts.push_back((number, queue.to_owned(), since));
        if state.cuts.len() > MAX_CUTS {
            state.cuts.pop_front();
        }
        state.stretches.cut(queue, since);
    }

    /// Returns the parts of the stretches that the next sweep has to scan.
    pub(super) fn sweep(&self) -> Sweep {
        let state = self.0.lock();
        let back = state
            .depth
            .and_then(|depth| chrono::Duration::from_std(depth).ok());
        let mut sweep = Sweep {
            is_full: back.is_none(),
            ..Sweep::default()
        };
        let mut before = Vec::new();
        for Stretch { from, to, .. } in state.stretches.iter() {
            let mut start = Place::start(&to.queue, to.rank);
            if sweep.is_full && *from < start {
                sweep.before.add(from.clone(), start.clone());
                before.resize(sweep.before.len(), from.clone());
            }
            if let Some(limited) = back.and_then(|back| to.run_at.checked_sub_signed(back)) {
                start.run_at = start.run_at.max(limited);
            }
            sweep.queues.push(to.queue.clone());
            sweep.ranks.push(to.rank);
            sweep.times.push(start.run_at);
            sweep.to_times.push(to.run_at);
            sweep.to_ids.push(to.id);
            sweep.starts.push(from.clone());
        }
        sweep.starts.extend(before);
        sweep
    }

    /// Cuts the stretches in which a sweep found a ready row, and removes stretches with few entries.
    /// Returns the queues in which the sweep found ready rows.
    pub(super) fn swept(&self, sweep: &Sweep, swept: &[Swept]) -> Vec<String> {
        let mut state = self.0.lock();
        let mut queues = Vec::new();
        let mut visited: BTreeMap<&Place, i64> = BTreeMap::new();
        for swept in swept {
            let at = usize::try_from(swept.part - 1).unwrap_or(usize::MAX);
            let Some(start) = sweep.starts.get(at) else {
                continue;
            };
            let count = visited.entry(start).or_default();
            *count = count.saturating_add(swept.visited);
            if let Some(row) = &swept.place {
                queues.push(row.queue.clone());
                state.stretches.cut_at(row);
                // The sweep did not count the entries behind the row.
                *count = i64::MAX;
            }
        }
        if sweep.is_full {
            for (start, visited) in visited {
                state.stretches.counted(start, visited, MIN_STRETCH_ENTRIES);
            }
        }
        queues
    }

    /// Returns how far back a sweep scans; `None` for a full sweep.
    pub(super) fn depth(&self) -> Option<Duration> {
        self.0.lock().depth
    }

    /// Adjusts the depth of the next sweep to the duration of a sweep that completed or timed out.
    pub(super) fn sweep_took(&self, time: Duration) {
        let mut state = self.0.lock();
        state.depth = match state.depth {
            None if time > SWEEP_LONG => Some(REDUCED_SWEEP_DEPTH),
            Some(depth) if time > SWEEP_LONG => Some((depth / 2).max(Duration::from_secs(60))),
            Some(depth) if time < SWEEP_SHORT => Some(depth * 2).filter(|it| *it < FULL_DEPTH),
            depth => depth,
        };
    }

    /// Records the database's time from an answer that has just arrived.
    pub(super) fn record_time(&self, now: DateTime<Utc>) {
        self.0.lock().clock = Some((now, Instant::now()));
    }

    /// Returns an estimate of the database's time at a local moment, which is rather too early than too late.
    pub(super) fn time_at(&self, moment: Instant) -> DateTime<Utc> {
        let Some((now, heard)) = self.0.lock().clock else {
            return DateTime::UNIX_EPOCH;
        };
        let before = chrono::Duration::from_std(heard.saturating_duration_since(moment));
        let after = chrono::Duration::from_std(moment.saturating_duration_since(heard));
        match (before, after) {
            (Ok(before), Ok(after)) => now + after - before - MAX_COMMIT_DELAY / 10,
            _ => DateTime::UNIX_EPOCH,
        }
    }
}

impl State {
    /// Returns whether all cuts are still kept that came after cut number `look`.
    fn knows_cuts_since(&self, look: u64) -> bool {
        self.cuts
            .front()
            .is_none_or(|(number, ..)| *number <= look + 1)
    }

    /// Notes that a claim found this row locked at `now`. Returns whether the row has been locked for long.
    fn is_long_held(&mut self, row: i64, now: DateTime<Utc>) -> bool {
        self.held.retain(|_, (_, last)| now - *last < HELD_MEMORY);
        let (first, last) = self.held.entry(row).or_insert((now, now));
        *last = now;
        now - *first >= LONG_HELD
    }

    /// Repeats the cuts that came after a scan had begun: the scan's result does not include them.
    fn cut_again(&mut self, look: u64) {
        let since: Vec<_> = self
            .cuts
            .iter()
            .filter(|(no, ..)| *no > look)
            .cloned()
            .collect();
        for (_, queue, time) in since {
            self.stretches.cut(&queue, time);
        }
    }
}

impl Ranges {
    /// Adds the ranges between `start` and `end` that lie in none of the stretches.
    fn add(&mut self, line: Option<i32>, start: Place, end: Place, stretches: &Stretches) {
        let mut from = start;
        for it in stretches.iter() {
            if it.to <= from || end <= it.from {
                continue;
            }
            if from < it.from {
                self.columns.add(from, it.from.clone());
            }
            from = it.to.clone();
        }
        if from < end {
            self.columns.add(from, end);
        }
        self.lines.resize(self.columns.len(), line);
    }
}

/// Returns whether a pattern matches every queue that another pattern matches.
fn covers_all(pattern: &str, other: &str) -> bool {
    match other.strip_suffix('*') {
        Some(prefix) => pattern.ends_with('*') && covers(pattern, prefix),
        None => covers(pattern, other),
    }
}

/// The times up to which ticks have scanned, so that the next tick does not step over dead index entries again.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// The `run_at` up to which earlier ticks have scanned for due jobs.
    pub(super) due_from: Option<DateTime<Utc>>,
    /// The claim time up to which earlier ticks have scanned. Older attempts that still run are in `leased`.
    pub(super) claimed_from: Option<DateTime<Utc>>,
    /// The end of each job's lease, as the last tick read it, by job id.
    leased: HashMap<i64, DateTime<Utc>>,
}

impl Looked {
    /// Makes the next tick scan everything, or as far back as a sweep of this depth.
    pub(super) fn look_back(&mut self, depth: Option<Duration>) {
        let back = depth.and_then(|it| chrono::Duration::from_std(it).ok());
        let earlier = |time: Option<DateTime<Utc>>| time?.checked_sub_signed(back?);
        self.due_from = earlier(self.due_from);
        self.claimed_from = earlier(self.claimed_from);
    }

    /// Returns the jobs whose leases may have expired by now.
    pub(super) fn to_ask(&self, now: DateTime<Utc>) -> Vec<i64> {
        let may_be_over = |until: &DateTime<Utc>| *until < now;
        let asked = self.leased.iter().filter(|(_, until)| may_be_over(until));
        asked.map(|(id, _)| *id).collect()
    }

    /// Forgets all recorded leases, because the tick reads the leases of all running jobs.
    pub(super) fn forget_leases(&mut self) {
        self.leased.clear();
    }

    /// Records the leases that a tick read, and removes the jobs that the tick asked about and did not find.
    pub(super) fn record_leases(
        &mut self,
        asked: &[i64],
        leased: impl Iterator<Item = (i64, DateTime<Utc>)>,
    ) {
        for id in asked {
            self.leased.remove(id);
        }
        self.leased.extend(leased);
    }
}

#[cfg(test)]
mod tests;
