//! Fakes: closures that run in place of a job.

use std::any::TypeId;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jobs::testing::Fake;
use jobs::{Context, JobError, Perform};
use parking_lot::Mutex;

use super::{Harness, Setup};
use crate::{Error, Result, StepContext as _};

/// Fakes replace [`Perform::perform`] for one job type. Everything else stays as in a worker: the job's data and its
/// input are decoded, its attempts, backoff and timeout count, [`on_error`](Perform::on_error) is called, and a panic
/// is an error. Of two fakes for one type, or for one step, the later one counts; a fake for a step takes precedence
/// over one for its type.
impl Setup {
    /// Runs a closure in place of a job type, by the job's data and its input.
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
    #[track_caller]
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

    /// Runs an async closure in place of a job type, with the job's [`Context`].
    #[track_caller]
    pub fn fake_with<J: Perform, F>(
        self,
        fake: impl Fn(J, J::Input, Context) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<J::Output, JobError>> + Send + 'static,
    {
        self.add_fake(None, Fake::<J>::new(fake))
    }

    /// Runs a closure in place of a job type at the steps with this key, in any pipeline. At other steps the job is
    /// performed, or faked as its type is. A key that no step with a job of this type has is an error when the
    /// harness runs: see [`allow_unused_fakes`](Self::allow_unused_fakes).
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
    #[track_caller]
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

    /// Runs an async closure in place of a job type at the steps with this key, with the job's [`Context`].
    #[track_caller]
    pub fn fake_step_with<J: Perform, F>(
        self,
        key: impl Into<String>,
        fake: impl Fn(J, J::Input, Context) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<J::Output, JobError>> + Send + 'static,
    {
        self.add_fake(Some(key.into()), Fake::<J>::new(fake))
    }

    /// Adds a fake for one step, or for all other steps and jobs of the type, in place of an earlier one.
    #[track_caller]
    fn add_fake<J: Perform>(mut self, step: Option<String>, fake: Fake<J>) -> Self {
        let declared = Arc::new(Declared {
            job_type: J::NAME,
            step: step.clone(),
            at: Location::caller(),
            is_used: AtomicBool::new(false),
        });
        self.declared
            .retain(|it| (it.job_type, &it.step) != (J::NAME, &step));
        self.declared.push(Arc::clone(&declared));
        let fake = (fake, declared);
        let known = self.fakes.get(&TypeId::of::<J>());
        let fakes = known.and_then(|it| it.downcast_ref::<Fakes<J>>()).cloned();
        if let Some(fakes) = fakes {
            fakes.0.lock().insert(step, fake);
            return self;
        }
        let fakes = Fakes(Arc::new(Mutex::new(HashMap::from([(step, fake)]))));
        let one = fakes.clone().into_fake();
        self.fakes.insert(TypeId::of::<J>(), Box::new(fakes));
        self.change(move |worker| worker.with(|jobs| jobs.fake(one.clone())))
    }

    /// Accepts fakes and holds for keys that no step has: for a setup that several tests share.
    pub fn allow_unused_fakes(mut self) -> Self {
        self.allows_unused_fakes = true;
        self
    }

    /// Gives the attempts of a job type these outcomes, one after the other. An attempt for which no outcome is
    /// left fails without further retries, with the class `FakeExhausted`.
    #[track_caller]
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

    /// Fails the first attempts of each job of a type with this error; later attempts are performed.
    #[track_caller]
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

impl Harness {
    /// Panics if a fake was never called, and lists all such fakes with the lines that declare them. Call it at the
    /// end of a test that means to use each of its fakes.
    #[track_caller]
    #[allow(clippy::panic, reason = "a failed assertion fails the test")]
    pub fn assert_fakes_used(&self) {
        let is_unused = |it: &&Arc<Declared>| !it.is_used.load(Ordering::Relaxed);
        let unused: Vec<String> = self
            .declared
            .iter()
            .filter(is_unused)
            .map(|it| format!("- {it}"))
            .collect();
        if !unused.is_empty() {
            panic!("these fakes were never called:\n{}", unused.join("\n"));
        }
    }

    /// Returns an error if a fake or a hold names a step that no graph in the database has: its job would be
    /// performed. Job types and keys that no graph has at all may belong to a pipeline that is started later.
    pub(super) async fn check_keys(&self) -> Result<()> {
        let holds = self.holds.all();
        let names_steps = self.declared.iter().any(|fake| fake.step.is_some());
        if self.allows_unused_fakes || holds.is_empty() && !names_steps {
            return Ok(());
        }
        let steps = sqlx::query_file!("src/sql/testing_job_steps.sql")
            .fetch_all(self.client.pool())
            .await?;
        let keys_of = |job_type: &str| {
            let of_type = steps.iter().filter(|step| step.job_type == job_type);
            of_type.map(|step| step.key.clone()).collect::<Vec<_>>()
        };
        let has_key = |key: &str| steps.iter().any(|step| step.key == key);
        for fake in &self.declared {
            let Some(step) = &fake.step else { continue };
            let known = keys_of(fake.job_type);
            let is_unknown = known.is_empty() && !has_key(step);
            if !known.contains(step) && !is_unknown {
                return Err(Error::FakeWithoutStep {
                    step: step.clone(),
                    job_type: fake.job_type,
                    known,
                    at: fake.at,
                });
            }
        }
        for hold in holds {
            if !steps.is_empty() && !has_key(&hold.step) {
                let mut known: Vec<String> = steps.iter().map(|step| step.key.clone()).collect();
                known.dedup();
                return Err(Error::HoldWithoutStep {
                    step: hold.step,
                    known,
                    at: hold.at,
                });
            }
        }
        Ok(())
    }
}

/// A fake as the test declared it.
#[derive(Debug)]
pub(super) struct Declared {
    job_type: &'static str,
    /// The key of the steps that it is for; `None` for all others of the type.
    step: Option<String>,
    at: &'static Location<'static>,
    is_used: AtomicBool,
}

impl fmt::Display for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`", self.at, self.job_type)?;
        match &self.step {
            Some(step) => write!(f, " at step `{step}`"),
            None => Ok(()),
        }
    }
}

/// The fakes of one job type: those for the steps of a key, and the one for all others, whose key is `None`.
struct Fakes<J: Perform>(Arc<Mutex<FakesByStep<J>>>);

type FakesByStep<J> = HashMap<Option<String>, (Fake<J>, Arc<Declared>)>;

impl<J: Perform> Fakes<J> {
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

    /// Returns the fake for a step, or for a job that is not a step, and notes that it is used.
    fn at(&self, step: Option<String>) -> Option<Fake<J>> {
        let fakes = self.0.lock();
        let (fake, declared) = fakes.get(&step).or_else(|| fakes.get(&None))?;
        declared.is_used.store(true, Ordering::Relaxed);
        Some(fake.clone())
    }
}

impl<J: Perform> Clone for Fakes<J> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
