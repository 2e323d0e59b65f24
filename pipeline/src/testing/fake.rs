//! What is done in place of a job.

use std::any::TypeId;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;

use jobs::testing::Fake;
use jobs::{Context, JobError, Perform};
use parking_lot::Mutex;

use super::Setup;
use crate::StepContext as _;

/// Each says what is done in place of [`Perform::perform`] for one job type, in this harness. All else is
/// as ever: the job's data and its input are decoded, its attempts, backoff and timeout count, its
/// [`on_error`](Perform::on_error) is asked, a panic is an error. Of two for one type, or for one step, the
/// later one counts; one for a step comes before one for its type.
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
        self.stand(None, Fake::<J>::new(fake))
    }

    /// Does this in place of performing a job type at the steps of this key, in any pipeline. At other
    /// steps the job is performed, or faked as its type is.
    ///
    /// ```
    /// # use pipeline::jobs::{self, Context, Job, JobError, Perform};
    /// # use pipeline::testing::Setup;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, Job)]
    /// # struct Transcode { height: u32 }
    /// # impl Perform for Transcode {
    /// #     type Input = String;
    /// #     type Output = String;
    /// #     async fn perform(self, file: String, _: &Context) -> Result<String, JobError> { Ok(file) }
    /// # }
    /// # fn example(setup: Setup) {
    /// setup
    ///     .fake(|job: Transcode, file| Ok(format!("{file}.{}p", job.height)))
    ///     .fake_step("sd", |_: Transcode, _| Err(JobError::new("Full", "the disk is full").discard()));
    /// # }
    /// ```
    pub fn fake_step<J: Perform>(
        self,
        key: impl Into<String>,
        fake: impl Fn(J, J::Input) -> Result<J::Output, JobError> + Send + Sync + 'static,
    ) -> Self {
        let fake = Arc::new(fake);
        self.fake_step_with(key, move |job, input, _| {
            let fake = Arc::clone(&fake);
            async move { fake(job, input) }
        })
    }

    /// The same with the job's [`Context`], and with time to wait in.
    pub fn fake_step_with<J: Perform, F>(
        self,
        key: impl Into<String>,
        fake: impl Fn(J, J::Input, Context) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<J::Output, JobError>> + Send + 'static,
    {
        self.stand(Some(key.into()), Fake::<J>::new(fake))
    }

    fn stand<J: Perform>(mut self, step: Option<String>, fake: Fake<J>) -> Self {
        let known = self.fakes.get(&TypeId::of::<J>());
        let stands = known.and_then(|it| it.downcast_ref::<Stands<J>>()).cloned();
        if let Some(stands) = stands {
            stands.0.lock().insert(step, fake);
            return self;
        }
        let stands = Stands(Arc::new(Mutex::new(HashMap::from([(step, fake)]))));
        let one = stands.clone().into_fake();
        self.fakes.insert(TypeId::of::<J>(), Box::new(stands));
        self.change(move |worker| worker.with(|jobs| jobs.fake(one.clone())))
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

/// What is done in place of one job type: at the steps of a key, or at all others.
struct Stands<J: Perform>(Arc<Mutex<HashMap<Option<String>, Fake<J>>>>);

impl<J: Perform> Stands<J> {
    fn into_fake(self) -> Fake<J> {
        Fake::new(move |job: J, input, cx: Context| {
            let fake = self.at(cx.step().map(str::to_owned));
            async move {
                match fake {
                    Some(fake) => fake.call(job, input, cx).await,
                    None => job.perform(input, &cx).await,
                }
            }
        })
    }

    fn at(&self, step: Option<String>) -> Option<Fake<J>> {
        let stands = self.0.lock();
        stands.get(&step).or_else(|| stands.get(&None)).cloned()
    }
}

impl<J: Perform> Clone for Stands<J> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
