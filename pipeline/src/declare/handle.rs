//! Handles: a declared step, and what it gives to those after it.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use jobs::{Backoff, Perform};

use super::branch::{Arms, Branch};
use super::feeds::{Feeds, given};
use super::plan::{Plan, millis};
use super::strategy::FailureStrategy;
use crate::graph::spec::{StepOptions, Strategy, Takes};

/// A declared step.
pub trait Handle {
    #[doc(hidden)]
    fn plan(&self) -> &Plan;
    #[doc(hidden)]
    fn at(&self) -> usize;
    /// What a step after it takes where it takes a value.
    #[doc(hidden)]
    fn takes(&self) -> Takes;

    /// The step's key.
    fn key(&self) -> String {
        self.plan().key(self.at())
    }
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $takes:expr) => {
        $(#[$doc])*
        pub struct $name<T> {
            plan: Plan,
            at: usize,
            gives: PhantomData<fn() -> T>,
        }

        impl<T> $name<T> {
            pub(crate) fn at(plan: Plan, at: usize) -> Self {
                Self { plan, at, gives: PhantomData }
            }

            /// A step that comes after this one and takes what it gives.
            pub fn then<J>(&self, key: &str, job: J) -> Step<J::Output>
            where
                J: Perform,
                for<'a> &'a Self: Feeds<J::Input>,
            {
                let before = given::<J::Input>(&self, &self.plan, key);
                self.plan.add(key, &job, before)
            }

            /// A step that comes after this one, takes what it gives, and chooses one of the arms by
            /// what it returns.
            pub fn branch<J, A>(&self, key: &str, job: J, arms: A) -> A::Output
            where
                J: Perform<Output: Branch>,
                A: Arms<Of = J::Output>,
                for<'a> &'a Self: Feeds<J::Input>,
            {
                let before = given::<J::Input>(&self, &self.plan, key);
                super::branch::declare(&self.plan, key, &job, before, arms)
            }

            fn options(self, change: impl FnOnce(&mut StepOptions)) -> Self {
                self.plan.change(self.at, |step| {
                    if let Some(options) = &mut step.options {
                        change(options);
                    }
                });
                self
            }

            /// In another queue.
            pub fn queue(self, queue: impl Into<String>) -> Self {
                self.options(|options| options.queue = queue.into())
            }

            /// With another priority; higher runs first.
            pub fn priority(self, priority: i16) -> Self {
                self.options(|options| options.priority = priority)
            }

            /// With another number of attempts.
            pub fn max_attempts(self, max_attempts: u16) -> Self {
                self.options(|options| options.attempts = max_attempts)
            }

            /// With another backoff.
            pub fn backoff(self, backoff: Backoff) -> Self {
                self.options(|options| options.backoff = backoff)
            }

            /// With another timeout.
            pub fn timeout(self, timeout: Duration) -> Self {
                self.options(|options| options.timeout_ms = Some(millis(timeout)))
            }

            /// With another lease.
            pub fn lease(self, lease: Duration) -> Self {
                self.options(|options| options.lease_ms = millis(lease))
            }

            /// Not before this time has passed since the steps before it ended.
            pub fn delay(self, delay: Duration) -> Self {
                self.options(|options| options.delay_ms = millis(delay))
            }
        }

        impl<T> Handle for $name<T> {
            fn plan(&self) -> &Plan {
                &self.plan
            }

            fn at(&self) -> usize {
                self.at
            }

            fn takes(&self) -> Takes {
                $takes
            }
        }

        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                Self::at(self.plan.clone(), self.at)
            }
        }

        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.key())
            }
        }
    };
}

handle! {
    /// A step whose value is sure to be there for those after it: it gives `T`.
    Step, Takes::Value
}

handle! {
    /// A step whose value may be absent: it gives `Option<T>`.
    Maybe, Takes::Maybe
}

handle! {
    /// A step whose failure is ignored: it gives `Option<T>`, or `Result<T, Failure>`.
    Ignored, Takes::Maybe
}

impl<T> Step<T> {
    /// What its failure means; this alone decides. [`Ignore`](super::Ignore) changes what it gives.
    pub fn on_failure<S: FailureStrategy>(self, _: S) -> S::Handle<T> {
        self.plan
            .change(self.at, |step| step.strategy = Some(S::STRATEGY));
        S::handle(self)
    }

    /// Its failure is ignored, and the run succeeds without it. From here on it may be absent.
    pub fn optional(self) -> Maybe<T> {
        self.plan.change(self.at, |step| {
            step.strategy = Some(Strategy::Ignore);
            step.optional = true;
        });
        Maybe::at(self.plan, self.at)
    }

    pub(crate) fn ignored(self) -> Ignored<T> {
        Ignored::at(self.plan, self.at)
    }
}
