//! What a job can know and ask while it is performed.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::attempt::{Envelope, Owner};

/// The application's own state, by type.
#[derive(Debug, Default)]
pub(crate) struct Data(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Data {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: Arc<T>) {
        self.0.insert(TypeId::of::<T>(), value);
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

/// The job asked for state that its worker was not given.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the worker holds no `{0}`: give it one with `Worker::data`")]
pub struct MissingData(pub(crate) &'static str);

/// What a job can know and ask while it is performed.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) envelope: Envelope,
    pub(crate) data: Arc<Data>,
}

impl Context {
    /// The job's id.
    pub fn id(&self) -> i64 {
        self.envelope.id()
    }

    /// The attempt's token: new at each claim. An end is written only where the row still bears it.
    pub fn token(&self) -> i64 {
        self.envelope.token()
    }

    /// Which attempt this is; the first is 1.
    pub fn attempt(&self) -> u16 {
        self.envelope.attempt()
    }

    /// How many there may be.
    pub fn attempts(&self) -> u16 {
        self.envelope.max_attempts()
    }

    /// The queue it came from.
    pub fn queue(&self) -> &str {
        self.envelope.queue()
    }

    /// The name of the job's type.
    pub fn kind(&self) -> &str {
        self.envelope.job_type()
    }

    /// The batch it belongs to.
    pub fn batch(&self) -> Option<i64> {
        self.envelope.batch()
    }

    /// Returns the owner of the job, if an [extension](crate::extension) owns it.
    pub fn owner(&self) -> Option<&Owner> {
        self.envelope.owner()
    }

    /// Asks the owner of the job to end early, once this attempt has succeeded. The request belongs to the
    /// attempt: if the attempt fails, the request is dropped. For a job without an owner, it has no effect.
    #[doc(hidden)]
    pub fn end_owner(&self) {
        self.envelope.end_owner();
    }

    /// How long is left until the timeout; `None` where there is none.
    pub fn time_left(&self) -> Option<Duration> {
        self.envelope.time_left()
    }

    /// When the attempt will have timed out; `None` where there is no timeout.
    pub fn deadline(&self) -> Option<std::time::Instant> {
        std::time::Instant::now().checked_add(self.time_left()?)
    }

    /// Ends when the job is asked to stop: its worker shuts down, or has lost its lease, or the run of
    /// which it is a step is being cancelled. A job that returns then has used its grace period well;
    /// one that goes on is dropped at its end, except in a cancelled run, where it is waited for.
    pub async fn cancelled(&self) {
        self.envelope.control().asked_to_stop().await;
    }

    /// Whether the job has been asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.envelope.control().is_asked_to_stop()
    }

    /// The application's own state, as it was given to [`Worker::data`](crate::Worker::data).
    ///
    /// # Errors
    ///
    /// [`MissingData`], which says what is missing and where to give it.
    pub fn data<T: Send + Sync + 'static>(&self) -> Result<&T, MissingData> {
        self.data.get().ok_or(MissingData(type_name::<T>()))
    }
}
