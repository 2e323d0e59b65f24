//! Moments that tests wait for, or hold. Without a probe they cost nothing.

use std::fmt;

use futures_util::future::BoxFuture;

/// Receives moments of the engine; the engine waits until the probe returns.
pub trait Probe: fmt::Debug + Send + Sync {
    /// Called at a moment. `count` is the number of ends or claims that it is about.
    fn at(&self, moment: Moment, count: usize) -> BoxFuture<'_, ()>;
}

/// A moment in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Moment {
    /// Ends are written and will be committed next.
    BeforeCommit,
    /// Ends are committed; nobody knows yet.
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
