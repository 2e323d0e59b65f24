//! Which jobs have been performed in this process.
//!
//! Two programs include this file: the bench itself, and the program of the peers (`bench/peers`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::PgPool;

use super::Result;

/// How long all jobs may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The jobs that have been performed in this process.
pub(crate) static PERFORMED: Performed = Performed {
    count: AtomicU64::new(0),
    sum: AtomicU64::new(0),
};

/// How many jobs were performed, and the sum of their numbers.
pub(crate) struct Performed {
    count: AtomicU64,
    sum: AtomicU64,
}

impl Performed {
    pub(crate) fn add(&self, number: u64) {
        self.sum.fetch_add(number, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Each number from 0 to `jobs` was performed, and once, as far as count and sum can tell.
    pub(crate) fn check(&self, jobs: u64) -> Result<()> {
        let count = self.count.load(Ordering::Acquire);
        let sum = self.sum.load(Ordering::Relaxed);
        if count == jobs && sum == jobs * jobs.saturating_sub(1) / 2 {
            return Ok(());
        }
        Err(format!("{jobs} jobs were to be performed; {count} were, of sum {sum}").into())
    }

    /// Waits until so many have been performed, and then until the query says that all have ended. The query is
    /// given the number.
    pub(crate) async fn until_ended(
        &self,
        pool: &PgPool,
        jobs: u64,
        query: &'static str,
    ) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        let pause = |time| async move {
            if Instant::now() > deadline {
                return Err(format!("not all jobs have ended after {TIMEOUT:?}"));
            }
            tokio::time::sleep(time).await;
            Ok(())
        };
        while self.count.load(Ordering::Acquire) < jobs {
            pause(Duration::from_millis(1)).await?;
        }
        while !sqlx::query_scalar::<_, bool>(query)
            .bind(jobs.cast_signed())
            .fetch_one(pool)
            .await?
        {
            pause(Duration::from_millis(2)).await?;
        }
        Ok(())
    }
}
