//! How attempts end.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::failure::Then;
use crate::hidden::Hidden;
use crate::{Backoff, JobError, limits};

/// What an attempt came to, as `pipeline.end_v1` knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i16)]
pub(crate) enum Verb {
    Succeed = 0,
    Retry = 1,
    Fail = 2,
    Discard = 3,
    Snooze = 4,
    HandBack = 5,
    Unknown = 6,
    Lost = 7,
}

/// The end of one attempt, on its way to the database.
#[derive(Clone)]
pub struct End {
    pub(crate) id: i64,
    pub(crate) token: i64,
    pub(crate) attempt: i16,
    pub(crate) batch: Option<i64>,
    pub(crate) queue: Option<Arc<str>>,
    pub(crate) verb: Verb,
    pub(crate) wait: Duration,
    pub(crate) error: Option<(String, String)>,
    pub(crate) output: Option<Arc<RawValue>>,
    /// How long the attempt took, where we know.
    pub(crate) ran: Option<Duration>,
    /// It called `cx.halt()`.
    pub(crate) halts: bool,
    /// Since when it has waited for a row that somebody else holds.
    pub(crate) held_since: Option<Instant>,
    /// It has been sent before, and the answer was lost.
    pub(crate) sent_before: bool,
}

/// What an end meant for its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Came {
    /// It is done.
    Succeeded,
    /// It has failed for good.
    Failed,
    /// It waits for another attempt.
    Back,
}

impl End {
    /// The job.
    pub fn job(&self) -> i64 {
        self.id
    }

    /// The attempt's token.
    pub fn token(&self) -> i64 {
        self.token
    }

    /// Which attempt it was; the first is 1.
    pub fn attempt(&self) -> i16 {
        self.attempt
    }

    /// How long the attempt took, where that is known.
    pub fn ran(&self) -> Option<Duration> {
        self.ran
    }

    /// Whether it succeeded and called [`Context::halt`](crate::Context::halt).
    pub fn halts(&self) -> bool {
        self.halts
    }

    /// Whether its job is a step of a run.
    pub fn is_step(&self) -> bool {
        crate::backend::is_step(self.id)
    }

    /// The job's batch.
    pub fn batch(&self) -> Option<i64> {
        self.batch
    }

    /// What it returned, as JSON.
    pub fn output(&self) -> Option<&RawValue> {
        self.output.as_deref()
    }

    /// Class and message of what went wrong.
    pub fn error(&self) -> Option<(&str, &str)> {
        let (class, message) = self.error.as_ref()?;
        Some((class, message))
    }

    /// Whether nobody but a lost lease has ended it.
    pub fn is_lost(&self) -> bool {
        self.verb == Verb::Lost
    }

    /// Whether it may be the last of its job. Only the database knows of some.
    pub fn may_be_last(&self) -> bool {
        !matches!(self.verb, Verb::Retry | Verb::Snooze | Verb::HandBack)
    }
}

impl fmt::Debug for End {
    /// Without what it returned: a log line is no place for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let output = self.output.as_ref().map(|json| Hidden(json.get().len()));
        f.debug_struct("End")
            .field("id", &self.id)
            .field("token", &self.token)
            .field("attempt", &self.attempt)
            .field("batch", &self.batch)
            .field("verb", &self.verb)
            .field("wait", &self.wait)
            .field("error", &self.error)
            .field("output", &output)
            .field("halts", &self.halts)
            .finish_non_exhaustive()
    }
}

/// What the rest of the process knows of an attempt when it ends it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chances {
    pub(crate) attempt: u16,
    pub(crate) attempts: u16,
    pub(crate) backoff: Backoff,
    /// A random number from 0 to 1.
    pub(crate) luck: f32,
    /// Whether its worker is shutting down and has asked it to stop.
    pub(crate) asked_to_stop: bool,
}

/// What an error comes to: the verb and the wait.
pub(crate) fn judge(error: &JobError, chances: Chances) -> (Verb, Duration) {
    let again = |wait: Duration| {
        if chances.attempt < chances.attempts {
            (Verb::Retry, wait)
        } else {
            (Verb::Fail, Duration::ZERO)
        }
    };
    match error.then() {
        Then::Discard => (Verb::Discard, Duration::ZERO),
        Then::Fail => (Verb::Fail, Duration::ZERO),
        Then::Snooze(wait) => (Verb::Snooze, wait),
        Then::Stopped if chances.asked_to_stop => (Verb::HandBack, Duration::ZERO),
        Then::RetryAfter(wait) => again(wait),
        Then::Ask | Then::Retry | Then::Stopped => {
            again(chances.backoff.wait(chances.attempt, chances.luck))
        }
    }
}

/// Class and message as they can be stored.
pub(crate) fn storable(class: &str, message: &str) -> (String, String) {
    (limits::message(class), limits::message(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chances(attempt: u16) -> Chances {
        Chances {
            attempt,
            attempts: 3,
            backoff: Backoff::fixed(Duration::from_secs(7)),
            luck: 0.0,
            asked_to_stop: false,
        }
    }

    #[test]
    fn an_error_is_retried_while_attempts_remain() {
        let error = || JobError::from("no");
        let seven = Duration::from_secs(7);
        assert_eq!(judge(&error(), chances(1)), (Verb::Retry, seven));
        assert_eq!(judge(&error(), chances(3)).0, Verb::Fail);
        let one = Duration::from_secs(1);
        assert_eq!(
            judge(&error().retry_after(one), chances(2)),
            (Verb::Retry, one)
        );
        assert_eq!(judge(&error().retry_after(one), chances(3)).0, Verb::Fail);
    }

    #[test]
    fn a_discard_and_a_snooze_ask_for_no_attempts() {
        let error = JobError::from("no").discard();
        assert_eq!(judge(&error, chances(1)).0, Verb::Discard);
        let wait = Duration::from_secs(9);
        assert_eq!(
            judge(&JobError::snooze(wait), chances(3)),
            (Verb::Snooze, wait)
        );
    }

    #[test]
    fn a_job_that_stops_when_asked_is_handed_back() {
        let asked = Chances {
            asked_to_stop: true,
            ..chances(3)
        };
        assert_eq!(judge(&JobError::stopped(), asked).0, Verb::HandBack);
        assert_eq!(judge(&JobError::stopped(), chances(3)).0, Verb::Fail);
    }
}
