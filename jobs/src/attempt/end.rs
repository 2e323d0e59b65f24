//! The end of an attempt, and the resulting state of its job.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::Claimed;
use crate::failure::Disposition;
use crate::redact::Redacted;
use crate::{Backoff, JobError, limits};

/// The way in which an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndKind {
    Succeed,
    Retry,
    Fail,
    Discard,
    Snooze,
    HandBack,
    /// This process does not know the job's type, or knows only an older version of it.
    Unknown,
    /// The lease expired, and this process takes the job over from the worker that held it.
    Lost,
}

/// The names of a job in log lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobLabel {
    pub(crate) job_type: String,
    /// The id of the job's owner.
    pub(crate) owner_id: Option<i64>,
    /// The name of the job inside its owner.
    pub(crate) owner_label: Option<String>,
}

/// The end of one attempt, on its way to the database.
#[derive(Clone)]
pub struct AttemptEnd {
    pub(crate) id: i64,
    pub(crate) token: i64,
    pub(crate) attempt: i16,
    pub(crate) batch: Option<i64>,
    pub(crate) queue: Option<Arc<str>>,
    pub(crate) label: Option<Arc<JobLabel>>,
    pub(crate) owner_generation: Option<u32>,
    pub(crate) kind: EndKind,
    pub(crate) wait: Duration,
    pub(crate) error: Option<(String, String)>,
    pub(crate) output: Option<Arc<RawValue>>,
    pub(crate) ran: Option<Duration>,
    /// Whether the attempt succeeded and asked its owner to end early.
    pub(crate) ends_owner: bool,
    /// Whether this end may be lost if the database server crashes: see [`EndSettings`].
    ///
    /// [`EndSettings`]: crate::extension::EndSettings
    pub(crate) asynchronous_commit: bool,
    /// Whether this end was sent before, in a transaction whose answer was lost.
    pub(crate) sent_before: bool,
    /// The number of consecutive transactions with this end that failed while the database answered.
    pub(crate) failures: u8,
    /// The time limit of the isolated transaction, if a group with this end has failed.
    pub(crate) isolation_limit: Option<Duration>,
}

impl AttemptEnd {
    /// Creates the end of an attempt that succeeded without output. Callers change the fields of other ends.
    pub(crate) fn new(id: i64, token: i64, attempt: i16, batch: Option<i64>) -> Self {
        Self {
            id,
            token,
            attempt,
            batch,
            queue: None,
            label: None,
            owner_generation: None,
            kind: EndKind::Succeed,
            wait: Duration::ZERO,
            error: None,
            output: None,
            ran: None,
            ends_owner: false,
            asynchronous_commit: false,
            sent_before: false,
            failures: 0,
            isolation_limit: None,
        }
    }

    /// Creates the end of the attempt that began with this claim.
    pub(crate) fn of_claim(job: &Claimed) -> Self {
        let mut end = Self::new(job.id, job.token, job.attempt, job.batch);
        end.queue = Some(Arc::from(job.queue.as_str()));
        end.label = Some(Arc::new(job.label()));
        end.owner_generation = job.owner.as_ref().map(|owner| owner.generation);
        end
    }

    /// Returns the job's id.
    pub fn job(&self) -> i64 {
        self.id
    }

    /// Returns the attempt's token.
    pub fn token(&self) -> i64 {
        self.token
    }

    /// Returns the attempt's number; the first is 1.
    pub fn attempt(&self) -> i16 {
        self.attempt
    }

    /// Returns how long the attempt ran, if known.
    pub fn ran(&self) -> Option<Duration> {
        self.ran
    }

    /// Returns whether the attempt succeeded and called [`Context::end_owner`](crate::Context::end_owner).
    pub fn ends_owner(&self) -> bool {
        self.ends_owner
    }

    /// Returns whether an extension owns the job.
    pub fn is_owned(&self) -> bool {
        super::is_owned(self.id)
    }

    /// Returns the job's batch.
    pub fn batch(&self) -> Option<i64> {
        self.batch
    }

    /// Returns the output of the attempt, as JSON.
    pub fn output(&self) -> Option<&RawValue> {
        self.output.as_deref()
    }

    /// Returns the class and the message of the attempt's error.
    pub fn error(&self) -> Option<(&str, &str)> {
        let (class, message) = self.error.as_ref()?;
        Some((class, message))
    }

    /// Returns whether the attempt succeeded.
    pub fn is_success(&self) -> bool {
        self.kind == EndKind::Succeed
    }

    /// Returns the generation of the job's owner when the attempt was claimed.
    pub fn owner_generation(&self) -> Option<u32> {
        self.owner_generation
    }

    /// Returns whether this may be the last attempt of the job. The database decides when the type is unknown or the
    /// lease was lost.
    pub fn may_be_last(&self) -> bool {
        !matches!(
            self.kind,
            EndKind::Retry | EndKind::Snooze | EndKind::HandBack
        )
    }

    /// Returns the number of bytes of user data in the end.
    pub(crate) fn bytes(&self) -> usize {
        let output = self.output.as_ref().map_or(0, |json| json.get().len());
        let error = self.error.as_ref();
        output + error.map_or(0, |(class, message)| class.len() + message.len())
    }

    /// Sets the class and the message of the error, truncated to the storage limits.
    pub(crate) fn set_error(&mut self, class: &str, message: &str) {
        self.error = Some(storable(class, message));
    }
}

impl fmt::Debug for AttemptEnd {
    /// Omits the output, which is user data and must not appear in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let output = self.output.as_ref().map(|json| Redacted(json.get().len()));
        f.debug_struct("AttemptEnd")
            .field("id", &self.id)
            .field("token", &self.token)
            .field("attempt", &self.attempt)
            .field("batch", &self.batch)
            .field("kind", &self.kind)
            .field("wait", &self.wait)
            .field("error", &self.error)
            .field("output", &output)
            .field("ends_owner", &self.ends_owner)
            .finish_non_exhaustive()
    }
}

/// The facts that decide whether and when a failed attempt is retried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryContext {
    pub(crate) attempt: u16,
    pub(crate) max_attempts: u16,
    pub(crate) backoff: Backoff,
    /// A random number from 0 to 1.
    pub(crate) jitter_sample: f32,
    /// Whether the job was asked to stop.
    pub(crate) asked_to_stop: bool,
}

/// Translates a job's error into the kind of end and the delay before the next attempt.
pub(crate) fn resolve_error(error: &JobError, retry: RetryContext) -> (EndKind, Duration) {
    let retry_after = |wait: Duration| {
        if retry.attempt < retry.max_attempts {
            (EndKind::Retry, wait)
        } else {
            (EndKind::Fail, Duration::ZERO)
        }
    };
    match error.disposition() {
        Disposition::Discard => (EndKind::Discard, Duration::ZERO),
        Disposition::Fail => (EndKind::Fail, Duration::ZERO),
        Disposition::Snooze(wait) => (EndKind::Snooze, wait),
        Disposition::Stopped if retry.asked_to_stop => (EndKind::HandBack, Duration::ZERO),
        Disposition::RetryAfter(wait) => retry_after(wait),
        Disposition::Ask | Disposition::Retry | Disposition::Stopped => {
            retry_after(retry.backoff.wait(retry.attempt, retry.jitter_sample))
        }
    }
}

/// Truncates the class and the message of an error to the storage limits.
pub(crate) fn storable(class: &str, message: &str) -> (String, String) {
    (limits::message(class), limits::message(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(attempt: u16) -> RetryContext {
        RetryContext {
            attempt,
            max_attempts: 3,
            backoff: Backoff::fixed(Duration::from_secs(7)),
            jitter_sample: 0.0,
            asked_to_stop: false,
        }
    }

    #[test]
    fn an_error_is_retried_while_attempts_remain() {
        let error = || JobError::from("no");
        let seven = Duration::from_secs(7);
        assert_eq!(resolve_error(&error(), retry(1)), (EndKind::Retry, seven));
        assert_eq!(resolve_error(&error(), retry(3)).0, EndKind::Fail);
        let one = Duration::from_secs(1);
        assert_eq!(
            resolve_error(&error().retry_after(one), retry(2)),
            (EndKind::Retry, one)
        );
        assert_eq!(
            resolve_error(&error().retry_after(one), retry(3)).0,
            EndKind::Fail
        );
    }

    #[test]
    fn a_discard_and_a_snooze_ask_for_no_attempts() {
        let error = JobError::from("no").discard();
        assert_eq!(resolve_error(&error, retry(1)).0, EndKind::Discard);
        let wait = Duration::from_secs(9);
        assert_eq!(
            resolve_error(&JobError::snooze(wait), retry(3)),
            (EndKind::Snooze, wait)
        );
    }

    #[test]
    fn a_job_that_stops_when_asked_is_handed_back() {
        let asked = RetryContext {
            asked_to_stop: true,
            ..retry(3)
        };
        assert_eq!(
            resolve_error(&JobError::stopped(), asked).0,
            EndKind::HandBack
        );
        assert_eq!(
            resolve_error(&JobError::stopped(), retry(3)).0,
            EndKind::Fail
        );
    }
}
