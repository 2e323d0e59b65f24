//! Mistakes of a declaration that the graph itself cannot show.

/// A mistake that only the declaration can see.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeclarationError {
    /// A handle of another pipeline.
    #[error(
        "step `{step}` comes after `{handle}`, which was declared in another pipeline (`{other}`): \
         use a handle of this one"
    )]
    ForeignHandle {
        /// The step.
        step: String,
        /// The handle's step.
        handle: String,
        /// The pipeline it is from.
        other: String,
    },
    /// Params that have no JSON.
    #[error(
        "the params of the pipeline cannot be written as JSON: {reason}; give their fields types that \
         have, or another `Serialize`"
    )]
    ParamsNotEncodable {
        /// What serde said.
        reason: String,
    },
    /// A job that has no JSON.
    #[error(
        "the job of step `{step}` (`{job}`) cannot be written as JSON: {reason}; give its fields types \
         that have, or another `Serialize`"
    )]
    NotEncodable {
        /// The step.
        step: String,
        /// The job type's name.
        job: &'static str,
        /// What serde said.
        reason: String,
    },
}

jobs::debug_as_display!(DeclarationError);
