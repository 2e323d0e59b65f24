//! Decides when the job of an expired lease may be taken over. The database's clock alone is not enough.
//!
//! A lease expires by the database's clock. If that clock jumps forward, every lease seems to have expired,
//! although every worker is alive. If the database was unreachable, workers could not renew their leases. In
//! both cases the holders get time to renew before other workers take over their jobs.

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};

/// The maximum difference between the elapsed time of the database's clock and of the local clock; a larger
/// difference is a jump.
const MAX_CLOCK_DRIFT: TimeDelta = TimeDelta::seconds(1);
/// How long the holders of leases have to reconnect and renew after an outage.
const RECONNECT_TIME: Duration = Duration::from_secs(3);
/// The minimum time without an answer from the database that counts as an outage.
const MIN_OUTAGE: Duration = Duration::from_secs(2);

/// The ticker's observations of the database's clock and of outages.
#[derive(Debug, Default)]
pub(super) struct Takeovers {
    /// The last time that the database told, and when it was asked and answered.
    last: Option<(DateTime<Utc>, Instant, Instant)>,
    /// The time after the last jump, and its width.
    jump: Option<(DateTime<Utc>, TimeDelta)>,
    /// When the current outage began: the first request without an answer.
    away_since: Option<Instant>,
    /// The moment before which no lease is taken over.
    held_until: Option<Instant>,
}

impl Takeovers {
    /// Notes the time that a tick returned, which was asked for at `sent` and answered at `heard`.
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
        let mut takeovers = Takeovers::default();
        assert!(!takeovers.allowed(at(0)), "no time is known yet");
        let now = Instant::now();
        takeovers.tick(at(10), now, now);
        assert!(takeovers.allowed(at(9)));
    }

    #[test]
    fn a_jump_of_the_clock_gives_every_lease_its_time_back() {
        let mut takeovers = Takeovers::default();
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
        let mut takeovers = Takeovers::default();
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
