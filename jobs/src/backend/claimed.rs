//! A job as it comes out of the queue.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// What the queue's row says of a job that has been claimed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Claimed {
    /// Which of the worker's queues it was claimed for; the first is 1.
    pub line: i32,
    /// The job.
    pub id: i64,
    /// The attempt.
    pub token: i64,
    /// The queue it came from.
    pub queue: String,
    /// The job type's name.
    pub kind: String,
    /// Which attempt this is; the first is 1.
    pub attempt: i16,
    /// How many there may be.
    pub attempts: i16,
    /// Higher came first.
    pub priority: i16,
    /// Not before.
    pub run_at: DateTime<Utc>,
    /// How long the claim holds.
    pub lease_ms: i32,
    /// The batch it belongs to.
    pub batch: Option<i64>,
    /// Its data, as JSON.
    pub args: String,
    /// What it is given besides, as JSON.
    pub input: Option<String>,
    /// What its enqueueing changed, as JSON.
    pub options: Option<String>,
}
