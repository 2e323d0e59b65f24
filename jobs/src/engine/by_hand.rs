//! Turns taken by hand, for tests that say who ends what, and when. Nothing in production.
//!
//! It is the engine's own turn: the same transaction, the same seams, on the engine's own connections.
//! Only its loop, its slots and what happens after the commit are the test's.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::ends::{End, Verb, storable};
use super::lines::Reserved;
use super::link::{self, Link};
use super::marks::Looked;
use super::transaction::{Refused, attempt};
use super::turn;
use super::{Shared, tick};
use crate::backend::Claimed;
use crate::{Error, Result};

/// A worker that does nothing by itself.
#[derive(Debug)]
pub struct ByHand {
    shared: Arc<Shared>,
    link: Link,
}

/// How an attempt ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// With this, as JSON.
    Success(String),
    /// With this, as JSON, after `cx.halt()`.
    Halt(String),
    /// For good, with this class and message.
    Fail(String, String),
    /// For good, because no attempt would help.
    Discard(String, String),
    /// It is tried again at once.
    Retry,
    /// It stopped because it was asked to.
    Stop,
}

/// The slots that a turn may fill.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slots {
    /// For each of the worker's queues.
    pub free: u32,
    /// Whether the queues are asked too; else only what the ends set free starts here.
    pub claim: bool,
}

/// What a committed turn came to.
#[derive(Debug, Default)]
pub struct Turn {
    /// Ends that were written.
    pub ended: Vec<End>,
    /// Ends that changed nothing.
    pub stale: Vec<End>,
    /// Ends that another transaction keeps from being written: to be sent again.
    pub held: Vec<End>,
    /// What was handed over and what was claimed.
    pub claimed: Vec<Claimed>,
}

impl ByHand {
    pub(crate) async fn new(shared: Arc<Shared>) -> Result<Self> {
        let pool = link::own_pool(&shared.settings.pool.connect_options());
        let mut link = Link::new(pool);
        link.try_get().await?;
        if !tick::register(&shared, &mut link).await {
            return Err(Error::Worker("the worker was stopped before it ran"));
        }
        Ok(Self { shared, link })
    }

    /// The end of an attempt. Sent twice, it is a redelivery.
    pub fn end(job: &Claimed, outcome: &Outcome) -> End {
        let raw = |json: &String| RawValue::from_string(json.clone()).ok().map(Arc::from);
        let (verb, error, output) = match outcome {
            Outcome::Success(json) | Outcome::Halt(json) => (Verb::Succeed, None, raw(json)),
            Outcome::Fail(class, message) => (Verb::Fail, Some(storable(class, message)), None),
            Outcome::Discard(class, message) => {
                (Verb::Discard, Some(storable(class, message)), None)
            }
            Outcome::Retry => (Verb::Retry, Some(storable("Retry", "once more")), None),
            Outcome::Stop => (Verb::HandBack, None, None),
        };
        End {
            id: job.id,
            token: job.token,
            attempt: job.attempt,
            batch: job.batch,
            queue: Some(Arc::from(job.queue.as_str())),
            verb,
            wait: Duration::ZERO,
            error,
            output,
            ran: Some(Duration::from_millis(1)),
            halts: matches!(outcome, Outcome::Halt(_)),
            held_since: None,
            sent_before: false,
        }
    }

    /// Due jobs become ready; the ends of attempts whose leases ran out are returned.
    ///
    /// # Errors
    ///
    /// What the database said.
    pub async fn tick(&mut self) -> Result<Vec<End>> {
        let connection = self.link.try_get().await?;
        let mut looked = Looked::default();
        tick::sweep(&self.shared, &mut *connection, &mut looked).await?;
        tick::tick(&self.shared, connection, &mut looked).await?;
        self.shared.lost.lock().clear();
        let lost = std::mem::take(&mut *self.shared.ends.lock());
        self.shared.committed(lost.len());
        Ok(lost)
    }

    /// One turn: one transaction that ends these attempts and fills these slots.
    ///
    /// # Errors
    ///
    /// What the database said; then nothing was written.
    pub async fn turn(&mut self, ends: Vec<End>, slots: Slots, wait: bool) -> Result<Turn> {
        let mut reserved = self.reserve(slots);
        let (ends, done) = attempt(&self.shared, &mut self.link, ends, &reserved, wait, None)
            .await
            .map_err(|refused| match refused {
                Refused::Error(error) => Error::from(error),
                Refused::Unknown(..) => Error::Worker("the answer to a commit was lost"),
            })?;
        turn::note_asked(&self.shared, &done, &mut reserved);
        let (mut ended, mut stale) = (Vec::new(), Vec::new());
        for (at, end) in ends.into_iter().enumerate() {
            if done.stale.contains(&at) {
                stale.push(end);
            } else {
                ended.push(end);
            }
        }
        Ok(Turn {
            ended,
            stale,
            held: done.held,
            claimed: done.claimed,
        })
    }

    fn reserve(&self, slots: Slots) -> Vec<Reserved> {
        if slots.free == 0 {
            return Vec::new();
        }
        let lines = self.shared.lines.iter().enumerate();
        lines
            .filter_map(|(line, it)| {
                let taken = it.reserve(slots.free, true)?;
                Some(Reserved {
                    line,
                    asked: 0,
                    permits: taken.permits,
                    claims: slots.claim,
                })
            })
            .collect()
    }
}
