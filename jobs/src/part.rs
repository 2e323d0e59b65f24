//! Several statements that are kept as a whole or not at all, on a connection of the caller.

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection, PgTransaction};

/// A part of the caller's transaction; or, where the connection is in none, a transaction of its own.
///
/// Dropped without [`keep`](Self::keep) it is undone, as sqlx undoes a transaction; one that the caller
/// began with a statement of his own is then left to him.
#[derive(Debug)]
pub struct Part<'c>(Kind<'c>);

#[derive(Debug)]
enum Kind<'c> {
    /// A transaction, or a savepoint in one that sqlx knows of.
    Counted(PgTransaction<'c>),
    /// A savepoint in a transaction that was begun with a statement, which sqlx does not count: it would
    /// take the savepoint for a transaction, and commit the caller's.
    ByHand(&'c mut PgConnection),
}

impl<'c> Part<'c> {
    /// Begins a transaction on a connection of a pool, where there is none.
    ///
    /// # Errors
    ///
    /// When the database refuses, or could not be reached.
    pub async fn transaction(connection: &'c mut PgConnection) -> Result<Self, sqlx::Error> {
        Ok(Self(Kind::Counted(connection.begin().await?)))
    }

    /// Begins a part of the caller's transaction, or a transaction where there is none.
    ///
    /// # Errors
    ///
    /// When the database refuses, or could not be reached.
    pub async fn begin(connection: &'c mut PgConnection) -> Result<Self, sqlx::Error> {
        if connection.is_in_transaction() || !is_in_block(connection).await? {
            return Self::transaction(connection).await;
        }
        execute(connection, "savepoint pipeline_part").await?;
        Ok(Self(Kind::ByHand(connection)))
    }

    /// The connection, for the statements.
    pub fn connection(&mut self) -> &mut PgConnection {
        match &mut self.0 {
            Kind::Counted(tx) => tx,
            Kind::ByHand(connection) => connection,
        }
    }

    /// Keeps all of it if the statements went well, else undoes it before the error is returned.
    ///
    /// # Errors
    ///
    /// The given error; else when what was done cannot be kept.
    pub async fn finish<T, E: From<sqlx::Error>>(self, outcome: Result<T, E>) -> Result<T, E> {
        match outcome {
            Ok(done) => {
                self.keep().await?;
                Ok(done)
            }
            Err(error) => {
                // On a connection that is lost there is nothing to undo.
                let _ = self.undo().await;
                Err(error)
            }
        }
    }

    /// Keeps all of it; for good when the caller's transaction commits.
    ///
    /// # Errors
    ///
    /// When the database refuses, or could not be reached.
    pub async fn keep(self) -> Result<(), sqlx::Error> {
        match self.0 {
            Kind::Counted(tx) => tx.commit().await,
            Kind::ByHand(connection) => {
                execute(connection, "release savepoint pipeline_part").await
            }
        }
    }

    /// Undoes all of it. The caller's transaction can go on.
    ///
    /// # Errors
    ///
    /// When the database refuses, or could not be reached.
    pub async fn undo(self) -> Result<(), sqlx::Error> {
        match self.0 {
            Kind::Counted(tx) => tx.rollback().await,
            Kind::ByHand(connection) => {
                execute(connection, "rollback to savepoint pipeline_part").await?;
                execute(connection, "release savepoint pipeline_part").await
            }
        }
    }
}

async fn execute(connection: &mut PgConnection, sql: &'static str) -> Result<(), sqlx::Error> {
    sqlx::query(sql).execute(connection).await?;
    Ok(())
}

/// Whether the connection is in a transaction that sqlx does not know of. Without one, each statement has a
/// transaction, and so a time, of its own.
async fn is_in_block(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let sql = "select transaction_timestamp()";
    let first: DateTime<Utc> = sqlx::query_scalar(sql).fetch_one(&mut *connection).await?;
    let second: DateTime<Utc> = sqlx::query_scalar(sql).fetch_one(connection).await?;
    Ok(first == second)
}
