//! The seams of the engine: what others do inside its transaction, and beside it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::PgConnection;

use super::ends::{Came, End};
use crate::backend::Claimed;

/// Called inside the transaction that ends attempts, with all of those that concern it.
///
/// Rows that must be changed by one transaction at a time are locked in [`lock`](Self::lock), by a
/// statement of its own, before anything is read: a lock and a read in one statement see the
/// siblings in an old snapshot.
pub trait Settle: std::fmt::Debug + Send + Sync {
    /// The row that this end needs; `None` where it is none of its business.
    fn row(&self, end: &End) -> Option<i64>;

    /// Whether it moves runs on: only then does the worker take jobs that are steps of one.
    fn takes_steps(&self) -> bool {
        false
    }

    /// Locks what the ends need, in the order of ids. Says for each end whether it may go on; one
    /// whose row somebody else holds is put off. With `wait`, waits for the row instead.
    fn lock<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        ends: &'a [&'a End],
        wait: bool,
    ) -> BoxFuture<'a, Result<Vec<bool>, sqlx::Error>>;

    /// Writes down what follows from the ends, starts what it can of the offer, and says who must
    /// hear of it.
    fn settle<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        ends: &'a [(&'a End, Came)],
        offer: &'a Offer,
    ) -> BoxFuture<'a, Result<Settled, sqlx::Error>>;
}

/// What a worker can start at once, without asking the queue.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Offer {
    /// The worker.
    pub worker: i64,
    /// Its queues that have free slots.
    pub lines: Vec<Offered>,
    /// The job types it knows and takes.
    pub kinds: Vec<String>,
}

/// Free slots of one queue, or of several by prefix.
#[derive(Debug)]
#[non_exhaustive]
pub struct Offered {
    /// The queue's name, or its beginning followed by `*`.
    pub pattern: String,
    /// How many.
    pub free: i32,
    /// The lowest priority that need not queue behind what waits there already.
    pub floor: i16,
}

/// What follows from ends, outside the database.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Settled {
    /// Queues that got work; told after the commit.
    pub queues: Vec<String>,
    /// Jobs that were given to this worker, within its offer; started after the commit.
    pub started: Vec<Claimed>,
    /// What else other processes must hear after the commit.
    pub news: Vec<News>,
    /// Jobs that are to be asked to stop, where they run here.
    pub stop: Vec<i64>,
}

impl Settled {
    /// Queues got work.
    pub fn of_queues(queues: Vec<String>) -> Self {
        Self {
            queues,
            ..Self::default()
        }
    }
}

/// A notification.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct News {
    /// The channel.
    pub channel: &'static str,
    /// What is said.
    pub text: String,
}

/// Called inside the transaction that claims jobs, with all of them: fills in what they are given.
pub trait LoadInput: std::fmt::Debug + Send + Sync {
    /// Sets the input of the jobs it knows about. Jobs for whose input there is no room now are given
    /// back (`pipeline.unclaim_v1`) and taken out of the list.
    fn load<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        claimed: &'a mut Vec<Claimed>,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>>;
}

/// Something a worker does from time to time, on a connection of the engine's own.
pub trait Chore: std::fmt::Debug + Send + Sync {
    /// How often.
    fn every(&self) -> Duration;

    /// On which channel it is called before its time, if on any.
    fn channel(&self) -> Option<&'static str> {
        None
    }

    /// Does it for this worker. An error is logged, and it is done again at its next time.
    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        worker: i64,
    ) -> BoxFuture<'a, Result<Settled, sqlx::Error>>;
}
