//! The queue patterns of a worker: the slots of each pattern, and whether its queues may have work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::marks::Marks;
use crate::{Error, Result, limits};

/// How long released steps may start ahead of a job that waits in the queue.
const MAX_OVERTAKING: Duration = Duration::from_secs(1);

/// All queue patterns of one worker. A queue belongs to the most specific pattern that matches it: its own
/// name, else the longest prefix.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The patterns, the most specific one first.
    queues: Vec<QueueSlots>,
    /// The stretches of the index `jobs_ready` that are known to hold no ready row.
    pub(super) marks: Marks,
    /// Wakes the committer.
    work: Arc<Notify>,
}

impl Slots {
    /// Creates the slots of a worker. Fails if there is no pattern, or if a pattern is given twice.
    pub(crate) fn new(patterns: Vec<(String, u32)>, work: Arc<Notify>) -> Result<Self> {
        if patterns.is_empty() {
            return Err(Error::NoQueue);
        }
        let mut queues: Vec<QueueSlots> = Vec::with_capacity(patterns.len());
        for (pattern, slots) in patterns {
            if queues.iter().any(|known| known.pattern == pattern) {
                return Err(Error::DuplicateQueue { queue: pattern });
            }
            queues.push(QueueSlots::new(pattern, slots)?);
        }
        queues.sort_by_key(|queue| {
            let is_prefix = queue.pattern.ends_with('*');
            (is_prefix, std::cmp::Reverse(queue.pattern.len()))
        });
        Ok(Self {
            queues,
            marks: Marks::default(),
            work,
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueueSlots> {
        self.queues.iter()
    }

    pub(crate) fn get(&self, at: usize) -> &QueueSlots {
        &self.queues[at]
    }

    pub(crate) fn patterns(&self) -> Vec<String> {
        self.iter().map(|queue| queue.pattern.clone()).collect()
    }

    /// Returns the position of the pattern that this queue belongs to.
    pub(crate) fn pattern_of(&self, queue: &str) -> Option<usize> {
        let covers_it = |it: &QueueSlots| covers(&it.pattern, queue);
        self.queues.iter().position(covers_it)
    }

    /// Notes that this queue may have ready jobs with a `run_at` of `since` or later, and wakes the committer.
    pub(crate) fn wake(&self, queue: &str, since: DateTime<Utc>) {
        self.marks.cut(queue, since);
        self.wake_queue(queue);
    }

    /// Notes that this queue may have ready jobs outside the stretches that claims skip, and wakes the
    /// committer.
    pub(super) fn wake_queue(&self, queue: &str) {
        if let Some(at) = self.pattern_of(queue) {
            self.queues[at].wake();
        }
        self.work.notify_one();
    }

    pub(crate) fn wake_all(&self) {
        self.queues.iter().for_each(QueueSlots::wake);
        self.work.notify_one();
    }

    /// Reserves free slots for a claim, and with `hand_over` also for steps that a transaction releases and
    /// starts at once.
    pub(crate) fn reserve(&self, at_most: u32, hand_over: bool) -> Vec<Reserved> {
        let reserve = |(queue, it): (usize, &QueueSlots)| it.reserve(queue, at_most, hand_over);
        self.queues.iter().enumerate().filter_map(reserve).collect()
    }

    /// Releases slots that no claim has filled, and marks their queues: they may still have work.
    pub(crate) fn release(&self, reserved: &mut Vec<Reserved>) {
        for reserved in reserved.drain(..) {
            if reserved.claims {
                self.queues[reserved.queue].wake();
            }
            drop(reserved.permits);
        }
        self.work.notify_one();
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        self.iter()
            .map(|queue| serde_json::json!({ "queue": queue.pattern, "slots": queue.slots }))
            .collect()
    }
}

/// One pattern (a queue, or all queues with a prefix) and its slots.
#[derive(Debug)]
pub(crate) struct QueueSlots {
    pub(crate) pattern: String,
    pub(crate) slots: u32,
    free: Arc<Semaphore>,
    /// Whether a claim may find ready jobs. The flag is cleared before a claim is sent, so that jobs which arrive
    /// during the claim cause another claim.
    may_have_work: AtomicBool,
    /// The job that has waited longest in the queue, as far as this process knows.
    head: Mutex<Option<Head>>,
    /// The number of starts of this process that have asked for a slot since the last transaction reserved slots.
    asked_by_starts: AtomicU32,
    /// The number of slots that the last transaction left to starts of this process.
    left_to_starts: AtomicU32,
}

#[derive(Debug, Clone, Copy)]
struct Head {
    since: Instant,
    priority: i16,
}

impl QueueSlots {
    fn new(pattern: String, slots: u32) -> Result<Self> {
        limits::pattern("queue", &pattern)?;
        if slots == 0 || slots > limits::MAX_SLOTS {
            return Err(Error::SlotsOutOfRange {
                queue: pattern,
                slots,
            });
        }
        Ok(Self {
            pattern,
            slots,
            free: Arc::new(Semaphore::new(slots as usize)),
            may_have_work: AtomicBool::new(true),
            head: Mutex::new(None),
            asked_by_starts: AtomicU32::new(0),
            left_to_starts: AtomicU32::new(0),
        })
    }

    fn wake(&self) {
        self.may_have_work.store(true, Ordering::Release);
        self.head.lock().get_or_insert(Head {
            since: Instant::now(),
            priority: i16::MIN,
        });
    }

    fn reserve(&self, queue: usize, at_most: u32, hand_over: bool) -> Option<Reserved> {
        let claims = self.may_have_work.load(Ordering::Acquire);
        if !claims && !hand_over {
            return None;
        }
        let free = u32::try_from(self.free.available_permits()).unwrap_or(u32::MAX);
        let free = (free - self.leave_to_starts(free)).min(at_most);
        if free == 0 {
            return None;
        }
        let permits = Arc::clone(&self.free).try_acquire_many_owned(free).ok()?;
        if claims {
            self.may_have_work.store(false, Ordering::Release);
        }
        Some(Reserved {
            queue,
            permits,
            claims,
        })
    }

    /// Returns how many of the free slots a transaction leaves to starts of this process, which would otherwise
    /// have to queue while the transaction is open: four times as many as asked lately, at most half.
    fn leave_to_starts(&self, free: u32) -> u32 {
        let asked = self.asked_by_starts.swap(0, Ordering::Relaxed);
        let last = self.left_to_starts.load(Ordering::Relaxed);
        // Fades out: starts come in bursts, and transactions are short.
        let left = (4 * asked).max(last - last.div_ceil(8));
        self.left_to_starts.store(left, Ordering::Relaxed);
        left.min(free / 2)
    }

    /// Returns the number of free slots.
    pub(super) fn free_slots(&self) -> usize {
        self.free.available_permits()
    }

    /// Reserves a free slot for a job of this priority that starts without queueing.
    pub(super) fn reserve_one(&self, priority: i16) -> Option<OwnedSemaphorePermit> {
        self.asked_by_starts.fetch_add(1, Ordering::Relaxed);
        let min_priority = self.min_priority()?;
        let reserve = || Arc::clone(&self.free).try_acquire_owned().ok();
        (priority >= min_priority).then(reserve).flatten()
    }

    /// Notes the answer to a claim. `last` is the priority and waiting time of the last claimed job if the
    /// claim was filled; `None` means that no further job waits.
    pub(crate) fn claimed(&self, last: Option<(i16, Duration)>) {
        let now = Instant::now();
        *self.head.lock() = last.map(|(priority, waited)| Head {
            since: now.checked_sub(waited).unwrap_or(now),
            priority,
        });
    }

    /// Requests another claim: the last claim filled all its slots, or hand-over had filled them before it.
    pub(crate) fn ask_again(&self) {
        self.wake();
    }

    /// Returns the lowest priority at which a step may start without queueing; `None` if no step may, because
    /// a queued job has waited for [`MAX_OVERTAKING`].
    pub(crate) fn min_priority(&self) -> Option<i16> {
        match *self.head.lock() {
            None => Some(i16::MIN),
            Some(head) => (head.since.elapsed() < MAX_OVERTAKING).then_some(head.priority),
        }
    }
}

/// Free slots of one pattern that a transaction may fill.
#[derive(Debug)]
pub(crate) struct Reserved {
    /// The position of the pattern in [`Slots`].
    pub(crate) queue: usize,
    pub(crate) permits: OwnedSemaphorePermit,
    /// Whether the transaction is to claim jobs for these slots.
    pub(crate) claims: bool,
}

impl Reserved {
    pub(crate) fn count(&self) -> usize {
        self.permits.num_permits()
    }
}

/// Returns whether a pattern matches this queue.
pub(crate) fn covers(pattern: &str, queue: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => queue.starts_with(prefix),
        None => queue == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(patterns: &[(&str, u32)]) -> Result<Slots> {
        let patterns = patterns
            .iter()
            .map(|(name, slots)| ((*name).to_owned(), *slots));
        Slots::new(patterns.collect(), Arc::default())
    }

    #[test]
    fn a_queue_belongs_to_the_most_specific_pattern() -> Result<()> {
        let slots = slots(&[("*", 8), ("media.*", 2), ("media.hd", 1), ("m*", 3)])?;
        let pattern = |queue| {
            slots
                .pattern_of(queue)
                .map(|at| slots.get(at).pattern.as_str())
        };
        assert_eq!(pattern("media.hd"), Some("media.hd"));
        assert_eq!(pattern("media.sd"), Some("media.*"));
        assert_eq!(pattern("media"), Some("m*"));
        assert_eq!(pattern("other"), Some("*"));
        Ok(())
    }

    #[test]
    fn a_queue_outside_all_patterns_belongs_to_none() -> Result<()> {
        assert_eq!(slots(&[("media.*", 1)])?.pattern_of("media"), None);
        Ok(())
    }

    #[test]
    fn a_pattern_named_twice_is_an_error() {
        let twice = slots(&[("payments", 2), ("payments", 8)]);
        assert!(matches!(twice, Err(Error::DuplicateQueue { queue }) if queue == "payments"));
        assert!(slots(&[]).is_err());
        assert!(slots(&[("media", 0)]).is_err());
    }

    #[test]
    fn work_that_arrives_during_a_claim_is_asked_for_again() -> Result<()> {
        let slots = slots(&[("q", 2)])?;
        let reserved = slots.reserve(10, false);
        assert_eq!(reserved.iter().map(Reserved::count).sum::<usize>(), 2);
        assert!(slots.reserve(10, false).is_empty(), "no slot is free");
        slots.wake("q", DateTime::UNIX_EPOCH);
        assert!(slots.reserve(10, false).is_empty(), "no slot is free");
        drop(reserved);
        let claims = |reserved: Vec<Reserved>| reserved.iter().any(|it| it.claims);
        assert!(claims(slots.reserve(10, true)), "the wake-up is not lost");
        let for_hand_over = slots.reserve(10, true);
        assert!(!for_hand_over.is_empty() && !claims(for_hand_over));
        Ok(())
    }

    #[test]
    fn a_transaction_leaves_slots_to_starts_that_asked_lately() -> Result<()> {
        let slots = slots(&[("q", 10)])?;
        let count = |reserved: &[Reserved]| reserved.iter().map(Reserved::count).sum::<usize>();
        assert_eq!(count(&slots.reserve(10, true)), 10, "no start has asked");
        let started: Vec<_> = (0..3).map(|_| slots.get(0).reserve_one(0)).collect();
        assert!(started.iter().all(Option::is_some));
        let reserved = slots.reserve(10, true);
        assert_eq!(count(&reserved), 4, "three run, three are left to starts");
        assert!(slots.get(0).reserve_one(0).is_some());
        drop((started, reserved));
        for _ in 0..30 {
            slots.reserve(10, true);
        }
        assert_eq!(
            count(&slots.reserve(10, true)),
            10,
            "no start has asked for long"
        );
        let all: Vec<_> = (0..30).map(|_| slots.get(0).reserve_one(0)).collect();
        drop(all);
        assert_eq!(count(&slots.reserve(10, true)), 5, "at most half are left");
        Ok(())
    }

    #[test]
    fn a_job_that_has_waited_for_a_second_is_not_overtaken() -> Result<()> {
        let slots = slots(&[("q", 2)])?;
        let queue = slots.get(0);
        assert_eq!(queue.min_priority(), Some(i16::MIN), "nothing waits");
        queue.claimed(Some((7, Duration::from_millis(1))));
        assert_eq!(queue.min_priority(), Some(7));
        queue.claimed(Some((7, Duration::from_secs(2))));
        assert_eq!(queue.min_priority(), None);
        queue.wake();
        assert_eq!(queue.min_priority(), None, "the job still waits");
        queue.claimed(None);
        assert_eq!(queue.min_priority(), Some(i16::MIN));
        Ok(())
    }
}
