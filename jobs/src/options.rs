//! How a job is to be run: declared beside its type, overridden for one enqueueing.

use std::time::Duration;

/// The options of a job type. `#[derive(Job)]` fills them in from its attributes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JobOptions {
    /// The line it waits in.
    pub queue: &'static str,
    /// Higher runs first.
    pub priority: i16,
    /// How often it is tried before it has failed for good.
    pub attempts: u16,
    /// How long it waits before it is tried again.
    pub backoff: Backoff,
    /// How long one attempt may take; `None` is for ever.
    pub timeout: Option<Duration>,
    /// For how long a claim holds without being renewed: so long does it take until another process
    /// takes over the job of one that died.
    pub lease: Duration,
}

impl JobOptions {
    /// What holds where nothing is declared: queue `default`, priority 0, 5 attempts, exponential
    /// backoff from 1 s to 10 min, no timeout, a lease of 30 s.
    pub const DEFAULT: Self = Self {
        queue: "default",
        priority: 0,
        attempts: 5,
        backoff: Backoff::DEFAULT,
        timeout: None,
        lease: Duration::from_secs(30),
    };

    /// With another queue.
    #[must_use]
    pub const fn queue(mut self, queue: &'static str) -> Self {
        self.queue = queue;
        self
    }

    /// With another priority.
    #[must_use]
    pub const fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// With another number of attempts.
    #[must_use]
    pub const fn attempts(mut self, attempts: u16) -> Self {
        self.attempts = attempts;
        self
    }

    /// With another backoff.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// With a timeout.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// With another lease.
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

/// How the wait before the next attempt grows.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Backoff {
    /// The shape of the growth.
    pub growth: Growth,
    /// The wait after the first failure.
    #[serde(rename = "base_ms", with = "millis")]
    pub base: Duration,
    /// The longest wait.
    #[serde(rename = "max_ms", with = "millis")]
    pub max: Duration,
    /// How much of a wait is left to chance, from 0 to 1: with 0.2, a wait of 10 s is one between
    /// 8 s and 10 s. It keeps jobs that failed together from coming back together.
    pub jitter: f32,
}

/// The shape of a [`Backoff`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Growth {
    /// The same wait each time.
    Fixed,
    /// Once, twice, three times the base.
    Linear,
    /// Once, twice, four times, eight times the base.
    Exponential,
}

impl Backoff {
    /// Exponential from 1 s to 10 min, with a fifth left to chance.
    pub const DEFAULT: Self =
        Self::exponential(Duration::from_secs(1), Duration::from_secs(600)).jitter(0.2);

    /// The same wait each time.
    pub const fn fixed(wait: Duration) -> Self {
        Self::new(Growth::Fixed, wait, wait)
    }

    /// A wait that grows by `base` each time.
    pub const fn linear(base: Duration, max: Duration) -> Self {
        Self::new(Growth::Linear, base, max)
    }

    /// A wait that doubles each time.
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

    /// With this share of each wait left to chance, from 0 to 1.
    #[must_use]
    pub const fn jitter(mut self, share: f32) -> Self {
        self.jitter = share;
        self
    }

    /// The wait after attempt number `attempt` (the first is 1) has failed. `chance` is a random
    /// number from 0 to 1.
    pub fn wait(&self, attempt: u16, chance: f32) -> Duration {
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
        let share = f64::from(self.jitter.clamp(0.0, 1.0) * chance.clamp(0.0, 1.0));
        let off = Duration::try_from_secs_f64(whole.as_secs_f64() * share).unwrap_or(whole);
        whole.saturating_sub(off)
    }
}

/// Durations as whole milliseconds: that is how the database counts them.
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
    fn jitter_shortens_a_wait_by_at_most_its_share() {
        let backoff = Backoff::fixed(s(10)).jitter(0.2);
        assert_eq!(backoff.wait(1, 0.0), s(10));
        assert_eq!(backoff.wait(1, 1.0).as_secs_f32().round(), 8.0);
        assert_eq!(Backoff::fixed(s(10)).jitter(1.0).wait(1, 1.0), s(0));
    }
}
