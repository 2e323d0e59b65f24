//! The context of a step: its run, key and round.

use jobs::Envelope;
use jobs::extension::is_owned;

use crate::RunId;
use crate::db::ids::run_of;

/// Adds to a job's [`Context`](jobs::Context) what a step knows of its run, and how a step ends its run.
pub trait StepContext {
    /// Returns the run that this job is a step of; `None` for a job that is not a step.
    fn run(&self) -> Option<RunId>;

    /// Returns the key of the step; `None` for a job that is not a step.
    fn step(&self) -> Option<&str>;

    /// Returns the round of the run: 1, and one more for each time that the run was reopened.
    fn round(&self) -> Option<u32>;

    /// Ends the run early once this attempt has succeeded: steps that have not started are skipped, and the run
    /// succeeds if no step failed.
    ///
    /// The request belongs to the attempt: if the attempt fails, the request is dropped. In a job that is not a step,
    /// the call has no effect.
    fn end_run(&self);
}

macro_rules! step_context {
    ($($type:ty)*) => {
        $(impl StepContext for $type {
            fn run(&self) -> Option<RunId> {
                step(self.id().get())
            }

            fn step(&self) -> Option<&str> {
                self.owner().map(|owner| owner.label.as_str())
            }

            fn round(&self) -> Option<u32> {
                self.owner().map(|owner| owner.generation)
            }

            fn end_run(&self) {
                self.end_owner();
            }
        })*
    };
}

step_context!(jobs::Context Envelope);

fn step(job: i64) -> Option<RunId> {
    is_owned(job).then(|| run_of(job).into())
}
