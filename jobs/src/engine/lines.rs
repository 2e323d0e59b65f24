//! The queues a process serves: a pattern, a number of slots, and whether there may be work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Error, Result, limits};

/// One queue, or several by prefix, with its own slots.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) pattern: String,
    pub(crate) slots: u32,
    free: Arc<Semaphore>,
    /// Whether a claim may find something. Set by whoever hears of work; cleared before a claim
    /// asks, so that what arrives meanwhile is asked for again.
    hungry: AtomicBool,
    /// What waits there as far as we know: since when, and with which priority.
    head: Mutex<Option<Head>>,
}

/// What comes first in a queue.
#[derive(Debug, Clone, Copy)]
struct Head {
    since: Instant,
    priority: i16,
}

/// So long may what waits be overtaken by what can start at once.
const OVERTAKEN: Duration = Duration::from_secs(1);

impl Line {
    pub(crate) fn new(pattern: String, slots: u32) -> Result<Self> {
        limits::pattern("queue", &pattern)?;
        if slots == 0 || slots > limits::SLOTS {
            return Err(Error::SlotsOutOfRange {
                queue: pattern,
                slots,
            });
        }
        Ok(Self {
            pattern,
            slots,
            free: Arc::new(Semaphore::new(slots as usize)),
            hungry: AtomicBool::new(true),
            head: Mutex::new(None),
        })
    }

    pub(crate) fn matches(&self, queue: &str) -> bool {
        covers(&self.pattern, queue)
    }

    /// Whether no slot is used, nor reserved for a claim that is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.available_permits() == self.slots as usize
    }

    pub(crate) fn wake(&self) {
        self.hungry.store(true, Ordering::Release);
        self.head.lock().get_or_insert(Head {
            since: Instant::now(),
            priority: i16::MIN,
        });
    }

    /// All free slots, if there may be work for them. None are left for others: there are none.
    /// Without work, those that hand-over may use.
    pub(crate) fn reserve(&self, at_most: u32, hand_over: bool) -> Option<Slots> {
        let claims = self.hungry.load(Ordering::Acquire);
        if !claims && !hand_over {
            return None;
        }
        let free = u32::try_from(self.free.available_permits())
            .unwrap_or(u32::MAX)
            .min(at_most);
        if free == 0 {
            return None;
        }
        let permits = Arc::clone(&self.free).try_acquire_many_owned(free).ok()?;
        if claims {
            self.hungry.store(false, Ordering::Release);
        }
        Some(Slots { permits, claims })
    }

    /// A claim took all there was, or as much as it might: then this was the last of it.
    pub(crate) fn claimed(&self, last: Option<(i16, Duration)>) {
        let head = last.map(|(priority, waited)| Head {
            since: Instant::now()
                .checked_sub(waited)
                .unwrap_or_else(Instant::now),
            priority,
        });
        *self.head.lock() = head;
    }

    /// The lowest priority that may start at once, without queueing; `None` if nothing may, because
    /// what waits has waited long enough.
    pub(crate) fn floor(&self) -> Option<i16> {
        match *self.head.lock() {
            None => Some(i16::MIN),
            Some(head) => (head.since.elapsed() < OVERTAKEN).then_some(head.priority),
        }
    }
}

/// Free slots that were taken for a turn.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) permits: OwnedSemaphorePermit,
    /// Whether the queue is to be asked for work for them.
    pub(crate) claims: bool,
}

/// Whether a pattern stands for this queue.
pub(crate) fn covers(pattern: &str, queue: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => queue.starts_with(prefix),
        None => queue == pattern,
    }
}

/// Sorts lines, the most specific first: a queue belongs to the first that matches it.
pub(crate) fn most_specific_first(lines: &mut [Line]) {
    lines.sort_by_key(|line| {
        let is_prefix = line.pattern.ends_with('*');
        (is_prefix, std::cmp::Reverse(line.pattern.len()))
    });
}

/// Slots of one line that a claim may fill.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) line: usize,
    /// How many the queue was asked to fill; none where it was not asked.
    pub(crate) asked: usize,
    pub(crate) permits: OwnedSemaphorePermit,
    pub(crate) claims: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_serves_a_name_or_a_beginning() -> Result<()> {
        let one = Line::new("media".into(), 1)?;
        assert!(one.matches("media") && !one.matches("media.hd") && !one.matches("medi"));
        let many = Line::new("media.*".into(), 1)?;
        assert!(many.matches("media.hd") && !many.matches("media"));
        assert!(Line::new("*".into(), 1)?.matches("anything"));
        assert!(Line::new("media".into(), 0).is_err());
        Ok(())
    }

    #[test]
    fn names_come_before_prefixes_and_long_prefixes_before_short_ones() -> Result<()> {
        let line = |pattern: &str| Line::new(pattern.into(), 1);
        let mut lines = [line("*")?, line("m*")?, line("media.*")?, line("q")?];
        most_specific_first(&mut lines);
        let patterns = lines.map(|line| line.pattern);
        assert_eq!(patterns, ["q", "media.*", "m*", "*"]);
        Ok(())
    }

    #[test]
    fn what_arrives_during_a_claim_is_asked_for_again() -> Result<()> {
        let line = Line::new("q".into(), 2)?;
        let reserved = line.reserve(10, false);
        assert_eq!(
            reserved.as_ref().map(|slots| slots.permits.num_permits()),
            Some(2)
        );
        assert!(
            line.reserve(10, false).is_none(),
            "asked already, and no slot is free"
        );
        line.wake();
        assert!(line.reserve(10, false).is_none(), "no slot is free");
        drop(reserved);
        assert!(
            line.reserve(10, true).is_some_and(|slots| slots.claims),
            "the wake-up was not lost"
        );
        assert!(
            line.reserve(10, true).is_some_and(|slots| !slots.claims),
            "only for hand-over"
        );
        Ok(())
    }

    #[test]
    fn what_has_waited_for_a_second_is_not_overtaken() -> Result<()> {
        let line = Line::new("q".into(), 2)?;
        assert_eq!(line.floor(), Some(i16::MIN), "nothing is known to wait");
        line.claimed(Some((7, Duration::from_millis(1))));
        assert_eq!(line.floor(), Some(7));
        line.claimed(Some((7, Duration::from_secs(2))));
        assert_eq!(line.floor(), None);
        line.wake();
        assert_eq!(line.floor(), None, "it waits still");
        line.claimed(None);
        assert_eq!(line.floor(), Some(i16::MIN));
        Ok(())
    }
}
