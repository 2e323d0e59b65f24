//! Fakes: functions that tests run instead of performing a job type.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::{Context, JobError, Perform};

/// A function that a worker calls instead of performing a job type.
pub struct Fake<J: Perform>(Arc<FakeFn<J>>);

type FakeFn<J> = dyn Fn(J, <J as Perform>::Input, Context) -> FakeFuture<J> + Send + Sync;
type FakeFuture<J> = BoxFuture<'static, Result<<J as Perform>::Output, JobError>>;

impl<J: Perform> Fake<J> {
    /// Creates a fake of the job type.
    pub fn new<F>(fake: impl Fn(J, J::Input, Context) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<J::Output, JobError>> + Send + 'static,
    {
        Self(Arc::new(move |job, input, cx| {
            Box::pin(fake(job, input, cx))
        }))
    }

    /// Calls the fake for one attempt.
    ///
    /// # Errors
    ///
    /// The error that the fake returns.
    pub async fn call(&self, job: J, input: J::Input, cx: Context) -> Result<J::Output, JobError> {
        (self.0)(job, input, cx).await
    }
}

impl<J: Perform> Clone for Fake<J> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<J: Perform> fmt::Debug for Fake<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fake({})", J::NAME)
    }
}
