//! What callbacks and failure steps are told.

use serde::{Deserialize, Serialize};

/// Why a step failed: what a step after a failure, or after an ignored step, is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The step's key.
    pub step: String,
    /// What kind of error it was.
    pub class: String,
    /// What it said.
    pub message: String,
}

/// What a step after a failure may take: the failure, or nothing.
#[diagnostic::on_unimplemented(
    message = "a step after a failure takes the `Failure` or nothing, and this job takes `{Self}`",
    label = "this job takes `{Self}`"
)]
pub trait FailureInput {}
impl FailureInput for Failure {}
impl FailureInput for () {}

/// What a callback is told of the run that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunEnded {
    /// The run.
    pub run: crate::RunId,
    /// Its pipeline.
    pub pipeline: String,
    /// How it ended; skipped means that a run before it in its chain did not succeed.
    pub status: crate::RunStatus,
    /// Whether it failed because its deadline had passed.
    #[serde(default)]
    pub deadline_exceeded: bool,
    /// Which opening of the run it was; the first is 1.
    pub round: u32,
    /// The steps that failed, the first hundred; also those whose failure was ignored.
    pub failed: Vec<FailedStep>,
    /// The steps that were cancelled after an attempt of theirs had failed, with the last error; the
    /// first hundred. They did not fail: another attempt would have followed.
    #[serde(default)]
    pub cancelled: Vec<FailedStep>,
}

/// A step that failed, or whose last attempt did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailedStep {
    /// Its key.
    pub step: String,
    /// What kind of error it was.
    pub class: String,
    /// What it said.
    pub message: String,
}

/// What a callback may take: what is told of the run, or nothing.
#[diagnostic::on_unimplemented(
    message = "a callback takes `RunEnded` or nothing, and this job takes `{Self}`",
    label = "this job takes `{Self}`"
)]
pub trait RunInput {}
impl RunInput for RunEnded {}
impl RunInput for () {}
