//! Moments that tests wait for, or hold. Nothing in production.

use std::fmt;

use futures_util::future::BoxFuture;

/// Told of moments in the engine; the engine waits until it returns.
pub trait Probe: fmt::Debug + Send + Sync {
    /// A moment has come. `count` is how many ends or claims it is about.
    fn at(&self, moment: Moment, count: usize) -> BoxFuture<'_, ()>;
}

/// A moment in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Moment {
    /// Ends are written, and will be committed next.
    BeforeCommit,
    /// They are committed; nobody knows yet.
    AfterCommit,
    /// Jobs were claimed and committed; none has started.
    Claimed,
}
