//! The keys of steps: those that a user writes, and those that barriers and merges are given.
//!
//! A barrier or a merge that is declared in code has no name. It is given a key with a `:`, which no other step may
//! have, so that a generated key never equals one that a user wrote.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::limits::shown;
use super::problem::Problem;

/// The maximum length of a name, in bytes.
pub(super) const MAX_NAME_BYTES: usize = jobs::extension::limits::MAX_NAME_BYTES;

/// Returns the key of a graph's barrier, counted from 1: `barrier:1`.
pub(crate) fn barrier_key(number: usize) -> String {
    format!("barrier:{number}")
}

/// Returns the key of the merge of a branch: `merge:format`.
pub(crate) fn merge_key(branch: &str) -> String {
    format!("merge:{branch}")
}

/// Returns whether a value consists of 1 to 128 of the characters `a-z`, `A-Z`, `0-9`, `.`, `_` and `-`.
pub(super) fn is_name(value: &str) -> bool {
    !value.is_empty() && value.len() <= MAX_NAME_BYTES && value.bytes().all(in_name)
}

fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// Returns whether a key has the form of a generated one.
pub(super) fn is_generated(key: &str) -> bool {
    let is_number = |text: &str| {
        !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    match key.split_once(':') {
        Some(("barrier", number)) => is_number(number),
        Some(("merge", rest)) => match rest.split_once(':') {
            Some((branch, number)) => is_name(branch) && is_number(number),
            None => is_name(rest),
        },
        _ => false,
    }
}

/// The step of each key; of several steps with one key, the first.
///
/// This is a hash table of its own, because finding steps is most of the work on a large graph, and most of it is
/// waiting for memory: small slots stay in the processor's caches, and keys are stored in the order of the steps, so that
/// the keys of neighbouring steps are close to each other.
pub(super) struct KeyIndex<'s> {
    hasher: RandomState,
    /// At least two slots for each step. 0 is a free slot; else the lower bits are the number of a step plus one, and the
    /// upper bits are bits of its key's hash.
    slots: Vec<u32>,
    step_bits: u32,
    keys: Vec<Key<'s>>,
    duplicates: HashMap<&'s str, Duplicate>,
}

struct Duplicate {
    first: u32,
    times: usize,
}

/// The slot at which the search for a key ended.
enum Slot {
    Taken(u32),
    Free { at: usize, tag: u32 },
}

impl<'s> KeyIndex<'s> {
    /// Creates an index for this many steps, which are then added in their order.
    pub(super) fn with_capacity(steps: usize) -> Self {
        let slots = (2 * steps + 1).next_power_of_two();
        Self {
            hasher: RandomState::new(),
            step_bits: slots.trailing_zeros(),
            slots: vec![0; slots],
            keys: Vec::with_capacity(steps),
            duplicates: HashMap::new(),
        }
    }

    /// Adds the next step.
    pub(super) fn add(&mut self, key: &'s str) {
        let step = self.keys.len() as u32;
        self.keys.push(Key::of(key));
        match self.find(&Key::of(key)) {
            Slot::Free { at, tag } => self.slots[at] = tag | (step + 1),
            Slot::Taken(first) => {
                let known = self.duplicates.entry(key);
                known.or_insert(Duplicate { first, times: 1 }).times += 1;
            }
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<u32> {
        match self.find(&Key::of(key)) {
            Slot::Taken(step) => Some(step),
            Slot::Free { .. } => None,
        }
    }

    fn find(&self, key: &Key<'_>) -> Slot {
        let hash = self.hasher.hash_one(key.whole);
        let steps = (1 << self.step_bits) - 1;
        let tag = (hash >> 32) as u32 & !steps;
        let last = self.slots.len() - 1;
        let mut at = hash as usize & last;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return Slot::Free { at, tag };
            }
            let step = (slot & steps) - 1;
            if slot & !steps == tag && self.keys[step as usize] == *key {
                return Slot::Taken(step);
            }
            at = (at + 1) & last;
        }
    }

    /// Reports keys that several steps have. The merge of a branch whose own key is reported is left out.
    pub(super) fn report_duplicates(&self, problems: &mut Vec<Problem>) {
        let is_written = |key: &&str| {
            let branch = key.strip_prefix("merge:");
            !branch.is_some_and(|branch| self.duplicates.contains_key(branch))
        };
        let mut duplicates: Vec<(&&str, &Duplicate)> = self.duplicates.iter().collect();
        duplicates.retain(|(key, _)| is_written(key));
        duplicates.sort_unstable_by_key(|(_, duplicate)| duplicate.first);
        let problem = |(key, duplicate): (&&str, &Duplicate)| Problem::DuplicateKey {
            key: shown(key),
            times: duplicate.times,
        };
        problems.extend(duplicates.into_iter().map(problem));
    }
}

/// A key with a copy of its beginning, so that most comparisons need not follow the pointer.
#[derive(Clone, Copy)]
struct Key<'s> {
    whole: &'s str,
    start: [u8; 16],
}

impl<'s> Key<'s> {
    fn of(whole: &'s str) -> Self {
        let mut start = [0; 16];
        let length = whole.len().min(start.len());
        start[..length].copy_from_slice(&whole.as_bytes()[..length]);
        Self { whole, start }
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.start == other.start
            && self.whole.len() == other.whole.len()
            && (self.whole.len() <= self.start.len() || self.whole == other.whole)
    }
}

/// Finds keys that are spelled like an unknown one. The work is bounded, also for a graph of 100,000 misspelled names.
pub(super) struct Suggestions {
    work_left: usize,
}

impl Suggestions {
    pub(super) fn new() -> Self {
        Self {
            work_left: 20_000_000,
        }
    }

    pub(super) fn nearest<'k>(
        &mut self,
        name: &str,
        known: impl Iterator<Item = &'k str>,
    ) -> Option<String> {
        if name.len() > MAX_NAME_BYTES {
            return None;
        }
        let far = (name.len() / 3).clamp(1, 3);
        let mut best: Option<(usize, &str)> = None;
        for candidate in known {
            let bound = match best {
                Some((0, _)) => break,
                Some((distance, _)) => distance - 1,
                None => far,
            };
            let (a, b) = differing(name.as_bytes(), candidate.as_bytes());
            self.work_left = self.work_left.checked_sub(1 + name.len())?;
            if a.len().abs_diff(b.len()) <= bound {
                self.work_left = self.work_left.checked_sub(a.len() * b.len())?;
                if let Some(distance) = distance_within(a, b, bound) {
                    best = Some((distance, candidate));
                }
            }
        }
        best.map(|(_, key)| key.to_owned())
    }
}

/// Returns two names without their common beginning and end.
fn differing<'n>(a: &'n [u8], b: &'n [u8]) -> (&'n [u8], &'n [u8]) {
    let same = |(x, y): &(&u8, &u8)| x.eq_ignore_ascii_case(y);
    let start = a.iter().zip(b).take_while(same).count();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(same).count();
    (&a[..a.len() - end], &b[..b.len() - end])
}

/// Returns the edit distance of two names, or `None` if it is above `bound`. Letters of another case are equal, and two
/// swapped letters count once.
fn distance_within(a: &[u8], b: &[u8], bound: usize) -> Option<usize> {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = usize::from(!x.eq_ignore_ascii_case(y));
            let mut cost = (row[j] + change).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                cost = cost.min(before[j - 1] + 1);
            }
            next.push(cost);
        }
        if next.iter().min().is_some_and(|least| *least > bound) {
            return None;
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().filter(|distance| *distance <= bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_key_is_never_a_name() {
        let long = "x".repeat(MAX_NAME_BYTES);
        for key in [
            barrier_key(1),
            merge_key("format"),
            merge_key(&long),
            format!("merge:{long}:12"),
        ] {
            assert!(is_generated(&key), "{key}");
            assert!(!is_name(&key), "{key}");
        }
        for key in [
            "barrier",
            "barrier:",
            "barrier:x",
            "merge:",
            "merge:a:",
            "merge:a:b",
            "x:1",
            ":",
        ] {
            assert!(!is_generated(key), "{key}");
        }
    }

    #[test]
    fn keys_that_begin_alike_are_told_apart() {
        let keys = [
            "",
            "\0",
            "a",
            "a\0",
            "sixteen-letters-",
            "sixteen-letters-a",
            "sixteen-letters-b",
        ];
        let mut index = KeyIndex::with_capacity(keys.len());
        keys.iter().for_each(|key| index.add(key));
        for (at, key) in (0..).zip(keys) {
            assert_eq!(index.get(key), Some(at), "{key:?}");
        }
        assert_eq!(index.get("sixteen-letters-c"), None);
        assert_eq!(KeyIndex::with_capacity(0).get("a"), None);
    }

    #[test]
    fn of_a_key_that_is_there_twice_the_first_is_found() {
        let mut index = KeyIndex::with_capacity(100_000);
        let keys: Vec<String> = (0..100_000).map(|n| format!("{}", n % 50_000)).collect();
        keys.iter().for_each(|key| index.add(key));
        for n in 0..50_000 {
            assert_eq!(index.get(&n.to_string()), Some(n));
        }
        let mut problems = Vec::new();
        index.report_duplicates(&mut problems);
        assert_eq!(problems.len(), 50_000);
    }

    #[test]
    fn a_suggestion_is_spelled_like_the_unknown_name() {
        let known = ["download", "transcode", "publish"];
        let nearest = |name| Suggestions::new().nearest(name, known.into_iter());
        assert_eq!(nearest("downlaod").as_deref(), Some("download"));
        assert_eq!(nearest("Publish").as_deref(), Some("publish"));
        assert_eq!(nearest("transcod").as_deref(), Some("transcode"));
        assert_eq!(nearest("upload"), None);
        assert_eq!(nearest(""), None);
    }

    #[test]
    fn the_search_for_suggestions_is_bounded() {
        let known: Vec<String> = (0..100_000).map(|n| format!("step-{n}")).collect();
        let mut suggestions = Suggestions::new();
        let mut nearest = || suggestions.nearest("stepp-x", known.iter().map(String::as_str));
        let found = (0..100).filter(|_| nearest().is_some()).count();
        assert!(found > 0 && found < 100, "{found}");
    }
}
