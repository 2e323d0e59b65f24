//! Our runs with relaxed commits: the place of the system `ours-relaxed`.

use pipeline::Plan;

/// Gives a pipeline the setting of relaxed commits.
pub(crate) type Relax = fn(&Plan);

/// `None`: there is no such setting yet. With a function here, `bench -- peers` offers the system `ours-relaxed` in
/// the workload `latency` and prints `ratio latency/relaxed_dbos`.
pub(crate) const RELAX: Option<Relax> = None;
