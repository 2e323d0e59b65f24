//! Failure strategies as types, because [`Ignore`] changes the type that a step gives.

use super::handle::{IgnoredStep, Step};
use crate::graph::spec::Strategy;

/// A failure strategy: [`Halt`], [`Continue`] or [`Ignore`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a failure strategy",
    label = "use `Halt`, `Continue` or `Ignore`",
    note = "a job that runs when a run has failed is a callback: `p.on_failure(job)`"
)]
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

/// Skips every step that has not started when a step fails; the run ends `halted`.
#[derive(Debug, Clone, Copy)]
pub struct Halt;

/// Skips only the steps that depend on the failed one; the run ends `failed`.
#[derive(Debug, Clone, Copy)]
pub struct Continue;

/// Runs the steps that depend on the failed one without its value; the run ends `failed` all the same.
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
    type Handle<T> = IgnoredStep<T>;
    fn handle<T>(step: Step<T>) -> IgnoredStep<T> {
        step.ignored()
    }
}
