//! When an apalis worker looks for tasks.
//!
//! By its source, apalis's own `IntervalStrategy` does not register the worker for the timer that it has just set anew. If a fetch
//! takes longer than the interval and finds nothing, nobody wakes the worker until its next heartbeat, 30 seconds
//! later. With its listener for notifications (`with_pubsub`), our trials did not come to an end within minutes. This
//! strategy differs from the interval in that alone: it always leaves with the worker registered.

use std::task::{Context, Poll};
use std::time::Duration;

use apalis_core::backend::ext::poll_strategy::{PollSnapshot, PollStrategy};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Looks at fixed intervals.
#[derive(Debug)]
pub(crate) struct Every {
    period: Duration,
    interval: Option<Interval>,
}

impl Every {
    pub(crate) fn new(period: Duration) -> Self {
        Self {
            period,
            interval: None,
        }
    }
}

impl Clone for Every {
    fn clone(&self) -> Self {
        Self::new(self.period)
    }
}

impl PollStrategy for Every {
    fn poll_drive(&mut self, cx: &mut Context<'_>, _: &PollSnapshot) -> Poll<Option<()>> {
        let interval = self.interval.get_or_insert_with(|| {
            let mut interval = interval(self.period);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        let mut is_due = false;
        while interval.poll_tick(cx).is_ready() {
            is_due = true;
        }
        match is_due {
            true => Poll::Ready(Some(())),
            false => Poll::Pending,
        }
    }
}
