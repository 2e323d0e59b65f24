//! The queues a process serves: a pattern, a number of slots, and whether there may be work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
}

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
        })
    }

    pub(crate) fn matches(&self, queue: &str) -> bool {
        covers(&self.pattern, queue)
    }

    pub(crate) fn wake(&self) {
        self.hungry.store(true, Ordering::Release);
    }

    /// All free slots, if there may be work for them. None are left for others: there are none.
    pub(crate) fn reserve(&self, at_most: u32) -> Option<OwnedSemaphorePermit> {
        if !self.hungry.load(Ordering::Acquire) {
            return None;
        }
        let free = u32::try_from(self.free.available_permits())
            .unwrap_or(u32::MAX)
            .min(at_most);
        if free == 0 {
            return None;
        }
        let permits = Arc::clone(&self.free).try_acquire_many_owned(free).ok()?;
        self.hungry.store(false, Ordering::Release);
        Some(permits)
    }
}

/// Whether a pattern stands for this queue.
pub(crate) fn covers(pattern: &str, queue: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => queue.starts_with(prefix),
        None => queue == pattern,
    }
}

/// Slots of one line that a claim may fill.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) line: usize,
    pub(crate) asked: usize,
    pub(crate) permits: OwnedSemaphorePermit,
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
    fn what_arrives_during_a_claim_is_asked_for_again() -> Result<()> {
        let line = Line::new("q".into(), 2)?;
        let reserved = line.reserve(10);
        assert_eq!(
            reserved.as_ref().map(OwnedSemaphorePermit::num_permits),
            Some(2)
        );
        assert!(
            line.reserve(10).is_none(),
            "asked already, and no slot is free"
        );
        line.wake();
        assert!(line.reserve(10).is_none(), "no slot is free");
        drop(reserved);
        assert!(line.reserve(10).is_some(), "the wake-up was not lost");
        Ok(())
    }
}
