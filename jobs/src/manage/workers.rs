//! The list of workers.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::types::Json;

use crate::{Client, Result};

/// A worker, as it registered itself in the database.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The worker's id: a new one for each start.
    pub id: i64,
    /// The worker's name.
    pub name: String,
    /// The name of the machine that the worker runs on.
    pub host: String,
    /// The worker's process id.
    pub pid: i32,
    /// The queues that the worker serves.
    pub queues: Vec<WorkerQueue>,
    /// The job types that the worker performs.
    pub job_types: Vec<String>,
    /// When the worker started.
    pub started_at: DateTime<Utc>,
    /// When the worker wrote its last heartbeat.
    pub seen_at: DateTime<Utc>,
    /// When the worker shut down.
    pub stopped_at: Option<DateTime<Utc>>,
    /// How many jobs the worker performs.
    pub running: u64,
}

/// A queue that a worker serves, or a pattern of queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkerQueue {
    /// The name of the queue, or the pattern of names, as it was given to [`Worker::queue`](crate::Worker::queue).
    pub queue: String,
    /// How many jobs of the queue the worker performs at a time.
    pub slots: u32,
}

impl Client {
    /// Lists the workers that run, or ran in the last day, the newest first.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database) if the database cannot be reached.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>> {
        let rows = sqlx::query_file!("src/sql/workers.sql")
            .fetch_all(self.pool())
            .await?;
        let workers = rows.into_iter().map(|row| WorkerInfo {
            id: row.id,
            name: row.name,
            host: row.host,
            pid: row.pid,
            queues: row.queues.0,
            job_types: row.job_types,
            started_at: row.started_at,
            seen_at: row.seen_at,
            stopped_at: row.stopped_at,
            running: u64::try_from(row.running).unwrap_or(0),
        });
        Ok(workers.collect())
    }
}
