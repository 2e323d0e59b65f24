//! Low-water marks: where the index of ready jobs is known to hold nothing ready.
//!
//! While a transaction elsewhere stays open, the index keeps an entry for every job that was ever
//! claimed, and a scan has to step over each of them. A worker therefore remembers the stretches of
//! the index in which it saw nothing ready, and leaves them out of its next look.
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

/// The most stretches that are remembered: each costs a claim a few microseconds.
const MAX_STRETCHES: usize = 256;
/// A sweep that meets fewer entries in a stretch than this forgets the stretch.
const FEW: i64 = 256;
/// So many entries between two queues are left out, although new queues may appear there: their
/// notifications, or the sweep, tell of them.
const GAP: i64 = 2_000;
/// Where a queue has nothing ready, rows that became ready this long ago are still looked for: their
/// transaction may commit late.
const LATE: chrono::Duration = chrono::Duration::seconds(1);
/// The most cuts that are kept for looks that are under way.
const MAX_CUTS: usize = 1_024;
/// A sweep that took longer looks less far back the next time, one that took less looks further.
const SWEEP_LONG: Duration = Duration::from_secs(1);
const SWEEP_SHORT: Duration = Duration::from_millis(250);
/// How far back a sweep looks after one that took too long; and where it looks everywhere again.
const DEPTH: Duration = Duration::from_secs(60 * 60);
const FULL_DEPTH: Duration = Duration::from_secs(64 * 24 * 60 * 60);

/// Where a look goes: the index without the stretches, as columns for `pipeline.heads_v1`.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// The line of an exact pattern, `None` for the others; the first is 1.
    pub(super) lines: Vec<Option<i32>>,
    pub(super) columns: Columns,
    /// The marks were like this when the look began.
    cuts: u64,
}

/// The stretches as columns for `pipeline.sweep_v1`: what lies in the last pair of each, and what lies
/// before that pair.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    pub(super) queues: Vec<String>,
    pub(super) ranks: Vec<i32>,
    pub(super) times: Vec<DateTime<Utc>>,
    pub(super) to_times: Vec<DateTime<Utc>>,
    pub(super) to_ids: Vec<i64>,
    pub(super) before: Columns,
    /// The start of the stretch that each of them belongs to.
    starts: Vec<Place>,
    /// It looks into all of each stretch, not only into what is near its end.
    is_full: bool,
}

/// What a look found: a ready row far behind others, or that there is none.
#[derive(Debug)]
pub(super) struct Found {
    /// Which of the ranges; the first is 1.
    pub(super) range: i32,
    /// Where in the range; the first is 1.
    pub(super) step: i32,
    /// The queue and rank of the row before, unless it is the first.
    pub(super) after: Option<(String, i32)>,
    /// The row; `None` where the range holds nothing more.
    pub(super) place: Option<Place>,
    pub(super) visited: i64,
}

/// What a sweep found in one part of a stretch.
#[derive(Debug)]
pub(super) struct Swept {
    /// Which of the parts; the first is 1.
    pub(super) part: i32,
    pub(super) place: Option<Place>,
    pub(super) visited: i64,
}

/// What one worker remembers of the index.
#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    stretches: Stretches,
    /// The last cuts, numbered, for looks that began before them.
    cuts: VecDeque<(u64, String, DateTime<Utc>)>,
    last_cut: u64,
    /// A time of the database, and when we heard of it: not before that time.
    clock: Option<(DateTime<Utc>, Instant)>,
    /// How far back a sweep looks; everywhere if `None`.
    depth: Option<Duration>,
}

impl Marks {
    /// Where to look for work of these patterns, given with their lines.
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

    /// Remembers where a look met many entries on its way to what it found. The look has been
    /// committed, and began with these ranges; the time is the database's.
    pub(super) fn learn(&self, ranges: &Ranges, found: &[Found], now: DateTime<Utc>) {
        let mut state = self.0.lock();
        if !state.knows_cuts_since(ranges.cuts) {
            return;
        }
        for found in found {
            let Some((from, end)) = ranges.columns.met(found) else {
                continue;
            };
            if let Some(row) = found.place.as_ref().filter(|row| row.is_same_pair(&from)) {
                state.stretches.add(from, row.clone(), found.visited);
                continue;
            }
            let mut gap = from.clone();
            if !from.is_start() {
                // This queue and rank has nothing any more. What becomes ready from now on is seen.
                let to = Place::at(&from.queue, from.rank, now - LATE);
                gap = Place::start(&from.queue, from.rank.saturating_add(1));
                if from < to {
                    state.stretches.add(from, to, found.visited);
                }
            }
            if found.visited >= GAP {
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

    /// Rows of this queue became ready, or may have, whose `run_at` is this or later.
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

    /// What a sweep has to look into.
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

    /// Cuts the stretches in which a sweep found something, and forgets those that are not worth it.
    /// Returns the queues in which it found something.
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
                // What lies behind the row was not counted.
                *count = i64::MAX;
            }
        }
        if sweep.is_full {
            for (start, visited) in visited {
                state.stretches.counted(start, visited, FEW);
            }
        }
        queues
    }

    /// How far back a sweep looks, in milliseconds; everywhere if `None`.
    pub(super) fn depth(&self) -> Option<Duration> {
        self.0.lock().depth
    }

    /// A sweep took this long, or was cut off after it.
    pub(super) fn sweep_took(&self, time: Duration) {
        let mut state = self.0.lock();
        state.depth = match state.depth {
            None if time > SWEEP_LONG => Some(DEPTH),
            Some(depth) if time > SWEEP_LONG => Some((depth / 2).max(Duration::from_secs(60))),
            Some(depth) if time < SWEEP_SHORT => Some(depth * 2).filter(|it| *it < FULL_DEPTH),
            depth => depth,
        };
    }

    /// The database's time was this when it answered.
    pub(super) fn heard(&self, now: DateTime<Utc>) {
        self.0.lock().clock = Some((now, Instant::now()));
    }

    /// A time of the database that was not later than this moment of ours.
    pub(super) fn time_at(&self, moment: Instant) -> DateTime<Utc> {
        let Some((now, heard)) = self.0.lock().clock else {
            return DateTime::UNIX_EPOCH;
        };
        let before = chrono::Duration::from_std(heard.saturating_duration_since(moment));
        let after = chrono::Duration::from_std(moment.saturating_duration_since(heard));
        match (before, after) {
            (Ok(before), Ok(after)) => now + after - before - LATE / 10,
            _ => DateTime::UNIX_EPOCH,
        }
    }
}

impl State {
    fn knows_cuts_since(&self, look: u64) -> bool {
        self.cuts
            .front()
            .is_none_or(|(number, ..)| *number <= look + 1)
    }

    /// Cuts what a look could not know of when it began.
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
    /// What is between `start` and `end` and in none of the stretches.
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

/// Whether one pattern stands for all queues that another stands for.
fn covers_all(pattern: &str, other: &str) -> bool {
    match other.strip_suffix('*') {
        Some(prefix) => pattern.ends_with('*') && covers(pattern, prefix),
        None => covers(pattern, other),
    }
}

/// What the tick has looked at already, so that it does not step over dead index entries again.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// Due jobs before this time were looked for.
    pub(super) due_from: Option<DateTime<Utc>>,
    /// Attempts that were claimed before this time and run still are in `leased`.
    pub(super) claimed_from: Option<DateTime<Utc>>,
    /// By job, until when its lease lasted when we last looked.
    leased: HashMap<i64, DateTime<Utc>>,
}

impl Looked {
    /// Looks everywhere the next time, or as far back as a sweep may.
    pub(super) fn look_back(&mut self, depth: Option<Duration>) {
        let back = depth.and_then(|it| chrono::Duration::from_std(it).ok());
        let earlier = |time: Option<DateTime<Utc>>| time?.checked_sub_signed(back?);
        self.due_from = earlier(self.due_from);
        self.claimed_from = earlier(self.claimed_from);
    }

    /// The jobs whose leases may have run out since.
    pub(super) fn to_ask(&self, now: DateTime<Utc>) -> Vec<i64> {
        let may_be_over = |until: &DateTime<Utc>| *until < now;
        let asked = self.leased.iter().filter(|(_, until)| may_be_over(until));
        asked.map(|(id, _)| *id).collect()
    }

    /// Forgets the jobs that were known: the tick looks at everything that runs.
    pub(super) fn forget_leases(&mut self) {
        self.leased.clear();
    }

    /// Remembers what a tick found out about the jobs it asked about, and others.
    pub(super) fn saw(
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
