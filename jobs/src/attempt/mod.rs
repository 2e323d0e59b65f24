//! One attempt: a single execution of a job, from its claim until its end is committed.
//!
//! | file | what it holds |
//! |---|---|
//! | [`claimed`] | the job as it was read from its row |
//! | [`control`] | asks a running attempt to stop, or aborts it |
//! | [`end`] | the end of an attempt, and the resulting state of its job |
//! | [`ledger`] | every attempt of this process and the stage it is in |
//! | [`envelope`] | the claimed job on its way through apalis, and the guard that reports its end once |
//! | [`owner`] | the thing of an extension that a job belongs to |
//!
//! This module does not use the database. The engine claims jobs and commits ends, the backend performs jobs; both know
//! attempts only through this module.

mod claimed;
mod control;
mod end;
mod envelope;
mod ledger;
mod owner;

pub use claimed::Claimed;
pub(crate) use control::{Control, StopReason};
pub use end::AttemptEnd;
pub(crate) use end::{EndKind, JobLabel, RetryContext, resolve_error};
pub use envelope::Envelope;
pub(crate) use envelope::{Attempt, Resolved};
pub(crate) use ledger::{GroupLimits, HeldRow, IsolatedGroup, Ledger, LongHeld, TransactionGuard};
pub use owner::{Owner, is_owned};
