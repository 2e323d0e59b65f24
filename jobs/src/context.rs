//! The context of an attempt.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::attempt::{Envelope, Owner};
use crate::{BatchId, JobId};

/// The values that an application gives to its jobs, by type.
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

/// The error of [`Context::data`]: the worker holds no value of this type.
#[derive(Clone, Copy, thiserror::Error)]
#[error("the worker holds no `{0}`: give it one with `Worker::data`")]
pub struct MissingData(pub(crate) &'static str);

crate::debug_as_display!(MissingData);

/// The context of an attempt: what the job knows of itself, and what its worker gives it.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) envelope: Envelope,
    pub(crate) data: Arc<Data>,
}

impl Context {
    /// Returns the id of the job.
    pub fn id(&self) -> JobId {
        self.envelope.id()
    }

    /// Returns the token of the attempt, which is new at each claim. The end of the attempt is written only if the job's
    /// row still has this token.
    pub fn token(&self) -> i64 {
        self.envelope.token()
    }

    /// Returns the number of the attempt; the first is 1.
    pub fn attempt(&self) -> u16 {
        self.envelope.attempt()
    }

    /// Returns how many attempts the job may have.
    pub fn max_attempts(&self) -> u16 {
        self.envelope.max_attempts()
    }

    /// Returns the queue of the job.
    pub fn queue(&self) -> &str {
        self.envelope.queue()
    }

    /// Returns the name of the job's type.
    pub fn job_type(&self) -> &str {
        self.envelope.job_type()
    }

    /// Returns the batch that the job belongs to.
    pub fn batch(&self) -> Option<BatchId> {
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

    /// Returns how much time is left until the timeout; `None` if the job has no timeout.
    pub fn time_left(&self) -> Option<Duration> {
        self.envelope.time_left()
    }

    /// Returns when the attempt times out; `None` if the job has no timeout.
    pub fn deadline(&self) -> Option<std::time::Instant> {
        std::time::Instant::now().checked_add(self.time_left()?)
    }

    /// Waits until the job is asked to stop: its worker shuts down, its lease was lost, or the run of which it is a step
    /// is being cancelled. The job should then return soon. When the grace period of a shutdown is over, or the lease
    /// is lost, the job is dropped; a cancelled run waits for it.
    pub async fn cancelled(&self) {
        self.envelope.control().asked_to_stop().await;
    }

    /// Returns whether the job has been asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.envelope.control().is_asked_to_stop()
    }

    /// Returns the value of this type that was given to [`Worker::data`](crate::Worker::data).
    ///
    /// # Errors
    ///
    /// [`MissingData`] if the worker holds no value of this type.
    pub fn data<T: Send + Sync + 'static>(&self) -> Result<&T, MissingData> {
        self.data.get().ok_or(MissingData(type_name::<T>()))
    }
}
