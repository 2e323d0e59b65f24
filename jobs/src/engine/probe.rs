//! Moments that tests wait for, or hold. Without a probe they cost nothing.

use std::fmt;

use futures_util::future::BoxFuture;

use crate::attempt::Envelope;

/// Receives moments of the engine; the engine waits until the probe returns.
pub trait Probe: fmt::Debug + Send + Sync {
    /// Called at a moment. `count` is the number of ends or claims that it is about.
    fn at(&self, moment: Moment, count: usize) -> BoxFuture<'_, ()>;

    /// Called before an attempt is performed, outside of its timeout: the attempt waits until the probe returns.
    fn before_attempt<'a>(&'a self, _attempt: &'a Envelope) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
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
    /// Ends were deferred because another transaction holds their rows.
    Deferred,
    /// A group of ends was isolated because it failed.
    Isolated,
}
