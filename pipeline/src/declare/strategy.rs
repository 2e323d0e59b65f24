//! Strategies as types, because one of them changes what a step gives.

use super::handle::{Ignored, Step};
use crate::graph::spec::Strategy;

/// What a failed step means for its run: [`Halt`], [`Continue`] or [`Ignore`].
pub trait FailureStrategy: sealed::Sealed {
    #[doc(hidden)]
    const STRATEGY: Strategy;
    /// The handle of a step that has this strategy.
    type Handle<T>;
    #[doc(hidden)]
    fn handle<T>(step: Step<T>) -> Self::Handle<T>;
}

mod sealed {
    pub trait Sealed {}
}

/// Every step that has not started is skipped; the run ends `halted`.
#[derive(Debug, Clone, Copy)]
pub struct Halt;

/// Only what depends on the failed step is skipped; the run ends `failed`.
#[derive(Debug, Clone, Copy)]
pub struct Continue;

/// What depends on the failed step goes on without its value; the run ends `failed` all the same.
#[derive(Debug, Clone, Copy)]
pub struct Ignore;

macro_rules! keeps {
    ($name:ident) => {
        impl sealed::Sealed for $name {}
        impl FailureStrategy for $name {
            const STRATEGY: Strategy = Strategy::$name;
            type Handle<T> = Step<T>;
            fn handle<T>(step: Step<T>) -> Step<T> {
                step
            }
        }
    };
}

keeps!(Halt);
keeps!(Continue);

impl sealed::Sealed for Ignore {}
impl FailureStrategy for Ignore {
    const STRATEGY: Strategy = Strategy::Ignore;
    type Handle<T> = Ignored<T>;
    fn handle<T>(step: Step<T>) -> Ignored<T> {
        step.ignored()
    }
}
