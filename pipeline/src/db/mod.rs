//! The database vocabulary that the client and the coordinator share.

pub(crate) mod ended_run;
pub(crate) mod graphs;
pub(crate) mod ids;
pub(crate) mod notifications;
pub(crate) mod requests;
pub(crate) mod shape;

use jobs::extension::sqlstate::ErrorClass;

/// Returns whether the error is a conflict with another transaction, so that the statement may be retried: a
/// chained run is held (PB001, see `settle_chains_v1`), a lock is held, or a serialization failed.
pub(crate) fn is_conflict(error: &sqlx::Error) -> bool {
    ErrorClass::of(error) == ErrorClass::Conflict
}

/// Returns whether the error is transient: the connection broke, or another transaction conflicted.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    is_disconnect(error) || is_conflict(error)
}

/// Returns whether the connection broke. The next connection may lead to another server.
pub(crate) fn is_disconnect(error: &sqlx::Error) -> bool {
    ErrorClass::is_disconnect(error)
}
