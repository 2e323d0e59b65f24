//! The extension points of a worker, on which the `pipeline` crate and batches are built.
//!
//! Applications do not need this module, and its names may change in any release. An extension adds one or more of
//! these to a [`Worker`](crate::Worker):
//!
//! | trait | added by | called | its statements run |
//! |---|---|---|---|
//! | [`EndHook`] | `Worker::end_hook` | when attempts that it is responsible for have ended | in the transaction that ends the attempts |
//! | [`ClaimHook`] | `Worker::claim_hook` | when jobs have been claimed, before they start | in the transaction that claims the jobs, or directly after its commit |
//! | [`MaintenanceTask`] | `Worker::maintenance` | at an interval, or when a channel is notified | on its own connection, without a transaction around them |
//!
//! # Owners
//!
//! An extension may own jobs. `is_owned` decides that by the id alone. An owned job has an [`Owner`]: the id of the
//! thing that the job is part of (a run of a pipeline), the name of the job in it (the key of a step), and a
//! generation. The extension's claim hook sets [`Claimed::owner`]; a job reads it with
//! [`Context::owner`](crate::Context::owner). The engine passes owners on and does not interpret them:
//!
//! - Only a worker with an end hook that [ends owned jobs](EndHook::ends_owned_jobs) claims owned jobs.
//! - The engine logs about an owned job in the [span](EndHook::span) of the end hook, so that log lines have the
//!   extension's own field names.
//! - A job may ask its owner to end early (`Context::end_owner`). The end hook reads the request from the end of a
//!   succeeded attempt: [`AttemptEnd::ends_owner`].
//!
//! # What an end hook may rely on
//!
//! - The transaction is READ COMMITTED. All ends, the hook's writes, hand-overs and the claim commit together, or
//!   none of them does.
//! - One call gets many ends, of many owners. A call never gets an end twice at the same time, but may get it again
//!   later if the answer to a commit was lost: the hook must write an end only if the job's row still has the
//!   attempt's token, and report it as [stale](Ended::stale) otherwise.
//! - The engine calls hooks in the order in which they were added, so that all workers lock rows in the same order.
//!   A hook locks its rows in the order of their ids and skips locked ones: it reports them as
//!   [held](Ended::held_rows), and the engine sends the ends of these rows again later. A hook never waits for a
//!   lock, because the ends of all other jobs of the worker would wait with it.
//! - An error rolls everything back. If the error is the fault of the data, the engine repeats the transaction with
//!   fewer ends until the failing end is alone, and that attempt fails.
//! - [`Effects`] take place after the commit: notifications are sent, started jobs begin, jobs are asked to stop.
//!
//! # Example
//!
//! An end hook that counts the ended attempts of one batch in a table of the application:
//!
//! ```
//! use futures_util::future::BoxFuture;
//! use jobs::extension::{AttemptEnd, EndHook, EndSettings, Ended, SlotOffer, end_jobs};
//! use sqlx::PgConnection;
//!
//! #[derive(Debug)]
//! struct CountAttempts {
//!     batch: i64,
//! }
//!
//! impl EndHook for CountAttempts {
//!     fn row(&self, end: &AttemptEnd) -> Option<i64> {
//!         end.batch().filter(|batch| *batch == self.batch)
//!     }
//!
//!     fn end<'a>(
//!         &'a self,
//!         connection: &'a mut PgConnection,
//!         ends: &'a [&'a AttemptEnd],
//!         _: &'a SlotOffer,
//!         settings: EndSettings,
//!     ) -> BoxFuture<'a, Result<Ended, sqlx::Error>> {
//!         Box::pin(async move {
//!             let ended = end_jobs(&mut *connection, ends, settings).await?;
//!             let written = ends.len() - ended.stale.len() - ended.held.len();
//!             sqlx::query("update attempt_counts set count = count + $1 where batch = $2")
//!                 .bind(i64::try_from(written).unwrap_or(i64::MAX))
//!                 .bind(self.batch)
//!                 .execute(connection)
//!                 .await?;
//!             Ok(ended)
//!         })
//!     }
//! }
//!
//! # fn example(pool: sqlx::PgPool) -> jobs::Worker {
//! jobs::Worker::new(pool).end_hook(std::sync::Arc::new(CountAttempts { batch: 7 }))
//! # }
//! ```

#[doc(hidden)]
pub use crate::attempt::is_owned;
pub use crate::attempt::{AttemptEnd, Claimed, Owner};
#[doc(hidden)]
pub use crate::engine::end_jobs;
pub use crate::engine::{ClaimHook, Effects, EndHook, Ended, MaintenanceTask};

#[doc(hidden)]
pub use crate::engine::{
    AfterCommit, EndRow, EndSettings, FailedJob, FailedRow, HandOver, Notification, OfferedSlots,
    RunningJob, SlotOffer, positions,
};
#[doc(hidden)]
pub use crate::enqueue::Target;
#[doc(hidden)]
pub use crate::input::{Input, InputValue};
#[doc(hidden)]
pub use crate::registry::PerformService;
#[doc(hidden)]
pub use crate::routing::Demand;
#[doc(hidden)]
pub use crate::savepoint::Savepoint;
#[doc(hidden)]
pub use apalis_core::layers::Layer;

#[doc(hidden)]
pub mod channels {
    //! The names of notification channels.
    pub use crate::channels::*;
}

#[doc(hidden)]
pub mod limits {
    //! The limits of stored data.
    pub use crate::limits::*;
}

#[doc(hidden)]
pub mod redact {
    //! Texts about data that show no data.
    pub use crate::redact::*;
}

#[doc(hidden)]
pub mod sqlstate {
    //! The classes of database errors.
    pub use crate::sqlstate::*;
}
