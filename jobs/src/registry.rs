//! The job types that a worker knows, and the service that performs them.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use apalis_core::error::BoxDynError;
use apalis_core::layers::{Layer, Service};
use apalis_core::task::Task;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::attempt::{Claimed, Envelope, Resolved};
use crate::context::Data;
use crate::enqueue::Overrides;
use crate::error::NO_JSON;
use crate::failure::{Carried, Disposition};
use crate::input::Input;
use crate::redact::{self, Redacted};
use crate::{Context, Error, JobError, JobOptions, OnError, Perform, Result, limits};

/// The output of a successful attempt, as JSON.
#[derive(Clone)]
pub struct Output(pub(crate) Arc<RawValue>);

impl fmt::Debug for Output {
    /// Omits the data, which must not appear in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = Redacted(self.0.get().len());
        f.debug_tuple("Output").field(&size).finish()
    }
}

type Handler = fn(Context) -> BoxFuture<'static, Result<Output, BoxDynError>>;

/// A registered job type.
#[derive(Debug, Clone)]
pub(crate) struct Registered {
    pub(crate) options: JobOptions,
    version: i32,
    handler: Handler,
}

/// The job types that a worker knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registry(HashMap<&'static str, (Registered, TypeId)>);

impl Registry {
    pub(crate) fn add<J: Perform>(&mut self) -> Result<()> {
        limits::name("job type", J::NAME)?;
        J::OPTIONS.backoff.check(J::NAME)?;
        let known = Registered {
            options: J::OPTIONS,
            version: i32::try_from(J::VERSION).unwrap_or(i32::MAX),
            handler: handle::<J>,
        };
        match self.0.insert(J::NAME, (known, TypeId::of::<J>())) {
            Some((_, other)) if other != TypeId::of::<J>() => Err(Error::DuplicateName(J::NAME)),
            _ => Ok(()),
        }
    }

    pub(crate) fn get(&self, job_type: &str) -> Option<&Registered> {
        self.0.get(job_type).map(|(known, _)| known)
    }

    /// Returns what this worker knows of a claimed job's type: whether it can perform it, and the timeout and
    /// backoff, which the job's own options override. Options that cannot be decoded fail the job when it is
    /// performed, like its arguments.
    pub(crate) fn resolve(&self, job: &Claimed) -> Resolved {
        let overrides = Overrides::decode(job.options.as_deref());
        let known = self.get(&job.job_type);
        let declared = known.map(|known| &known.options);
        Resolved {
            // An older version of the type would drop fields that it does not know.
            is_known: self.knows(&job.job_type, overrides.version.unwrap_or(1)),
            timeout: overrides
                .timeout_ms
                .map(Duration::from_millis)
                .or_else(|| declared.and_then(|options| options.timeout)),
            backoff: overrides
                .backoff
                .or_else(|| declared.map(|options| options.backoff))
                .unwrap_or_default(),
            asynchronous_commit: overrides.asynchronous_commit,
        }
    }

    /// Returns whether this worker can perform jobs of this type whose data has this version.
    pub(crate) fn knows(&self, job_type: &str, version: u32) -> bool {
        let knows =
            |known: &Registered| u32::try_from(known.version).unwrap_or(u32::MAX) >= version;
        self.get(job_type).is_some_and(knows)
    }

    /// Returns the declared versions of [`names`](Self::names), in their order.
    pub(crate) fn versions(&self) -> Vec<i32> {
        let version = |name: &String| self.get(name).map_or(1, |known| known.version);
        self.names().iter().map(version).collect()
    }

    /// Returns the names of the job types, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.0.keys().map(|name| (*name).to_owned()).collect();
        names.sort();
        names
    }
}

/// A list of job types for [`Worker::register`](crate::Worker::register): one job type, or a tuple of up to 16 lists.
///
/// A module can export its jobs as one list, and a worker registers several of them:
///
/// ```
/// # use jobs::{Context, Job, JobError, Perform, Worker};
/// # macro_rules! job { ($($name:ident)*) => { $(
/// #     #[derive(serde::Serialize, serde::Deserialize, Job)]
/// #     pub struct $name;
/// #     impl Perform for $name {
/// #         type Input = ();
/// #         type Output = ();
/// #         async fn perform(self, (): (), _: &Context) -> Result<(), JobError> { Ok(()) }
/// #     }
/// # )* } }
/// # job!(Charge Refund Welcome);
/// type BillingJobs = (Charge, Refund);
/// type AllJobs = (BillingJobs, Welcome);
///
/// fn register(worker: Worker) -> Worker {
///     worker.register::<AllJobs>()
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a worker cannot perform `{Self}`",
    label = "neither a job nor a tuple of jobs",
    note = "each job type derives `Job` and implements `Perform`",
    note = "a tuple has up to 16 elements; for more, nest tuples: `(BillingJobs, MailJobs)`"
)]
pub trait Jobs {
    #[doc(hidden)]
    fn register(registry: &mut Registering<'_>) -> Result<()>;

    /// Returns whether the list contains a job type with this name.
    #[doc(hidden)]
    fn contains(name: &str) -> bool;
}

/// The registry of a worker, to which [`Jobs`] adds its types.
#[doc(hidden)]
#[derive(Debug)]
pub struct Registering<'a>(pub(crate) &'a mut Registry);

impl<J: Perform> Jobs for J {
    fn register(registry: &mut Registering<'_>) -> Result<()> {
        registry.0.add::<J>()
    }

    fn contains(name: &str) -> bool {
        J::NAME == name
    }
}

macro_rules! tuples {
    ($($name:ident)*) => {
        #[diagnostic::do_not_recommend]
        impl<$($name: Jobs),*> Jobs for ($($name,)*) {
            fn register(registry: &mut Registering<'_>) -> Result<()> {
                $($name::register(registry)?;)*
                Ok(())
            }

            fn contains(name: &str) -> bool {
                false $(|| $name::contains(name))*
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I);
tuples!(A B C D E F G H I J);
tuples!(A B C D E F G H I J K);
tuples!(A B C D E F G H I J K L);
tuples!(A B C D E F G H I J K L M);
tuples!(A B C D E F G H I J K L M N);
tuples!(A B C D E F G H I J K L M N O);
tuples!(A B C D E F G H I J K L M N O P);

/// The service that performs the jobs of a worker, inside of the layers that were given to
/// [`Worker::layer`](crate::Worker::layer).
#[derive(Debug, Clone)]
pub struct Performer(Inner);

#[derive(Clone)]
enum Inner {
    Bare {
        registry: Arc<Registry>,
        data: Arc<Data>,
    },
    Layered(Box<dyn LayeredService>),
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bare { .. } => "Bare",
            Self::Layered(_) => "Layered",
        })
    }
}

type Performing = BoxFuture<'static, Result<Output, BoxDynError>>;

impl Performer {
    pub(crate) fn new(registry: Arc<Registry>, data: Arc<Data>) -> Self {
        Self(Inner::Bare { registry, data })
    }

    /// Wraps the service in a layer.
    pub(crate) fn layered<L>(self, layer: &L) -> Self
    where
        L: Layer<Self, Service: PerformService>,
    {
        Self(Inner::Layered(Box::new(layer.layer(self))))
    }
}

/// A service that performs jobs: what a layer makes of a [`Performer`].
#[doc(hidden)]
pub trait PerformService:
    Service<Task<Envelope>, Response = Output, Error: Into<BoxDynError>, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> PerformService for S where
    S: Service<Task<Envelope>, Response = Output, Error: Into<BoxDynError>, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// A [`PerformService`] without its type.
trait LayeredService: Send + Sync {
    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), BoxDynError>>;
    fn call(&mut self, task: Task<Envelope>) -> Performing;
    fn boxed_clone(&self) -> Box<dyn LayeredService>;
}

impl<S: PerformService> LayeredService for S {
    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), BoxDynError>> {
        Service::poll_ready(self, cx).map_err(Into::into)
    }

    fn call(&mut self, task: Task<Envelope>) -> Performing {
        let performing = Service::call(self, task);
        Box::pin(async move { performing.await.map_err(Into::into) })
    }

    fn boxed_clone(&self) -> Box<dyn LayeredService> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn LayeredService> {
    fn clone(&self) -> Self {
        (**self).boxed_clone()
    }
}

impl Service<Task<Envelope>> for Performer {
    type Response = Output;
    type Error = BoxDynError;
    type Future = Performing;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), BoxDynError>> {
        match &mut self.0 {
            Inner::Bare { .. } => Poll::Ready(Ok(())),
            Inner::Layered(service) => (**service).poll_ready(cx),
        }
    }

    fn call(&mut self, task: Task<Envelope>) -> Performing {
        let (registry, data) = match &mut self.0 {
            Inner::Bare { registry, data } => (registry, data),
            Inner::Layered(service) => return (**service).call(task),
        };
        let envelope = task.args;
        match registry.get(envelope.job_type()) {
            Some(known) => (known.handler)(Context {
                envelope,
                data: Arc::clone(data),
            }),
            // The engine sends no type here that the registry does not know.
            None => {
                let message = format!(
                    "this worker does not know the job type `{}`: register it",
                    envelope.job_type()
                );
                Box::pin(async { Err(Carried(JobError::new("NoHandler", message)).into()) })
            }
        }
    }
}

/// Performs one job of a type: decodes its data, performs it, and encodes its output or decides about its error.
fn handle<J: Perform>(cx: Context) -> BoxFuture<'static, Result<Output, BoxDynError>> {
    Box::pin(async move {
        let carried = |error| BoxDynError::from(Carried(error));
        if let Some(options) = cx.envelope.options() {
            decode::<Overrides>(J::NAME, "options", options).map_err(carried)?;
        }
        // The input comes first: if it is refused, the arguments were not loaded either.
        let input: J::Input = input(J::NAME, cx.envelope.input()).map_err(carried)?;
        let job: J = decode(J::NAME, "arguments", cx.envelope.args()).map_err(carried)?;
        let outcome = perform(job, input, &cx).await;
        match outcome {
            Ok(output) => encode(J::NAME, &output).map_err(carried),
            Err(error) => Err(carried(decide::<J>(error, &cx).without_source())),
        }
    })
}

/// Performs the job, or calls the fake that a test set for the job's type.
#[cfg(feature = "testing")]
async fn perform<J: Perform>(job: J, input: J::Input, cx: &Context) -> Result<J::Output, JobError> {
    match cx.data.get::<crate::fake::Fake<J>>() {
        None => job.perform(input, cx).await,
        Some(fake) => fake.call(job, input, cx.clone()).await,
    }
}

/// Performs the job.
#[cfg(not(feature = "testing"))]
async fn perform<J: Perform>(job: J, input: J::Input, cx: &Context) -> Result<J::Output, JobError> {
    job.perform(input, cx).await
}

/// Asks the job what follows its error, unless the error decides itself.
fn decide<J: Perform>(error: JobError, cx: &Context) -> JobError {
    if error.disposition() != Disposition::Ask {
        return error;
    }
    let Ok(job) = decode::<J>(J::NAME, "arguments", cx.envelope.args()) else {
        return error;
    };
    let disposition = match job.on_error(&error, cx.attempt()) {
        OnError::Retry => Disposition::Retry,
        OnError::After(wait) => Disposition::RetryAfter(wait),
        OnError::Discard => Disposition::Discard,
    };
    error.with(disposition)
}

/// Decodes JSON. The error names the path of the field, and the job is not retried: the data stays the same.
fn decode<T: DeserializeOwned>(job_type: &str, what: &str, json: &str) -> Result<T, JobError> {
    let mut source = serde_json::Deserializer::from_str(json);
    serde_path_to_error::deserialize(&mut source)
        .map_err(|error| undecodable(job_type, what, &error))
}

fn undecodable(
    job_type: &str,
    what: &str,
    error: &serde_path_to_error::Error<serde_json::Error>,
) -> JobError {
    let path = redact::path(error);
    let message = format!(
        "the {what} of `{job_type}` cannot be decoded at `{path}`: {}; let the type take what is \
         stored, then retry the job, or reopen its run",
        redact::reason(error.inner())
    );
    JobError::new("Undecodable", message).with(Disposition::Fail)
}

/// Decodes the input of a job. A job with the input `()` ignores what it is given, as a callback may.
fn input<T: DeserializeOwned + 'static>(job_type: &str, input: &Input) -> Result<T, JobError> {
    let what = "input";
    match input {
        Input::Refused(class, message) => {
            Err(JobError::new(class.clone(), message).with(Disposition::Fail))
        }
        _ if TypeId::of::<T>() == TypeId::of::<()>() => decode(job_type, what, "null"),
        Input::None => decode(job_type, what, "null"),
        Input::Json(json) => decode(job_type, what, json),
        Input::Value(value) => value
            .decode()
            .map_err(|error| undecodable(job_type, what, &error)),
    }
}

fn encode<T: serde::Serialize>(job_type: &'static str, output: &T) -> Result<Output, JobError> {
    let refused =
        |error: &dyn fmt::Display| JobError::new("BadOutput", error).with(Disposition::Fail);
    let raw = crate::encode::to_raw_value(output).map_err(|error| {
        refused(&format!(
            "the output of `{job_type}` cannot be written as JSON: {error}; {NO_JSON}"
        ))
    })?;
    limits::data(job_type, "output", raw.get()).map_err(|error| refused(&error))?;
    Ok(Output(raw.into()))
}
