//! The options of a job: declared with its type, and overridden when a job is enqueued.

use std::time::Duration;

use crate::{Error, Result};

/// The options of a job type; `#[derive(Job)]` sets them from its attributes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JobOptions {
    /// The queue of the job.
    pub queue: &'static str,
    /// The priority; jobs with a higher one are performed first.
    pub priority: i16,
    /// The maximum number of attempts.
    pub max_attempts: u16,
    /// The wait between two attempts.
    pub backoff: Backoff,
    /// How long one attempt may take; `None` means that there is no limit.
    pub timeout: Option<Duration>,
    /// How long a claim holds without being renewed: when a worker dies, another one takes its jobs over after this
    /// time.
    pub lease: Duration,
}

impl JobOptions {
    /// The default options: queue `default`, priority 0, 5 attempts, exponential
    /// backoff from 1 s to 10 min, no timeout, a lease of 30 s.
    pub const DEFAULT: Self = Self {
        queue: "default",
        priority: 0,
        max_attempts: 5,
        backoff: Backoff::DEFAULT,
        timeout: None,
        lease: Duration::from_secs(30),
    };

    /// Sets the queue.
    #[must_use]
    pub const fn queue(mut self, queue: &'static str) -> Self {
        self.queue = queue;
        self
    }

    /// Sets the priority.
    #[must_use]
    pub const fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the maximum number of attempts.
    #[must_use]
    pub const fn max_attempts(mut self, max_attempts: u16) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// Sets the backoff.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the timeout.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the lease.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }
}

impl Default for JobOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The wait between two attempts, and how it grows.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Backoff {
    /// How the wait grows.
    pub growth: Growth,
    /// The wait after the first failure.
    #[serde(rename = "base_ms", with = "millis")]
    pub base: Duration,
    /// The longest wait; not shorter than `base`.
    #[serde(rename = "max_ms", with = "millis")]
    pub max: Duration,
    /// The random share of each wait, from 0 to 1: with 0.2, a wait of 10 s becomes one between 8 s and 10 s. Jitter
    /// keeps jobs that failed together from being retried together.
    pub jitter: f32,
}

/// How the wait of a [`Backoff`] grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Growth {
    /// Every wait is the base.
    Fixed,
    /// The waits are once, twice, three times the base.
    Linear,
    /// The waits are once, twice, four times, eight times the base.
    Exponential,
}

impl Backoff {
    /// The default backoff: exponential from 1 s to 10 min, with a jitter of 0.2.
    pub const DEFAULT: Self =
        Self::exponential(Duration::from_secs(1), Duration::from_secs(600)).jitter(0.2);

    /// Creates a backoff that waits equally long each time.
    pub const fn fixed(wait: Duration) -> Self {
        Self::new(Growth::Fixed, wait, wait)
    }

    /// Creates a backoff whose wait begins with `base` and grows by `base` each time, up to `max`.
    pub const fn linear(base: Duration, max: Duration) -> Self {
        Self::new(Growth::Linear, base, max)
    }

    /// Creates a backoff whose wait begins with `base` and doubles each time, up to `max`.
    pub const fn exponential(base: Duration, max: Duration) -> Self {
        Self::new(Growth::Exponential, base, max)
    }

    const fn new(growth: Growth, base: Duration, max: Duration) -> Self {
        Self {
            growth,
            base,
            max,
            jitter: 0.0,
        }
    }

    /// Sets the random share of each wait, from 0 to 1.
    #[must_use]
    pub const fn jitter(mut self, share: f32) -> Self {
        self.jitter = share;
        self
    }

    /// Checks that the waits do not shrink and that the jitter is a share.
    pub(crate) fn check(&self, job_type: &'static str) -> Result<()> {
        if self.max < self.base {
            return Err(Error::BackoffInverted {
                job_type,
                base: self.base,
                max: self.max,
            });
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(Error::JitterOutOfRange {
                job_type,
                given: self.jitter,
            });
        }
        Ok(())
    }

    /// Returns the wait after the attempt with this number (the first is 1) has failed. `sample` is a random number
    /// from 0 to 1.
    pub fn wait(&self, attempt: u16, sample: f32) -> Duration {
        let attempt = u32::from(attempt.max(1));
        let factor = match self.growth {
            Growth::Fixed => 1,
            Growth::Linear => attempt,
            Growth::Exponential => 1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX),
        };
        let whole = self
            .base
            .saturating_mul(factor)
            .min(self.max.max(self.base));
        let share = f64::from(self.jitter.clamp(0.0, 1.0) * sample.clamp(0.0, 1.0));
        let off = Duration::try_from_secs_f64(whole.as_secs_f64() * share).unwrap_or(whole);
        whole.saturating_sub(off)
    }
}

/// Serializes durations as whole milliseconds, as the database stores them.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_backoff_grows_as_its_name_says_up_to_its_maximum() {
        let waits = |backoff: Backoff| [1, 2, 3, 4, 5].map(|n| backoff.wait(n, 0.0).as_secs());
        assert_eq!(waits(Backoff::fixed(s(3))), [3, 3, 3, 3, 3]);
        assert_eq!(waits(Backoff::linear(s(3), s(10))), [3, 6, 9, 10, 10]);
        assert_eq!(waits(Backoff::exponential(s(1), s(10))), [1, 2, 4, 8, 10]);
    }

    #[test]
    fn a_backoff_is_stored_in_milliseconds() -> serde_json::Result<()> {
        let backoff = Backoff::linear(Duration::from_millis(1500), s(60)).jitter(0.5);
        let json = serde_json::to_string(&backoff)?;
        assert_eq!(
            json,
            r#"{"growth":"linear","base_ms":1500,"max_ms":60000,"jitter":0.5}"#
        );
        assert_eq!(serde_json::from_str::<Backoff>(&json)?, backoff);
        Ok(())
    }

    #[test]
    fn no_attempt_is_too_high_to_wait_for() {
        let backoff = Backoff::exponential(s(1), s(60));
        assert_eq!(backoff.wait(u16::MAX, 0.5), s(60));
        assert_eq!(backoff.wait(0, 0.5), s(1));
        let long = Backoff::exponential(Duration::MAX, Duration::MAX).jitter(1.0);
        assert!(long.wait(7, 0.0) > s(1));
    }

    #[test]
    fn a_backoff_whose_longest_wait_is_shorter_than_its_first_is_refused() {
        let error = Backoff::exponential(s(60), s(1)).check("mail");
        let message = error.map_err(|error| error.to_string());
        let expected = "the backoff of `mail` begins with a wait of 60s, and its longest wait is 1s: give the shorter \
                        one first";
        assert_eq!(message, Err(expected.to_owned()));
        assert!(Backoff::linear(s(1), s(1)).check("mail").is_ok());
        assert!(Backoff::fixed(s(1)).jitter(f32::NAN).check("mail").is_err());
    }

    #[test]
    fn jitter_shortens_a_wait_by_at_most_its_share() {
        let backoff = Backoff::fixed(s(10)).jitter(0.2);
        assert_eq!(backoff.wait(1, 0.0), s(10));
        assert_eq!(backoff.wait(1, 1.0).as_secs_f32().round(), 8.0);
        assert_eq!(Backoff::fixed(s(10)).jitter(1.0).wait(1, 1.0), s(0));
    }
}
