//! The limit on how long a client's call waits for a row that another transaction holds.

use std::time::Duration;

use sqlx::{PgConnection, PgPool};

use crate::savepoint::Savepoint;
use crate::{Error, Result};

/// The default time for which a client's call waits for a locked row.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// A change that may have to wait for a row lock.
#[derive(Debug)]
pub(crate) struct LimitedChange {
    /// The name of the changed thing in error messages: `job 7`.
    pub(crate) what: String,
    /// The participle of the change in error messages: `deleted`.
    pub(crate) asked: &'static str,
    pub(crate) limit: Duration,
}

impl LimitedChange {
    /// Makes the change in its own transaction.
    pub(crate) async fn make<T>(
        &self,
        pool: &PgPool,
        change: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let mut connection = pool.acquire().await?;
        let mut savepoint = Savepoint::transaction(&mut connection).await?;
        let outcome = match self.begin(savepoint.connection()).await {
            Ok(()) => change(savepoint.connection()).await,
            Err(error) => Err(error),
        };
        savepoint.finish(outcome).await
    }

    /// Limits the lock waits of the transaction that this connection is in.
    pub(crate) async fn begin(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let limit = format!("{}ms", self.limit.as_millis().max(1));
        sqlx::query!("select set_config('lock_timeout', $1, true)", limit)
            .fetch_one(connection)
            .await?;
        Ok(())
    }

    /// Returns the error of this change: [`Error::Busy`] if another transaction held the row for too long.
    pub(crate) fn error(self, error: sqlx::Error) -> Error {
        let code = error.as_database_error().and_then(|error| error.code());
        if code.as_deref() != Some("55P03") {
            return error.into();
        }
        Error::Busy {
            what: self.what,
            asked: self.asked,
            limit: self.limit,
        }
    }
}
