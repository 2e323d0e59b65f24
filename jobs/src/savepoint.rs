//! Several statements on the caller's connection that take effect together or not at all.

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection, PgTransaction};

/// A savepoint in the caller's transaction, or a new transaction if the connection is in none.
///
/// A savepoint that is dropped without [`commit`](Self::commit) is rolled back, as sqlx rolls back a transaction. The
/// exception is a savepoint in a transaction that the caller began with a plain SQL statement: the caller has
/// to roll that transaction back.
#[derive(Debug)]
pub struct Savepoint<'c>(Kind<'c>);

#[derive(Debug)]
enum Kind<'c> {
    /// A transaction, or a savepoint in a transaction that sqlx began.
    Sqlx(PgTransaction<'c>),
    /// A savepoint in a transaction that the caller began with a plain SQL statement. sqlx does not count that
    /// transaction: sqlx would treat the savepoint as a transaction, and commit the caller's transaction.
    Plain(&'c mut PgConnection),
}

impl<'c> Savepoint<'c> {
    /// Begins a transaction on a connection that is in none, such as one of a pool.
    ///
    /// # Errors
    ///
    /// When the database refuses, or could not be reached.
    pub async fn transaction(connection: &'c mut PgConnection) -> Result<Self, sqlx::Error> {
        Ok(Self(Kind::Sqlx(connection.begin().await?)))
    }

    /// Begins a savepoint in the caller's transaction, or a transaction if the connection is in none.
    ///
    /// # Errors
    ///
    /// When the database refuses, or could not be reached.
    pub async fn begin(connection: &'c mut PgConnection) -> Result<Self, sqlx::Error> {
        if connection.is_in_transaction() || !is_in_block(connection).await? {
            return Self::transaction(connection).await;
        }
        execute(connection, "savepoint pipeline_savepoint").await?;
        Ok(Self(Kind::Plain(connection)))
    }

    /// Returns the connection on which the statements run.
    pub fn connection(&mut self) -> &mut PgConnection {
        match &mut self.0 {
            Kind::Sqlx(tx) => tx,
            Kind::Plain(connection) => connection,
        }
    }

    /// Commits if `outcome` is `Ok`; otherwise rolls back and returns the error.
    ///
    /// # Errors
    ///
    /// The given error, or the error of the commit.
    pub async fn finish<T, E: From<sqlx::Error>>(self, outcome: Result<T, E>) -> Result<T, E> {
        match outcome {
            Ok(done) => {
                self.commit().await?;
                Ok(done)
            }
            Err(error) => {
                // On a lost connection, the server has already rolled back.
                let _ = self.rollback().await;
                Err(error)
            }
        }
    }

    /// Keeps the changes. In a caller's transaction, the changes become permanent when that transaction commits.
    ///
    /// # Errors
    ///
    /// When the database refuses, or could not be reached.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        match self.0 {
            Kind::Sqlx(tx) => tx.commit().await,
            Kind::Plain(connection) => {
                execute(connection, "release savepoint pipeline_savepoint").await
            }
        }
    }

    /// Rolls the changes back. The caller's transaction can continue.
    ///
    /// # Errors
    ///
    /// When the database refuses, or could not be reached.
    pub async fn rollback(self) -> Result<(), sqlx::Error> {
        match self.0 {
            Kind::Sqlx(tx) => tx.rollback().await,
            Kind::Plain(connection) => {
                execute(connection, "rollback to savepoint pipeline_savepoint").await?;
                execute(connection, "release savepoint pipeline_savepoint").await
            }
        }
    }
}

async fn execute(connection: &mut PgConnection, sql: &'static str) -> Result<(), sqlx::Error> {
    sqlx::query(sql).execute(connection).await?;
    Ok(())
}

/// Returns whether the connection is in a transaction that sqlx did not begin. Outside a transaction, each
/// statement has its own transaction timestamp.
async fn is_in_block(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let sql = "select transaction_timestamp()";
    let first: DateTime<Utc> = sqlx::query_scalar(sql).fetch_one(&mut *connection).await?;
    let second: DateTime<Utc> = sqlx::query_scalar(sql).fetch_one(connection).await?;
    Ok(first == second)
}
