//! The names of notification channels.

/// The channel that announces ready jobs. The payload is `<queue> <milliseconds>` (the queue, and the earliest
/// `run_at` since the Unix epoch), or `*` for any queue and any time.
pub const JOBS: &str = "pipeline_jobs";
