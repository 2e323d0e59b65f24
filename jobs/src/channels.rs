//! The names of notification channels.

/// New work: the payload is the name of a queue, or `*` for any of them.
pub const JOBS: &str = "pipeline_jobs";
