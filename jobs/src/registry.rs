//! The job types a worker knows, and how each is performed.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use apalis_core::error::BoxDynError;
use apalis_core::layers::Service;
use apalis_core::task::Task;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::attempt::{Claimed, Envelope, Resolved};
use crate::context::Data;
use crate::enqueue::Overrides;
use crate::error::NO_JSON;
use crate::failure::{Carried, Then};
use crate::input::Input;
use crate::redact::{self, Redacted};
use crate::{Context, Error, JobError, JobOptions, OnError, Perform, Result, limits};

/// What an attempt that succeeded returned, as JSON.
#[derive(Clone)]
pub struct Output(pub(crate) Arc<RawValue>);

impl fmt::Debug for Output {
    /// Without the data: a log line is no place for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = Redacted(self.0.get().len());
        f.debug_tuple("Output").field(&size).finish()
    }
}

type Handler = fn(Context) -> BoxFuture<'static, Result<Output, BoxDynError>>;

/// One job type.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) options: JobOptions,
    version: i32,
    handler: Handler,
}

/// The job types a worker knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registry(HashMap<&'static str, (Known, TypeId)>);

impl Registry {
    pub(crate) fn add<J: Perform>(&mut self) -> Result<()> {
        limits::name("job type", J::NAME)?;
        let known = Known {
            options: J::OPTIONS,
            version: i32::try_from(J::VERSION).unwrap_or(i32::MAX),
            handler: handle::<J>,
        };
        match self.0.insert(J::NAME, (known, TypeId::of::<J>())) {
            Some((_, other)) if other != TypeId::of::<J>() => Err(Error::DuplicateName(J::NAME)),
            _ => Ok(()),
        }
    }

    pub(crate) fn get(&self, kind: &str) -> Option<&Known> {
        self.0.get(kind).map(|(known, _)| known)
    }

    /// Returns what this worker knows of a claimed job's type: whether it can perform it, and the timeout and
    /// backoff, which the job's own options override. Options that cannot be decoded fail the job when it is
    /// performed, like its arguments.
    pub(crate) fn resolve(&self, job: &Claimed) -> Resolved {
        let overrides = Overrides::decode(job.options.as_deref());
        let known = self.get(&job.job_type);
        let declared = known.map(|known| &known.options);
        Resolved {
            // An older version would drop what it does not know of the data.
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
    pub(crate) fn knows(&self, kind: &str, version: u32) -> bool {
        let knows = |known: &Known| u32::try_from(known.version).unwrap_or(u32::MAX) >= version;
        self.get(kind).is_some_and(knows)
    }

    /// The declared versions of [`names`](Self::names), in their order.
    pub(crate) fn versions(&self) -> Vec<i32> {
        let version = |name: &String| self.get(name).map_or(1, |known| known.version);
        self.names().iter().map(version).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.0.keys().map(|name| (*name).to_owned()).collect();
        names.sort();
        names
    }
}

/// One job type, or a tuple of them: what [`Worker::register`](crate::Worker::register) takes.
#[diagnostic::on_unimplemented(
    message = "a worker cannot perform `{Self}`",
    label = "neither a job nor a tuple of jobs",
    note = "each of up to 16 types derives `Job` and implements `Perform`"
)]
pub trait Jobs {
    #[doc(hidden)]
    fn register(registry: &mut Registering<'_>) -> Result<()>;

    /// Returns whether a job type of this name is among them.
    #[doc(hidden)]
    fn contains(name: &str) -> bool;
}

/// The way into a worker's registry.
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

/// The innermost service of a worker: performs the job that an envelope holds.
#[derive(Debug, Clone)]
pub struct Performer {
    pub(crate) registry: Arc<Registry>,
    pub(crate) data: Arc<Data>,
}

impl Service<Task<Envelope>> for Performer {
    type Response = Output;
    type Error = BoxDynError;
    type Future = BoxFuture<'static, Result<Output, BoxDynError>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), BoxDynError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, task: Task<Envelope>) -> Self::Future {
        let envelope = task.args;
        match self.registry.get(envelope.job_type()) {
            Some(known) => (known.handler)(Context {
                envelope,
                data: Arc::clone(&self.data),
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

/// Performs one job of a type: decode, perform, decide about an error, encode.
fn handle<J: Perform>(cx: Context) -> BoxFuture<'static, Result<Output, BoxDynError>> {
    Box::pin(async move {
        let carried = |error| BoxDynError::from(Carried(error));
        if let Some(options) = cx.envelope.options() {
            decode::<Overrides>(J::NAME, "options", options).map_err(carried)?;
        }
        // The input first: where it is refused, the arguments were not loaded either.
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

/// Asks the job what its error means, unless the error says so itself.
fn decide<J: Perform>(error: JobError, cx: &Context) -> JobError {
    if error.then() != Then::Ask {
        return error;
    }
    let Ok(job) = decode::<J>(J::NAME, "arguments", cx.envelope.args()) else {
        return error;
    };
    let then = match job.on_error(&error, cx.attempt()) {
        OnError::Retry => Then::Retry,
        OnError::After(wait) => Then::RetryAfter(wait),
        OnError::Discard => Then::Discard,
    };
    error.with(then)
}

/// Names the path of the field that does not decode. No further attempt would decode it either.
fn decode<T: DeserializeOwned>(kind: &str, what: &str, json: &str) -> Result<T, JobError> {
    let mut source = serde_json::Deserializer::from_str(json);
    serde_path_to_error::deserialize(&mut source).map_err(|error| undecodable(kind, what, &error))
}

fn undecodable(
    kind: &str,
    what: &str,
    error: &serde_path_to_error::Error<serde_json::Error>,
) -> JobError {
    let path = redact::path(error);
    let message = format!(
        "the {what} of `{kind}` cannot be decoded at `{path}`: {}; let the type take what is \
         stored, then retry the job, or reopen its run",
        redact::reason(error.inner())
    );
    JobError::new("Undecodable", message).with(Then::Fail)
}

/// A job without input takes none, whatever there is: a callback may ignore what it is told.
fn input<T: DeserializeOwned + 'static>(kind: &str, input: &Input) -> Result<T, JobError> {
    let what = "input";
    match input {
        Input::Refused(class, message) => {
            Err(JobError::new(class.clone(), message).with(Then::Fail))
        }
        _ if TypeId::of::<T>() == TypeId::of::<()>() => decode(kind, what, "null"),
        Input::None => decode(kind, what, "null"),
        Input::Json(json) => decode(kind, what, json),
        Input::Value(value) => value
            .decode()
            .map_err(|error| undecodable(kind, what, &error)),
    }
}

fn encode<T: serde::Serialize>(kind: &'static str, output: &T) -> Result<Output, JobError> {
    let refused = |error: &dyn fmt::Display| JobError::new("BadOutput", error).with(Then::Fail);
    let raw = crate::encode::to_raw_value(output).map_err(|error| {
        refused(&format!(
            "the output of `{kind}` cannot be written as JSON: {error}; {NO_JSON}"
        ))
    })?;
    limits::data(kind, "output", raw.get()).map_err(|error| refused(&error))?;
    Ok(Output(raw.into()))
}
