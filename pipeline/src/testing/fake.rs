//! What is done in place of a job.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use jobs::{Context, Fake, JobError, Perform};
use parking_lot::Mutex;

use super::Setup;

/// Each says what is done in place of [`Perform::perform`] for one job type, in this harness. All else is
/// as ever: the job's data and its input are decoded, its attempts, backoff and timeout count, its
/// [`on_error`](Perform::on_error) is asked, a panic is an error. Of two for one type, the later one counts.
impl Setup {
    /// Does this in place of performing a job type.
    ///
    /// ```
    /// # use pipeline::jobs::{self, Context, Job, JobError, Perform};
    /// # use pipeline::testing::Setup;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, Job)]
    /// # struct Download { video: u64 }
    /// # impl Perform for Download {
    /// #     type Input = ();
    /// #     type Output = String;
    /// #     async fn perform(self, (): (), _: &Context) -> Result<String, JobError> { Ok(self.video.to_string()) }
    /// # }
    /// # fn example(setup: Setup) {
    /// setup.fake(|job: Download, ()| match job.video {
    ///     404 => Err(JobError::new("NotFound", "there is no such video").discard()),
    ///     video => Ok(format!("{video}.mkv")),
    /// });
    /// # }
    /// ```
    pub fn fake<J: Perform>(
        self,
        fake: impl Fn(J, J::Input) -> Result<J::Output, JobError> + Send + Sync + 'static,
    ) -> Self {
        let fake = Arc::new(fake);
        self.fake_with(move |job, input, _| {
            let fake = Arc::clone(&fake);
            async move { fake(job, input) }
        })
    }

    /// The same with the job's [`Context`], and with time to wait in.
    pub fn fake_with<J: Perform, F>(
        self,
        fake: impl Fn(J, J::Input, Context) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<J::Output, JobError>> + Send + 'static,
    {
        let fake = Fake::<J>::new(fake);
        self.change(move |worker| worker.with(|jobs| jobs.fake(fake.clone())))
    }

    /// One outcome after the other for the attempts of a job type, in the order in which they come. An
    /// attempt for which none is left fails for good, with the class `FakeExhausted`.
    pub fn fake_sequence<J: Perform>(
        self,
        outcomes: impl IntoIterator<Item = Result<J::Output, JobError>>,
    ) -> Self {
        let outcomes: VecDeque<_> = outcomes.into_iter().collect();
        let count = outcomes.len();
        let outcomes = Mutex::new(outcomes);
        self.fake(move |_: J, _| {
            outcomes.lock().pop_front().unwrap_or_else(|| {
                let message = format!(
                    "the fake of `{}` has no outcome left: it was given {count}",
                    J::NAME
                );
                Err(JobError::new("FakeExhausted", message).discard())
            })
        })
    }

    /// The first attempts of each job of a type, so many of them, fail with this error; then it is
    /// performed.
    pub fn fail_first<J: Perform>(
        self,
        attempts: u16,
        error: impl Fn() -> JobError + Send + Sync + 'static,
    ) -> Self {
        let error = Arc::new(error);
        self.fake_with(move |job: J, input, cx: Context| {
            let error = Arc::clone(&error);
            async move {
                if cx.attempt() <= attempts {
                    return Err(error());
                }
                job.perform(input, &cx).await
            }
        })
    }
}
