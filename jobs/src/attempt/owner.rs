//! The owner of a job: a thing of an extension, such as one execution of a pipeline.

use serde::{Deserialize, Serialize};

/// The thing that a job belongs to, as the extension that created the job describes it.
///
/// The engine passes the owner on, to [`Context::owner`](crate::Context::owner) and to log lines, and does not
/// interpret it. Applications do not create owners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The id of the owner, such as the id of a run.
    pub id: i64,
    /// The name of the job inside the owner, such as the key of a step.
    pub label: String,
    /// The number of the owner's execution that the job belongs to, counted from 1.
    pub generation: u32,
}

/// Returns whether an extension owns the job with this id.
///
/// The id alone says so: ids of owned jobs are even, ids of all other jobs and of batches are odd (decision 6).
/// This function is the only one that knows the rule.
pub fn is_owned(job: i64) -> bool {
    job % 2 == 0
}
