//! A job: plain data that knows how to perform itself.

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Context, JobError, JobOptions};

/// Work of one type with its data: what is stored, and how it is to be run.
///
/// Derive it:
///
/// ```
/// use jobs::Job;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(queue = "media", attempts = 5, backoff = "exponential(1s..60s)", timeout = "10m")]
/// struct Transcode {
///     preset: String,
/// }
/// assert_eq!(Transcode::NAME, "transcode");
/// ```
///
/// | attribute | what it says | default |
/// |---|---|---|
/// | `name = "media.transcode"` | the stable name that is stored | the type's, in snake case |
/// | `version = 2` | the version of its data's shape | 1 |
/// | `queue = "media"` | the line it waits in | `default` |
/// | `priority = 10` | higher runs first | 0 |
/// | `attempts = 5` | how often it is tried | 5 |
/// | `backoff = "exponential(1s..60s, jitter 0.2)"` | the wait between attempts; also `linear(1s..60s)`, `fixed(5s)` | `exponential(1s..10m, jitter 0.2)` |
/// | `timeout = "10m"` | how long one attempt may take | for ever |
/// | `lease = "30s"` | how long a claim holds without being renewed | 30 s |
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// The stable name under which it is stored. Renaming the type must not change it.
    const NAME: &'static str;

    /// The version of its data's shape.
    const VERSION: u32 = 1;

    /// How it is to be run, unless an enqueueing says otherwise.
    const OPTIONS: JobOptions = JobOptions::DEFAULT;
}

/// How a job is performed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how it is performed",
    label = "not a job that can be performed",
    note = "derive `Job` for it, and implement `Perform`"
)]
pub trait Perform: Job {
    /// What it is given besides its own data: `()` for a job on its own, what the steps before it
    /// returned for a step of a pipeline, [`BatchEnded`](crate::BatchEnded) for a batch's callback.
    type Input: DeserializeOwned + Send + 'static;

    /// What it returns.
    type Output: Serialize + Send + 'static;

    /// Does the work. An error means "try again", until the attempts are used up; [`JobError`] has
    /// the other ways to end.
    fn perform(
        self,
        input: Self::Input,
        cx: &Context,
    ) -> impl Future<Output = Result<Self::Output, JobError>> + Send;

    /// Decides what an error means, by its class, its message, what it was made of
    /// ([`downcast_ref`](JobError::downcast_ref)) or what the job is. It gets the job decoded again:
    /// `perform` has consumed it.
    ///
    /// Not asked when `perform` itself has said what is to come: [`JobError::discard`],
    /// [`JobError::retry_after`], [`JobError::snooze`]; nor about a panic or a timeout, which `perform`
    /// did not return: these are retried.
    fn on_error(&self, error: &JobError, attempt: u16) -> OnError {
        let _ = (error, attempt);
        OnError::Retry
    }
}

/// The input of a job that is enqueued on its own: none.
#[diagnostic::on_unimplemented(
    message = "a job whose input is `{Self}` cannot be enqueued on its own",
    label = "nobody would give it its input",
    note = "a job that is enqueued has `type Input = ()`"
)]
pub trait NoInput {}
impl NoInput for () {}

/// What is to become of a job whose attempt has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// Try again after the backoff, while attempts remain.
    Retry,
    /// Try again after this time, while attempts remain.
    After(std::time::Duration),
    /// Never try again.
    Discard,
}
