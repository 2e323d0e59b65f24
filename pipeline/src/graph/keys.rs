//! The keys of steps: what a user may write, and what is given to what the coordinator resolves.
//!
//! A barrier or a merge that is declared in code has no name of its own. It gets one with a `:` in
//! it, which no other step can have: so a generated key never meets one that a user wrote, and the
//! rule for names is the rule for reserved keys.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::limits::shown;
use super::problem::Problem;

/// The longest name.
pub(super) const NAME: usize = 128;

/// The key of the barrier number `number` of its graph (the first is 1): `barrier:1`.
pub(crate) fn barrier_key(number: usize) -> String {
    format!("barrier:{number}")
}

/// The key of the merge of a branch: `merge:format`.
pub(crate) fn merge_key(branch: &str) -> String {
    format!("merge:{branch}")
}

/// 1 to 128 of a-z A-Z 0-9 . _ -
pub(super) fn is_name(value: &str) -> bool {
    !value.is_empty() && value.len() <= NAME && value.bytes().all(in_name)
}

fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// A key as the functions above make them.
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

/// The step of each key; of one that is there twice, the first.
///
/// A table of our own, because finding steps is most of the work on a large graph, and it is spent
/// waiting for memory: the slots are small enough to stay near, and the keys lie in the order of the
/// steps, so that one near the last one is near too.
pub(super) struct Index<'s> {
    hasher: RandomState,
    /// Two or more for each step. 0 is free; else the number of a step plus one in the lower bits, and
    /// bits of its key's hash above.
    slots: Vec<u32>,
    step_bits: u32,
    keys: Vec<Key<'s>>,
    again: HashMap<&'s str, Again>,
}

struct Again {
    first: u32,
    times: usize,
}

/// Where the search for a key ended.
enum Slot {
    Taken(u32),
    Free { at: usize, tag: u32 },
}

impl<'s> Index<'s> {
    /// For so many steps, to be added in their order.
    pub(super) fn with_capacity(steps: usize) -> Self {
        let slots = (2 * steps + 1).next_power_of_two();
        Self {
            hasher: RandomState::new(),
            step_bits: slots.trailing_zeros(),
            slots: vec![0; slots],
            keys: Vec::with_capacity(steps),
            again: HashMap::new(),
        }
    }

    /// The next step.
    pub(super) fn add(&mut self, key: &'s str) {
        let step = self.keys.len() as u32;
        self.keys.push(Key::of(key));
        match self.find(&Key::of(key)) {
            Slot::Free { at, tag } => self.slots[at] = tag | (step + 1),
            Slot::Taken(first) => {
                let known = self.again.entry(key);
                known.or_insert(Again { first, times: 1 }).times += 1;
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

    pub(super) fn duplicates(&self, problems: &mut Vec<Problem>) {
        let mut again: Vec<(&&str, &Again)> = self.again.iter().collect();
        again.sort_unstable_by_key(|(_, again)| again.first);
        let problem = |(key, again): (&&str, &Again)| Problem::DuplicateKey {
            key: shown(key),
            times: again.times,
        };
        problems.extend(again.into_iter().map(problem));
    }
}

/// A key with its beginning beside it: most are short and need not be fetched to be compared.
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

/// Finds what may have been meant by a name that is not there. Its work is bounded: a graph of
/// 100,000 misspelt names is told so, not helped with each of them.
pub(super) struct Suggest {
    work: usize,
}

impl Suggest {
    pub(super) fn new() -> Self {
        Self { work: 20_000_000 }
    }

    pub(super) fn nearest<'k>(
        &mut self,
        name: &str,
        known: impl Iterator<Item = &'k str>,
    ) -> Option<String> {
        if name.len() > NAME {
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
            self.work = self.work.checked_sub(1 + name.len())?;
            if a.len().abs_diff(b.len()) <= bound {
                self.work = self.work.checked_sub(a.len() * b.len())?;
                if let Some(distance) = distance_within(a, b, bound) {
                    best = Some((distance, candidate));
                }
            }
        }
        best.map(|(_, key)| key.to_owned())
    }
}

/// Two names without what they begin and end with alike.
fn differing<'n>(a: &'n [u8], b: &'n [u8]) -> (&'n [u8], &'n [u8]) {
    let same = |(x, y): &(&u8, &u8)| x.eq_ignore_ascii_case(y);
    let start = a.iter().zip(b).take_while(same).count();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(same).count();
    (&a[..a.len() - end], &b[..b.len() - end])
}

/// How many letters differ, letters of another case not counted and two that changed places counted
/// once; `None` when more than `bound`.
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
        let long = "x".repeat(NAME);
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
        let mut index = Index::with_capacity(keys.len());
        keys.iter().for_each(|key| index.add(key));
        for (at, key) in (0..).zip(keys) {
            assert_eq!(index.get(key), Some(at), "{key:?}");
        }
        assert_eq!(index.get("sixteen-letters-c"), None);
        assert_eq!(Index::with_capacity(0).get("a"), None);
    }

    #[test]
    fn of_a_key_that_is_there_twice_the_first_is_found() {
        let mut index = Index::with_capacity(100_000);
        let keys: Vec<String> = (0..100_000).map(|n| format!("{}", n % 50_000)).collect();
        keys.iter().for_each(|key| index.add(key));
        for n in 0..50_000 {
            assert_eq!(index.get(&n.to_string()), Some(n));
        }
        let mut problems = Vec::new();
        index.duplicates(&mut problems);
        assert_eq!(problems.len(), 50_000);
    }

    #[test]
    fn what_was_meant_is_near() {
        let known = ["download", "transcode", "publish"];
        let nearest = |name| Suggest::new().nearest(name, known.into_iter());
        assert_eq!(nearest("downlaod").as_deref(), Some("download"));
        assert_eq!(nearest("Publish").as_deref(), Some("publish"));
        assert_eq!(nearest("transcod").as_deref(), Some("transcode"));
        assert_eq!(nearest("upload"), None);
        assert_eq!(nearest(""), None);
    }

    #[test]
    fn looking_comes_to_an_end() {
        let known: Vec<String> = (0..100_000).map(|n| format!("step-{n}")).collect();
        let mut suggest = Suggest::new();
        let mut nearest = || suggest.nearest("stepp-x", known.iter().map(String::as_str));
        let found = (0..100).filter(|_| nearest().is_some()).count();
        assert!(found > 0 && found < 100, "{found}");
    }
}
