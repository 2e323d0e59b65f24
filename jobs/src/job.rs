//! The traits of a job: plain data, and how it is performed.

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Context, JobError, JobOptions};

/// A job type: its stored name, the version of its data, and its options. The fields of the type are the data of a job.
///
/// Derive it:
///
/// ```
/// use jobs::Job;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(queue = "media", max_attempts = 5, backoff = "exponential(1s..60s)", timeout = "10m")]
/// struct Transcode {
///     preset: String,
/// }
/// assert_eq!(Transcode::NAME, "transcode");
/// ```
///
/// | attribute | meaning | default |
/// |---|---|---|
/// | `name = "media.transcode"` | the name that is stored | the name of the type, in snake case |
/// | `version = 2` | the version of the job's data: workers that know only an older version leave the job alone | 1 |
/// | `queue = "media"` | the queue | `default` |
/// | `priority = 10` | the priority; higher ones are performed first | 0 |
/// | `max_attempts = 5` | the maximum number of attempts | 5 |
/// | `backoff = "exponential(1s..60s, jitter 0.2)"` | the wait between attempts; also `linear(1s..60s)`, `fixed(5s)` | `exponential(1s..10m, jitter 0.2)` |
/// | `timeout = "10m"` | how long one attempt may take | no limit |
/// | `lease = "30s"` | after how long without a renewal another worker takes the job over | 30 s |
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// The name under which jobs of this type are stored. Renaming the Rust type must not change it.
    const NAME: &'static str;

    /// The version of the job's data.
    const VERSION: u32 = 1;

    /// The options of the job type, which [`NewJob`](crate::NewJob) can override.
    const OPTIONS: JobOptions = JobOptions::DEFAULT;
}

/// Performs the jobs of a type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how it is performed",
    label = "not a job that can be performed",
    note = "derive `Job` for it, and implement `Perform`"
)]
pub trait Perform: Job {
    /// The input of the job besides its own data: `()` for a job that is enqueued, the outputs of the steps before it for
    /// a step of a pipeline, [`BatchEnded`](crate::BatchEnded) for a batch's callback.
    type Input: DeserializeOwned + Send + 'static;

    /// The output of the job.
    type Output: Serialize + Send + 'static;

    /// Performs the job. After an error, the job is retried until no attempts are left; [`JobError`] has constructors
    /// for other outcomes.
    fn perform(
        self,
        input: Self::Input,
        cx: &Context,
    ) -> impl Future<Output = Result<Self::Output, JobError>> + Send;

    /// Decides what follows an error, by its class, its message, its source
    /// ([`downcast_ref`](JobError::downcast_ref)) or the job, which is decoded again because `perform` has consumed it.
    ///
    /// The method is not called for an error that decides itself ([`JobError::discard`], [`JobError::retry_after`],
    /// [`JobError::snooze`]), nor after a panic or a timeout, which are retried.
    fn on_error(&self, error: &JobError, attempt: u16) -> OnError {
        let _ = (error, attempt);
        OnError::Retry
    }
}

/// The input of a job that is enqueued: `()`.
#[diagnostic::on_unimplemented(
    message = "a job whose input is `{Self}` cannot be enqueued on its own",
    label = "nobody would give it its input",
    note = "a job that is enqueued has `type Input = ()`"
)]
pub trait NoInput {}
impl NoInput for () {}

/// The decision about a failed attempt, which [`Perform::on_error`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// The job is retried after the backoff, while attempts remain.
    Retry,
    /// The job is retried after this time, while attempts remain.
    After(std::time::Duration),
    /// The job is discarded: it is not retried.
    Discard,
}
