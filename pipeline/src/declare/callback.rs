//! The inputs of callbacks and of steps after a failure.

use serde::{Deserialize, Serialize};

/// A step's failure: its key, and the class and message of its last error.
///
/// A step after a failure, or after an ignored step, takes one; a callback takes those of its run in [`RunEnded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The key of the step.
    pub step: String,
    /// The class of the error, such as `Panic` or the name of an error type.
    pub class: String,
    /// The message of the error.
    pub message: String,
}

/// The input of a step after a failure: the [`Failure`], or nothing.
#[diagnostic::on_unimplemented(
    message = "a step after a failure takes the `Failure` or nothing, and this job takes `{Self}`",
    label = "this job takes `{Self}`"
)]
pub trait FailureInput {}
impl FailureInput for Failure {}
impl FailureInput for () {}

/// The end of a run, which its callbacks take as their input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunEnded {
    /// The id of the run.
    pub run: crate::RunId,
    /// The name of its pipeline.
    pub pipeline: String,
    /// The final status of the run; `skipped` means that a run before it in its chain did not succeed.
    pub status: crate::RunStatus,
    /// Whether the run failed because its deadline had passed.
    #[serde(default)]
    pub deadline_exceeded: bool,
    /// The round of the run: 1, and one more for each time it was reopened.
    pub round: u32,
    /// The failures of the first hundred steps that failed, also of steps whose failure was ignored.
    pub failed: Vec<Failure>,
    /// The last errors of the first hundred steps that were cancelled between attempts. These steps did not fail:
    /// another attempt would have followed.
    #[serde(default)]
    pub cancelled: Vec<Failure>,
}

/// The input of a callback: the [`RunEnded`], or nothing.
#[diagnostic::on_unimplemented(
    message = "a callback takes `RunEnded` or nothing, and this job takes `{Self}`",
    label = "this job takes `{Self}`"
)]
pub trait RunInput {}
impl RunInput for RunEnded {}
impl RunInput for () {}
