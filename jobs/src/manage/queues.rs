//! Pausing and resuming queues.

use sqlx::PgConnection;

use crate::{Client, Result, limits};

impl Client {
    /// Pauses a queue: workers claim none of its jobs until it is [resumed](Self::resume). Running jobs go on.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName) if no queue can have this name;
    /// [`Error::Busy`](crate::Error::Busy) if another transaction held the queue's row for thirty seconds;
    /// [`Error::Database`](crate::Error::Database) if the database cannot be reached.
    pub async fn pause(&self, queue: &str) -> Result<()> {
        limits::name("queue", queue)?;
        let change = self.change(format!("queue `{queue}`"), "paused");
        let pause = async |connection: &mut PgConnection| {
            sqlx::query!(
                "insert into pipeline.queues (name, paused_at) values ($1, pipeline.now())
                 on conflict (name) do update
                 set paused_at = coalesce(pipeline.queues.paused_at, excluded.paused_at)",
                queue
            )
            .execute(connection)
            .await
        };
        let outcome = change.make(self.pool(), pause).await;
        outcome.map_err(|error| change.error(error))?;
        Ok(())
    }

    /// Resumes a paused queue: workers claim its jobs again.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName) if no queue can have this name;
    /// [`Error::Busy`](crate::Error::Busy) if another transaction held the queue's row for thirty seconds;
    /// [`Error::Database`](crate::Error::Database) if the database cannot be reached.
    pub async fn resume(&self, queue: &str) -> Result<()> {
        limits::name("queue", queue)?;
        let change = self.change(format!("queue `{queue}`"), "resumed");
        let resume = async |connection: &mut PgConnection| {
            sqlx::query!(
                "with resumed as (update pipeline.queues set paused_at = null where name = $1)
                 select pipeline.notify_queues_v1(array[$1::text], pipeline.now())",
                queue
            )
            .execute(connection)
            .await
        };
        let outcome = change.make(self.pool(), resume).await;
        outcome.map_err(|error| change.error(error))?;
        Ok(())
    }
}
