//! Moments of the engine that tests observe, or hold.

#[cfg(feature = "testing")]
use crate::attempt::Envelope;

/// Receives moments of the engine; the engine waits until the probe returns.
#[cfg(feature = "testing")]
pub trait Probe: std::fmt::Debug + Send + Sync {
    /// Observes a moment with this number of ends or claims.
    fn at(&self, moment: Moment, count: usize) -> futures_util::future::BoxFuture<'_, ()>;

    /// Observes an attempt before the job is performed, outside of its timeout: the attempt waits until the probe returns.
    fn before_attempt<'a>(
        &'a self,
        _attempt: &'a Envelope,
    ) -> futures_util::future::BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A moment in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub))]
pub enum Moment {
    /// Ends are written and not committed yet.
    BeforeCommit,
    /// Ends are committed; nothing has followed from the commit yet.
    AfterCommit,
    /// Jobs were claimed and committed; none has started.
    Claimed,
    /// Jobs that a start of this process inserted were handed over; none has started.
    HandedOver,
    /// The worker stops: running jobs were asked to stop, and jobs that had not started were handed back.
    Draining,
    /// The grace period is over: jobs that still ran were aborted.
    GraceOver,
    /// Ends were deferred because another transaction holds their rows.
    Deferred,
    /// A group of ends was isolated because it failed.
    Isolated,
}
