//! Operations on jobs, queues and workers that exist.
//!
//! | file | subject |
//! |---|---|
//! | [`info`] | what is known of a job and of its attempts |
//! | [`handle`] | one job: look it up, retry it, delete it |
//! | [`list`] | lists of jobs |
//! | [`queues`] | pausing and resuming queues |
//! | [`workers`] | the list of workers |

mod handle;
mod info;
mod list;
mod queues;
mod workers;

pub use handle::JobHandle;
pub use info::{AttemptInfo, JobInfo, JobStatus, Outcome};
pub use list::JobFilter;
pub use workers::{WorkerInfo, WorkerQueue};
