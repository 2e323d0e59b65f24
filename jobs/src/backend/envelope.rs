//! A claimed job on its way through the worker, and the one attempt that it is.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::{Claimed, OfRun};
use crate::Backoff;
use crate::engine::{Alive, Chances, End, Shared, Verb};
use crate::enqueue::Overrides;
use crate::input::Input;

/// A claimed job on its way through the worker: what apalis calls the arguments of a task.
///
/// Cheap to clone; all clones are the same attempt.
#[derive(Clone)]
pub struct Envelope(Arc<Inner>);

struct Inner {
    job: Claimed,
    queue: Arc<str>,
    timeout: Option<Duration>,
    backoff: Backoff,
    control: Arc<Control>,
    began: OnceLock<Instant>,
    /// There from the claim until our layer takes it. Dropped untaken, the job never started.
    pass: Mutex<Option<Pass>>,
}

/// Why an attempt was stopped from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Why {
    /// Its worker was dropped.
    Dropped = 0,
    /// Its worker shut down, and the grace is over.
    Shutdown = 1,
    /// Its lease is lost: the job is no longer ours to end.
    Lease = 2,
}

/// How an attempt is asked to stop, or made to.
#[derive(Debug, Default)]
pub(crate) struct Control {
    asked: CancellationToken,
    /// The job has asked for its run to end early.
    halt: AtomicBool,
    abort: OnceLock<AbortHandle>,
    why: AtomicU8,
}

impl Control {
    pub(crate) async fn asked_to_stop(&self) {
        self.asked.cancelled().await;
    }

    pub(crate) fn is_asked_to_stop(&self) -> bool {
        self.asked.is_cancelled()
    }

    pub(crate) fn ask_to_stop(&self) {
        self.asked.cancel();
    }

    pub(crate) fn halt(&self) {
        self.halt.store(true, Ordering::Release);
    }

    fn halts(&self) -> bool {
        self.halt.load(Ordering::Acquire)
    }

    /// Drops the job where it stands.
    pub(crate) fn kill(&self, why: Why) {
        self.asked.cancel();
        self.why.store(why as u8, Ordering::Release);
        if let Some(handle) = self.abort.get() {
            handle.abort();
        }
    }

    /// The job runs as this task. A kill that came before is carried out now.
    pub(crate) fn runs_as(&self, handle: AbortHandle) {
        let handle = self.abort.get_or_init(|| handle);
        if self.why() != Why::Dropped {
            handle.abort();
        }
    }

    fn why(&self) -> Why {
        match self.why.load(Ordering::Acquire) {
            1 => Why::Shutdown,
            2 => Why::Lease,
            _ => Why::Dropped,
        }
    }
}

/// The slot, and the way to report: held from the claim to the end.
struct Pass {
    shared: Arc<Shared>,
    id: i64,
    token: i64,
    attempt: i16,
    batch: Option<i64>,
    queue: Arc<str>,
    sent: Instant,
    slot: Option<OwnedSemaphorePermit>,
    ended: bool,
}

impl Pass {
    fn finish(&mut self, end: impl FnOnce(&Self) -> Option<End>) {
        self.ended = true;
        // The slot is free now; the end may still wait for its commit.
        self.slot.take();
        match end(self) {
            Some(end) => self.shared.report(end),
            // Theirs to end who take over; it was heard of all the same.
            None => {
                self.shared.lapsed.lock().insert(self.token);
            }
        }
        // Last: at every moment an attempt is either among those alive or among the ends.
        self.shared.gone(self.token);
    }

    fn end(&self, verb: Verb) -> End {
        End {
            id: self.id,
            token: self.token,
            attempt: self.attempt,
            batch: self.batch,
            queue: Some(Arc::clone(&self.queue)),
            verb,
            ran: Some(self.sent.elapsed()),
            halts: false,
            wait: Duration::ZERO,
            error: None,
            output: None,
            held_since: None,
            sent_before: false,
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(|pass| Some(pass.end(Verb::HandBack)));
        }
    }
}

impl Envelope {
    pub(crate) fn claimed(
        job: Claimed,
        shared: Arc<Shared>,
        slot: Option<OwnedSemaphorePermit>,
        sent: Instant,
    ) -> Self {
        // What does not decode fails the job when it is performed, like its arguments.
        let overrides: Overrides = job
            .options
            .as_deref()
            .and_then(|json| serde_json::from_str(json).ok())
            .unwrap_or_default();
        let known = shared.registry.get(&job.kind).map(|known| &known.options);
        let timeout = overrides
            .timeout_ms
            .map(Duration::from_millis)
            .or_else(|| known.and_then(|options| options.timeout));
        let backoff = overrides
            .backoff
            .or_else(|| known.map(|options| options.backoff))
            .unwrap_or_default();
        let queue: Arc<str> = job.queue.as_str().into();
        let lease = Duration::from_millis(u64::try_from(job.lease_ms).unwrap_or(1_000));
        let control = Arc::<Control>::default();
        // From here on its lease is renewed, whether it has started or not.
        shared.alive.lock().insert(
            job.token,
            Alive {
                id: job.id,
                control: Arc::clone(&control),
                lease,
                renewed: sent,
            },
        );
        let pass = Pass {
            id: job.id,
            token: job.token,
            attempt: job.attempt,
            batch: job.batch,
            queue: Arc::clone(&queue),
            sent,
            slot,
            ended: false,
            shared,
        };
        Self::assemble(job, queue, timeout, backoff, control, Some(pass))
    }

    /// Only to be looked at.
    pub(crate) fn listed(job: Claimed) -> Self {
        let queue: Arc<str> = job.queue.as_str().into();
        Self::assemble(job, queue, None, Backoff::DEFAULT, Arc::default(), None)
    }

    fn assemble(
        job: Claimed,
        queue: Arc<str>,
        timeout: Option<Duration>,
        backoff: Backoff,
        control: Arc<Control>,
        pass: Option<Pass>,
    ) -> Self {
        Self(Arc::new(Inner {
            job,
            queue,
            timeout,
            backoff,
            control,
            began: OnceLock::new(),
            pass: Mutex::new(pass),
        }))
    }

    /// The job.
    pub fn id(&self) -> i64 {
        self.0.job.id
    }

    /// The attempt.
    pub fn token(&self) -> i64 {
        self.0.job.token
    }

    /// Which attempt this is; the first is 1.
    pub fn attempt(&self) -> u16 {
        self.0.job.attempt.max(0).cast_unsigned()
    }

    /// How many there may be.
    pub fn attempts(&self) -> u16 {
        self.0.job.attempts.max(0).cast_unsigned()
    }

    /// The queue it came from.
    pub fn queue(&self) -> &str {
        &self.0.queue
    }

    /// The job type's name.
    pub fn kind(&self) -> &str {
        &self.0.job.kind
    }

    /// The batch it belongs to. A step of a run is alone in its own, which has its id.
    pub fn batch(&self) -> Option<i64> {
        let own = self.0.job.is_step().then_some(self.0.job.id);
        self.0.job.batch.or(own)
    }

    /// What it is in a run, where it is a step.
    #[doc(hidden)]
    pub fn of_run(&self) -> Option<&OfRun> {
        self.0.job.of_run.as_ref()
    }

    pub(crate) fn args(&self) -> &str {
        &self.0.job.args
    }

    pub(crate) fn input(&self) -> &Input {
        &self.0.job.input
    }

    pub(crate) fn options(&self) -> Option<&str> {
        self.0.job.options.as_deref()
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.0.timeout
    }

    pub(crate) fn time_left(&self) -> Option<Duration> {
        let timeout = self.0.timeout?;
        let began = self.0.began.get().copied().unwrap_or_else(Instant::now);
        Some(timeout.saturating_sub(began.elapsed()))
    }

    pub(crate) fn control(&self) -> &Control {
        &self.0.control
    }

    pub(crate) fn chances(&self) -> Chances {
        Chances {
            attempt: self.attempt(),
            attempts: self.attempts(),
            backoff: self.0.backoff,
            luck: fastrand::f32(),
            asked_to_stop: self.0.control.is_asked_to_stop(),
        }
    }

    /// Begins the attempt: once for each claim, by our layer.
    pub(crate) fn begin(&self) -> Option<Attempt> {
        let pass = self.0.pass.lock().take()?;
        let _ = self.0.began.set(Instant::now());
        Some(Attempt {
            envelope: self.clone(),
            pass,
        })
    }

    /// Whether the worker knows the job's type.
    pub(crate) fn is_known(&self) -> bool {
        self.0
            .pass
            .lock()
            .as_ref()
            .is_some_and(|pass| pass.shared.registry.get(&self.0.job.kind).is_some())
    }
}

/// An attempt that is under way. Ends exactly once: by [`end`](Self::end), or by being dropped.
///
/// It lives inside the task that performs the job, so that it ends only when the job has really
/// stopped.
pub(crate) struct Attempt {
    envelope: Envelope,
    pass: Pass,
}

impl Attempt {
    pub(crate) fn end(mut self, fill: impl FnOnce(&mut End)) {
        let lost = self.envelope.control().why() == Why::Lease;
        let halts = self.envelope.control().halts();
        self.pass.finish(|pass| {
            let mut end = pass.end(Verb::Succeed);
            fill(&mut end);
            end.halts = halts && end.verb == Verb::Succeed;
            // An end that cannot count is not sent, but a success may still come in time.
            (!lost || end.verb == Verb::Succeed).then_some(end)
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.pass.ended {
            return;
        }
        let why = self.envelope.control().why();
        self.pass.finish(|pass| match why {
            Why::Lease => None,
            Why::Dropped | Why::Shutdown => Some(pass.end(Verb::HandBack)),
        });
    }
}

impl fmt::Debug for Envelope {
    /// Without the job's data: a log line is no place for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("id", &self.id())
            .field("kind", &self.kind())
            .field("queue", &self.queue())
            .field("attempt", &self.attempt())
            .field("token", &self.token())
            .finish()
    }
}

impl Serialize for Envelope {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.job.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Envelope {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Claimed::deserialize(deserializer).map(Self::listed)
    }
}
