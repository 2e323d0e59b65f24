//! Handles: declared steps, and what each gives to the steps after it.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use jobs::{Backoff, Perform};

use super::branch::{Arms, Branch};
use super::builder::{PipelineBuilder, millis};
use super::feeds::{Feeds, given};
use super::strategy::FailureStrategy;
use crate::graph::spec::{StepOptions, Strategy};

/// A declared step of any type, by value or by reference.
pub trait Handle {
    /// Returns the builder that declared the step.
    #[doc(hidden)]
    fn builder(&self) -> &PipelineBuilder;

    /// Returns the number of the node whose value the handle gives. For a branch, that is the node where its
    /// arms meet.
    #[doc(hidden)]
    fn value_node(&self) -> usize;

    /// Returns the number of the node that runs a job: the step itself, or the deciding step of a branch.
    #[doc(hidden)]
    fn job_node(&self) -> usize;
}

impl<H: Handle> Handle for &H {
    fn builder(&self) -> &PipelineBuilder {
        (**self).builder()
    }

    fn value_node(&self) -> usize {
        (**self).value_node()
    }

    fn job_node(&self) -> usize {
        (**self).job_node()
    }
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name<T> {
            builder: PipelineBuilder,
            value_node: usize,
            job_node: usize,
            gives: PhantomData<fn() -> T>,
        }

        impl<T> $name<T> {
            /// Declares a step that runs after this one and takes its value.
            pub fn then<J>(&self, key: &str, job: J) -> Step<J::Output>
            where
                J: Perform,
                for<'a> &'a Self: Feeds<J::Input>,
            {
                let upstream = given::<J::Input>(&self, &self.builder);
                self.builder.add(key, &job, upstream)
            }

            /// Declares a branch whose deciding job runs after this step and takes its value.
            ///
            /// The output of the job chooses the arm that runs. Options and strategy that are set on the returned
            /// handle are those of the deciding job.
            pub fn branch<J, A>(&self, key: &str, job: J, arms: A) -> A::Output
            where
                J: Perform<Output: Branch>,
                A: Arms<Of = J::Output>,
                for<'a> &'a Self: Feeds<J::Input>,
            {
                let upstream = given::<J::Input>(&self, &self.builder);
                super::branch::declare(&self.builder, key, &job, upstream, arms)
            }

            /// Changes the options of the step's job; of a branch, those of its deciding job.
            fn options(self, change: impl FnOnce(&mut StepOptions)) -> Self {
                self.builder.change(self.job_node, |step| {
                    if let Some(options) = &mut step.options {
                        change(options);
                    }
                });
                self
            }

            /// Sets the queue of the step's job.
            pub fn queue(self, queue: impl Into<String>) -> Self {
                self.options(|options| options.queue = queue.into())
            }

            /// Sets the priority of the step's job; higher runs first.
            pub fn priority(self, priority: i16) -> Self {
                self.options(|options| options.priority = priority)
            }

            /// Sets how many attempts the step has before it fails.
            pub fn max_attempts(self, max_attempts: u16) -> Self {
                self.options(|options| options.max_attempts = max_attempts)
            }

            /// Sets the wait between attempts.
            pub fn backoff(self, backoff: Backoff) -> Self {
                self.options(|options| options.backoff = backoff)
            }

            /// Sets how long one attempt may take.
            pub fn timeout(self, timeout: Duration) -> Self {
                self.options(|options| options.timeout_ms = Some(millis(timeout)))
            }

            /// Sets how long a claim of the step's job holds without being renewed.
            pub fn lease(self, lease: Duration) -> Self {
                self.options(|options| options.lease_ms = millis(lease))
            }

            /// Delays the step's job by this time after the steps before it have ended.
            pub fn delay(self, delay: Duration) -> Self {
                self.options(|options| options.delay_ms = millis(delay))
            }
        }

        impl<T> Handle for $name<T> {
            fn builder(&self) -> &PipelineBuilder {
                &self.builder
            }

            fn value_node(&self) -> usize {
                self.value_node
            }

            fn job_node(&self) -> usize {
                self.job_node
            }
        }

        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                Self {
                    builder: self.builder.clone(),
                    value_node: self.value_node,
                    job_node: self.job_node,
                    gives: PhantomData,
                }
            }
        }

        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.builder.key(self.job_node))
            }
        }
    };
}

handle! {
    /// A step whose value is always present for the steps after it: it gives `T`.
    Step
}

handle! {
    /// A step whose value may be absent: it gives `Option<T>`.
    ///
    /// [`Step::optional`], a branch of which only some arms return a step, and
    /// [`after_failure`](PipelineBuilder::after_failure) return one.
    OptionalStep
}

handle! {
    /// A step whose failure is ignored: it gives `Option<T>` or `Result<T, Failure>`, whichever the next job takes.
    ///
    /// [`failure_strategy(Ignore)`](Step::failure_strategy) returns one.
    IgnoredStep
}

impl<T> Step<T> {
    pub(crate) fn at(builder: PipelineBuilder, node: usize) -> Self {
        Self {
            builder,
            value_node: node,
            job_node: node,
            gives: PhantomData,
        }
    }

    /// Returns a handle of the same value whose options are those of another node: of a branch's deciding step.
    pub(crate) fn decided_by(self, job_node: usize) -> Self {
        Self { job_node, ..self }
    }

    /// Sets what the step's failure means for its run, instead of the pipeline's strategy.
    ///
    /// [`Ignore`](super::Ignore) changes what the step gives: see [`IgnoredStep`]. The failure of a branch's
    /// deciding step cannot be ignored, because no arm could be chosen.
    pub fn failure_strategy<S: FailureStrategy>(self, _: S) -> S::Handle<T> {
        set_strategy(&self, S::STRATEGY);
        S::handle(self)
    }

    /// Ignores the step's failure, and does not count it in the run's status. The step then gives an `Option`.
    pub fn optional(self) -> OptionalStep<T> {
        set_strategy(&self, Strategy::Ignore);
        self.builder
            .change(self.job_node, |step| step.optional = true);
        self.may_be_absent()
    }

    pub(crate) fn may_be_absent(self) -> OptionalStep<T> {
        OptionalStep {
            builder: self.builder,
            value_node: self.value_node,
            job_node: self.job_node,
            gives: PhantomData,
        }
    }

    pub(crate) fn ignored(self) -> IgnoredStep<T> {
        IgnoredStep {
            builder: self.builder,
            value_node: self.value_node,
            job_node: self.job_node,
            gives: PhantomData,
        }
    }
}

impl<T> OptionalStep<T> {
    /// Sets what the step's failure means for its run, instead of the pipeline's strategy.
    ///
    /// A step that [`Step::optional`] made optional cannot have another strategy.
    pub fn failure_strategy<S: FailureStrategy>(self, _: S) -> Self {
        set_strategy(&self, S::STRATEGY);
        self
    }
}

fn set_strategy(of: &impl Handle, strategy: Strategy) {
    of.builder()
        .change(of.job_node(), |step| step.strategy = Some(strategy));
}
