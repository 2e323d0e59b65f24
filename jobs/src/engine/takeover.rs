//! Decides when the job of an expired lease may be taken over.
//!
//! A lease expires by the database's clock. If that clock jumps forward, every lease seems to have expired,
//! although every worker is alive. If the database was unreachable or did not answer, workers could not renew their
//! leases. While another transaction holds the row of a job, nobody can renew its lease: a session in psql, or a
//! worker that stands still in a transaction that claims. (Such a claim also holds rows that it did not get: when
//! another worker claims a row after the claim has read it and before it locks it, Postgres locks the new version,
//! finds that it is no longer ready, and keeps the lock until the transaction ends.) In all these cases the holders
//! get time to renew before other workers take over their jobs.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};

/// The maximum difference between the elapsed time of the database's clock and of the local clock; a larger
/// difference is a jump.
const MAX_CLOCK_DRIFT: TimeDelta = TimeDelta::seconds(1);
/// The time that the holders of leases have to reconnect and renew after an outage.
const RECONNECT_TIME: Duration = Duration::from_secs(3);
/// The minimum time without an answer from the database that counts as an outage.
const MIN_OUTAGE: Duration = Duration::from_secs(2);

/// The time for which ticks must have found a lease expired, and the row of its job free, until the job is taken over. A
/// live worker checks its leases every tenth of a second.
pub(super) const MIN_EXPIRED: Duration = Duration::from_millis(500);

/// The ticker's observations of the database's clock, of outages, and of expired leases.
#[derive(Debug)]
pub(super) struct Takeovers {
    min_expired: Duration,
    /// By token, the time of the first of the consecutive ticks that found the lease expired and the row free.
    expired: HashMap<i64, Instant>,
    /// The last reading of the database's clock, with the local times of the request and the answer.
    last: Option<(DateTime<Utc>, Instant, Instant)>,
    /// The database's time directly after the last jump, and the width of the jump.
    jump: Option<(DateTime<Utc>, TimeDelta)>,
    /// The time of the first request without an answer in the current outage.
    away_since: Option<Instant>,
    /// The moment before which no lease is taken over.
    held_until: Option<Instant>,
}

impl Takeovers {
    /// Creates observations that treat a lease as expired after this time.
    pub(super) fn new(min_expired: Duration) -> Self {
        Self {
            min_expired,
            expired: HashMap::new(),
            last: None,
            jump: None,
            away_since: None,
            held_until: None,
        }
    }

    /// Notes the tokens whose leases a tick, answered at `heard`, found expired while their rows were free.
    pub(super) fn found_expired(&mut self, tokens: &[i64], heard: Instant) {
        let mut before = std::mem::take(&mut self.expired);
        let since = |token: &i64| (*token, before.remove(token).unwrap_or(heard));
        self.expired = tokens.iter().map(since).collect();
    }

    /// Returns whether the lease of this token has been expired, and its row free, for long enough at `now`.
    pub(super) fn is_long_expired(&self, token: i64, now: Instant) -> bool {
        let since = self.expired.get(&token);
        since.is_some_and(|since| now.saturating_duration_since(*since) >= self.min_expired)
    }

    /// Records the database's time that a tick returned. The tick was sent at `sent`, and its answer arrived at
    /// `heard`.
    pub(super) fn tick(&mut self, now: DateTime<Utc>, sent: Instant, heard: Instant) {
        if let Some((before, asked, _)) = self.last {
            // The most that can have passed between the two readings of the database's clock.
            let passed = heard.saturating_duration_since(asked);
            let expected = before + TimeDelta::from_std(passed).unwrap_or_default();
            if now - expected > MAX_CLOCK_DRIFT {
                let width = now - expected;
                tracing::warn!(
                    jump_ms = width.num_milliseconds(),
                    "database clock jumped forward; extending leases by the jump"
                );
                self.jump = Some((now, width));
            }
        }
        if let Some(since) = self.away_since.take()
            && heard.saturating_duration_since(since) > MIN_OUTAGE
        {
            self.held_until = Some(heard + RECONNECT_TIME);
        }
        self.last = Some((now, sent, heard));
    }

    /// Notes that the database did not answer.
    pub(super) fn no_answer(&mut self, at: Instant) {
        self.away_since.get_or_insert(at);
    }

    /// Returns whether a lease that lasted until `lease_until` may be taken over now.
    pub(super) fn allowed(&self, lease_until: DateTime<Utc>) -> bool {
        let Some((now, _, heard)) = self.last else {
            return false;
        };
        if self.held_until.is_some_and(|until| heard < until) {
            return false;
        }
        // A lease that ends before the time after the jump was granted before the jump. The jump shortened
        // that lease by its width.
        match self.jump {
            Some((landed, width)) if lease_until < landed => lease_until + width < now,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + seconds, 0).unwrap_or_default()
    }

    #[test]
    fn a_lease_that_ran_out_is_taken_over() {
        let mut takeovers = Takeovers::new(MIN_EXPIRED);
        assert!(!takeovers.allowed(at(0)), "no time is known yet");
        let now = Instant::now();
        takeovers.tick(at(10), now, now);
        assert!(takeovers.allowed(at(9)));
    }

    #[test]
    fn an_expired_lease_is_taken_over_when_its_row_was_free_for_a_while() {
        let mut takeovers = Takeovers::new(MIN_EXPIRED);
        let start = Instant::now();
        let later = |part: u32| start + MIN_EXPIRED * part / 2;
        takeovers.found_expired(&[1, 2], start);
        assert!(
            !takeovers.is_long_expired(1, later(1)),
            "its worker may renew"
        );
        // Somebody holds the row of the second, and lets it go.
        takeovers.found_expired(&[1], later(1));
        takeovers.found_expired(&[1, 2], later(2));
        assert!(takeovers.is_long_expired(1, later(2)));
        assert!(!takeovers.is_long_expired(2, later(2)));
        takeovers.found_expired(&[2], later(4));
        assert!(takeovers.is_long_expired(2, later(4)));
        assert!(!takeovers.is_long_expired(1, later(4)), "it was renewed");
    }

    #[test]
    fn a_jump_of_the_clock_gives_every_lease_its_time_back() {
        let mut takeovers = Takeovers::new(MIN_EXPIRED);
        let start = Instant::now();
        takeovers.tick(at(0), start, start);
        let then = start + Duration::from_secs(1);
        takeovers.tick(at(3_601), then, then);
        // It was to last for 29 more seconds, and the jump was 3,600 seconds wide.
        assert!(!takeovers.allowed(at(30)));
        let then = start + Duration::from_secs(29);
        takeovers.tick(at(3_629), then, then);
        assert!(!takeovers.allowed(at(30)));
        let then = start + Duration::from_secs(31);
        takeovers.tick(at(3_631), then, then);
        assert!(takeovers.allowed(at(30)), "nobody renewed it since");
        assert!(takeovers.allowed(at(3_630)), "granted after the jump");
    }

    #[test]
    fn after_an_outage_the_holders_have_time_to_renew() {
        let mut takeovers = Takeovers::new(MIN_EXPIRED);
        let start = Instant::now();
        takeovers.tick(at(0), start, start);
        takeovers.no_answer(start + Duration::from_secs(1));
        takeovers.no_answer(start + Duration::from_secs(59));
        let then = start + Duration::from_secs(60);
        takeovers.tick(at(60), then, then);
        assert!(!takeovers.allowed(at(30)));
        let then = start + Duration::from_secs(61);
        takeovers.tick(at(61), then, then);
        assert!(!takeovers.allowed(at(30)));
        let then = start + Duration::from_secs(63);
        takeovers.tick(at(63), then, then);
        assert!(takeovers.allowed(at(30)));
    }
}
