//! Mistakes of a declaration that the graph itself cannot show.

use super::invalid::Place;

/// A mistake that only the declaration can show.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeclarationError {
    /// A step runs after a step of another pipeline.
    #[error(
        "step `{step}` runs after `{handle}`, which was declared in another pipeline (`{other}`): \
         use a handle that this pipeline's closure declared"
    )]
    ForeignHandle {
        /// The key of the step.
        step: String,
        /// The key of the other pipeline's step; of a branch, that of its deciding step.
        handle: String,
        /// The key that the edge names.
        key: String,
        /// The name of the other pipeline.
        other: String,
    },
    /// A step or a callback of a named pipeline runs a job that the pipeline does not list.
    #[error(
        "{place} runs the job `{job}`, which is not in `type Jobs` of `{pipeline}`: add `{job_type}` there, so that \
         `Worker::register` of the pipeline registers it"
    )]
    JobNotListed {
        /// The step or callback.
        place: Place,
        /// The name of the job type.
        job: &'static str,
        /// The Rust type of the job.
        job_type: &'static str,
        /// The Rust type of the pipeline's params.
        pipeline: &'static str,
    },
    /// The params of a named pipeline cannot be encoded as JSON.
    #[error(
        "the params of the pipeline cannot be encoded as JSON: {reason}; change the field, or its `Serialize`"
    )]
    ParamsNotEncodable {
        /// The reason that the encoder gave.
        reason: String,
    },
    /// The data of a job cannot be encoded as JSON.
    #[error(
        "{place}: the job `{job}` cannot be encoded as JSON: {reason}; change the field, or its `Serialize`"
    )]
    NotEncodable {
        /// The step or callback.
        place: Place,
        /// The name of the job type.
        job: &'static str,
        /// The reason that the encoder gave.
        reason: String,
    },
}

jobs::debug_as_display!(DeclarationError);
