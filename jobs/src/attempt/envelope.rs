//! A claimed job on its way through apalis, and the guard that reports the end of its attempt once.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use super::{AttemptEnd, Claimed, Control, EndKind, Ledger, Owner, RetryContext, StopReason};
use crate::input::Input;
use crate::{Backoff, BatchId, JobId};

/// A claimed job on its way through the worker: the arguments of an apalis task.
///
/// Cloning is cheap; all clones are the same attempt.
#[derive(Clone)]
pub struct Envelope(Arc<Inner>);

struct Inner {
    job: Claimed,
    is_known: bool,
    timeout: Option<Duration>,
    backoff: Backoff,
    control: Arc<Control>,
    began: OnceLock<Instant>,
    /// The claim, until the attempt begins. If the claim is dropped here, the job has never started.
    claim: Mutex<Option<Claim>>,
}

/// The options of a claimed job, resolved from its row and its type's declaration.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Resolved {
    /// Whether the worker can perform the type, in the version that the job asks for.
    pub(crate) is_known: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) backoff: Backoff,
    /// Whether the end of the attempt may be lost if the database server crashes.
    pub(crate) asynchronous_commit: bool,
}

/// The right to end an attempt, with the slot it occupies. Dropped unused, it hands the job back.
pub(crate) struct Claim {
    ledger: Arc<Ledger>,
    token: i64,
    slot: Option<OwnedSemaphorePermit>,
    asynchronous_commit: bool,
    ended: bool,
}

impl Claim {
    fn finish(&mut self, fill: impl FnOnce(&mut AttemptEnd) -> bool) {
        self.ended = true;
        // Free the slot first: the ledger wakes the committer, which looks for free slots.
        self.slot.take();
        self.ledger.end(self.token, |end| {
            end.asynchronous_commit = self.asynchronous_commit;
            fill(end)
        });
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(hand_back);
        }
    }
}

fn hand_back(end: &mut AttemptEnd) -> bool {
    end.kind = EndKind::HandBack;
    true
}

impl Envelope {
    /// Enters a claimed job into the ledger, which renews the job's lease from now on. Returns `None` if the ledger
    /// already has the token.
    pub(crate) fn claimed(
        job: Claimed,
        resolved: Resolved,
        ledger: &Arc<Ledger>,
        slot: Option<OwnedSemaphorePermit>,
        sent: Instant,
    ) -> Option<Self> {
        let control = Arc::<Control>::default();
        if !ledger.claim(&job, Arc::clone(&control), sent) {
            return None;
        }
        let claim = Claim {
            ledger: Arc::clone(ledger),
            token: job.token,
            slot,
            asynchronous_commit: resolved.asynchronous_commit,
            ended: false,
        };
        Some(Self::assemble(job, resolved, control, Some(claim)))
    }

    /// Wraps a job that is only shown, not performed.
    pub(crate) fn listed(job: Claimed) -> Self {
        Self::assemble(job, Resolved::default(), Arc::default(), None)
    }

    fn assemble(
        job: Claimed,
        resolved: Resolved,
        control: Arc<Control>,
        claim: Option<Claim>,
    ) -> Self {
        Self(Arc::new(Inner {
            job,
            is_known: resolved.is_known,
            timeout: resolved.timeout,
            backoff: resolved.backoff,
            control,
            began: OnceLock::new(),
            claim: Mutex::new(claim),
        }))
    }

    /// Returns the job's id.
    pub fn id(&self) -> JobId {
        self.0.job.id.into()
    }

    /// Returns the attempt's token.
    pub fn token(&self) -> i64 {
        self.0.job.token
    }

    /// Returns the attempt's number; the first is 1.
    pub fn attempt(&self) -> u16 {
        self.0.job.attempt.max(0).cast_unsigned()
    }

    /// Returns the maximum number of attempts.
    pub fn max_attempts(&self) -> u16 {
        self.0.job.max_attempts.max(0).cast_unsigned()
    }

    /// Returns the queue that the job came from.
    pub fn queue(&self) -> &str {
        &self.0.job.queue
    }

    /// Returns the name of the job's type.
    pub fn job_type(&self) -> &str {
        &self.0.job.job_type
    }

    /// Returns the batch that the job belongs to. A job that an extension owns is alone in a batch with the job's id.
    pub fn batch(&self) -> Option<BatchId> {
        let own = self.0.job.is_owned().then_some(self.0.job.id);
        self.0.job.batch.or(own).map(BatchId::from)
    }

    /// Returns the owner of the job, if an extension owns it.
    pub fn owner(&self) -> Option<&Owner> {
        self.0.job.owner.as_ref()
    }

    /// Asks the owner of the job to end early, once this attempt has succeeded.
    #[doc(hidden)]
    pub fn end_owner(&self) {
        self.0.control.end_owner();
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

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.0.control
    }

    pub(crate) fn retry_context(&self) -> RetryContext {
        RetryContext {
            attempt: self.attempt(),
            max_attempts: self.max_attempts(),
            backoff: self.0.backoff,
            jitter_sample: fastrand::f32(),
            asked_to_stop: self.0.control.is_asked_to_stop(),
        }
    }

    /// Returns whether the worker can perform the job's type, in the version that the job asks for.
    pub(crate) fn is_known(&self) -> bool {
        self.0.is_known
    }

    /// Begins the attempt. Returns `None` if the attempt has begun before.
    pub(crate) fn begin(&self) -> Option<Attempt> {
        let claim = self.0.claim.lock().take()?;
        let _ = self.0.began.set(Instant::now());
        Some(Attempt {
            envelope: self.clone(),
            claim,
        })
    }

    fn ran(&self) -> Option<Duration> {
        self.0.began.get().map(Instant::elapsed)
    }
}

/// A running attempt. It ends exactly once: by [`end`](Self::end), or by being dropped.
///
/// The attempt lives inside the task that performs the job, so that the attempt ends only after the job has
/// stopped.
pub(crate) struct Attempt {
    envelope: Envelope,
    claim: Claim,
}

impl Attempt {
    pub(crate) fn end(mut self, fill: impl FnOnce(&mut AttemptEnd)) {
        let control = self.envelope.control();
        let is_lost = control.reason() == StopReason::LeaseLost;
        let ends_owner = control.ends_owner();
        let ran = self.envelope.ran();
        self.claim.finish(|end| {
            end.ran = ran;
            fill(end);
            end.ends_owner = ends_owner && end.is_owned() && end.kind == EndKind::Succeed;
            // Without the lease, an error must not be written; a success may still arrive before the takeover.
            !is_lost || end.kind == EndKind::Succeed
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.claim.ended {
            return;
        }
        let reason = self.envelope.control().reason();
        let ran = self.envelope.ran();
        self.claim.finish(|end| {
            end.ran = ran;
            hand_back(end) && reason != StopReason::LeaseLost
        });
    }
}

impl fmt::Debug for Envelope {
    /// Omits the job's data, which must not appear in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("id", &self.id())
            .field("job_type", &self.job_type())
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
