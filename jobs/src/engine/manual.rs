//! An engine whose transactions a test runs one by one.
//!
//! The transaction and its hooks are those of production, on an engine connection. The test replaces the loop, the
//! choice of slots, and the work after the commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::Engine;
use super::connection::EngineConnection;
use super::marks::Looked;
use super::slots::Reserved;
use super::takeover::Takeovers;
use super::transaction::{self, Failure, Parts, Request};
use crate::attempt::{AttemptEnd, Claimed, EndKind};
use crate::enqueue::Overrides;
use crate::{Error, Result};

/// A worker that runs only the transactions that a test asks for.
#[derive(Debug)]
pub struct ManualEngine {
    engine: Arc<Engine>,
    connection: EngineConnection,
}

/// The outcome of an attempt, as a test chooses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The attempt succeeded with this output, as JSON.
    Success(String),
    /// The attempt succeeded with this output, as JSON, and asked its owner to end early.
    EndOwner(String),
    /// The job failed for good with this class and message.
    Fail(String, String),
    /// The job failed for good with this class and message, and asked for no further attempt.
    Discard(String, String),
    /// The attempt failed and is retried at once.
    Retry,
    /// The job stopped because it was asked to stop.
    Stop,
}

/// The slots that a transaction may fill.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slots {
    /// The number of free slots of each queue.
    pub free: u32,
    /// Whether the transaction claims jobs; otherwise it only starts jobs that the ends release.
    pub claim: bool,
}

/// The result of a committed transaction.
#[derive(Debug, Default)]
pub struct Turn {
    /// Ends that were written.
    pub ended: Vec<AttemptEnd>,
    /// Ends that changed nothing.
    pub stale: Vec<AttemptEnd>,
    /// Ends whose row another transaction holds: to be sent again.
    pub held: Vec<AttemptEnd>,
    /// Jobs that were handed over or claimed.
    pub claimed: Vec<Claimed>,
}

impl ManualEngine {
    pub(crate) async fn new(engine: Engine) -> Result<Self> {
        let mut connection = EngineConnection::new("manual", &engine.config.pool);
        connection.get().await?;
        if !engine.ticker().register(&mut connection).await {
            return Err(protocol("the worker was stopped before it ran"));
        }
        Ok(Self {
            engine: Arc::new(engine),
            connection,
        })
    }

    /// Returns the end of an attempt. A test that sends the end twice simulates a redelivery.
    pub fn end(job: &Claimed, outcome: &Outcome) -> AttemptEnd {
        let raw = |json: &String| RawValue::from_string(json.clone()).ok().map(Arc::from);
        let mut end = AttemptEnd::of_claim(job);
        end.ran = Some(Duration::from_millis(1));
        end.asynchronous_commit = Overrides::decode(job.options.as_deref()).asynchronous_commit;
        match outcome {
            Outcome::Success(json) => end.output = raw(json),
            Outcome::EndOwner(json) => {
                end.output = raw(json);
                end.ends_owner = true;
            }
            Outcome::Fail(class, message) => {
                end.kind = EndKind::Fail;
                end.set_error(class, message);
            }
            Outcome::Discard(class, message) => {
                end.kind = EndKind::Discard;
                end.set_error(class, message);
            }
            Outcome::Retry => {
                end.kind = EndKind::Retry;
                end.set_error("Retry", "once more");
            }
            Outcome::Stop => end.kind = EndKind::HandBack,
        }
        end
    }

    /// Makes due jobs ready. Returns the ends of attempts whose leases ran out.
    ///
    /// # Errors
    ///
    /// The database's error.
    pub async fn tick(&mut self) -> Result<Vec<AttemptEnd>> {
        let connection = self.connection.get().await?;
        let (ticker, mut looked) = (self.engine.ticker(), Looked::default());
        ticker.sweep(connection, &mut looked).await?;
        let mut takeovers = Takeovers::new(Duration::ZERO);
        ticker.tick(connection, &mut looked, &mut takeovers).await?;
        let lost = self
            .engine
            .ledger
            .take_group(Instant::now(), false, |_| Vec::new());
        self.engine.ledger.forget(&lost);
        Ok(lost)
    }

    /// Runs one transaction that ends these attempts and fills these slots. With `until_written`, ends whose
    /// rows are held are sent again until they are written.
    ///
    /// # Errors
    ///
    /// The database's error; then nothing of the last transaction was written.
    pub async fn turn(
        &mut self,
        ends: Vec<AttemptEnd>,
        slots: Slots,
        until_written: bool,
    ) -> Result<Turn> {
        let mut turn = self.transaction(ends, slots).await?;
        while until_written && !turn.held.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let again = self.transaction(turn.held, slots).await?;
            turn.held = again.held;
            turn.ended.extend(again.ended);
            turn.stale.extend(again.stale);
            turn.claimed.extend(again.claimed);
        }
        Ok(turn)
    }

    async fn transaction(&mut self, ends: Vec<AttemptEnd>, slots: Slots) -> Result<Turn> {
        let engine = &self.engine;
        let reserved = Self::reserve(engine, slots);
        let parts = Parts {
            config: &engine.config,
            hooks: &engine.hooks,
            slots: &engine.slots,
        };
        let request = Request {
            ends: &ends,
            reserved: &reserved,
            statement_limit: None,
            isolate_inputs: false,
        };
        let outcome = transaction::run(parts, &mut self.connection, request).await;
        let done = match outcome {
            Ok(done) => done,
            Err(Failure::Error(error)) => return Err(error.into()),
            Err(Failure::Unknown(_)) => return Err(protocol("the answer to the commit was lost")),
            // As the committer does: the ends of these rows are deferred, the others are sent again.
            Err(Failure::Held { hook, rows }) => {
                let is_held = |end: &AttemptEnd| {
                    let row = engine.hooks.end.get(hook).and_then(|hook| hook.row(end));
                    row.is_some_and(|row| rows.contains(&row))
                };
                let (held, free): (Vec<_>, Vec<_>) = ends.into_iter().partition(is_held);
                drop(reserved);
                let mut turn = Box::pin(self.transaction(free, slots)).await?;
                turn.held.extend(held);
                return Ok(turn);
            }
        };
        for asked in &done.asked {
            let queue = reserved[asked.at].queue;
            engine.slots.get(queue).claimed(asked.last);
        }
        let mut turn = Turn {
            claimed: done.claimed,
            ..Turn::default()
        };
        for (at, mut end) in ends.into_iter().enumerate() {
            if done.held.contains_key(&at) {
                turn.held.push(end);
            } else if done.stale.contains(&at) {
                turn.stale.push(end);
            } else {
                if let Some(job) = done.failed.get(&at) {
                    end.error = Some(job.reason.clone());
                }
                turn.ended.push(end);
            }
        }
        Ok(turn)
    }

    fn reserve(engine: &Engine, slots: Slots) -> Vec<Reserved> {
        if slots.free == 0 {
            return Vec::new();
        }
        let mut reserved = engine.slots.reserve(slots.free, true);
        for reserved in &mut reserved {
            reserved.claims = slots.claim;
        }
        reserved
    }
}

fn protocol(text: &str) -> Error {
    Error::Database(sqlx::Error::Protocol(text.to_owned()))
}
