//! The two seams of the engine: what others do inside its transaction.

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
    /// Whether this end is any of its business.
    fn concerns(&self, end: &End) -> bool;

    /// Locks what the ends need, in the order of ids. Says for each end whether it may go on; one
    /// whose row somebody else holds is put off. With `wait`, waits for the row instead.
    fn lock<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        ends: &'a [&'a End],
        wait: bool,
    ) -> BoxFuture<'a, Result<Vec<bool>, sqlx::Error>>;

    /// Writes down what follows from the ends, and says who must hear of it.
    fn settle<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        ends: &'a [(&'a End, Came)],
    ) -> BoxFuture<'a, Result<Settled, sqlx::Error>>;
}

/// What follows from ends, outside the database.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Settled {
    /// Queues that got work; told after the commit.
    pub queues: Vec<String>,
}

/// Called inside the transaction that claims jobs, with all of them: fills in what they are given.
pub trait LoadInput: std::fmt::Debug + Send + Sync {
    /// Sets the input of the jobs it knows about.
    fn load<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        claimed: &'a mut [Claimed],
    ) -> BoxFuture<'a, Result<(), sqlx::Error>>;
}
