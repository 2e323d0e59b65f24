//! Which job types somebody knows: of what nobody does, we tell at once, and not when it has waited for
//! long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::PgPool;

/// So long is an answer believed.
const BELIEVED: Duration = Duration::from_secs(10);
/// So long is a warning not repeated.
const QUIET: Duration = Duration::from_secs(60);
/// A worker of the same process may be about to register.
const BREATH: Duration = Duration::from_secs(1);

/// What a client and its clones know of the job types that live workers know.
#[derive(Debug)]
pub(crate) struct Known {
    pool: PgPool,
    /// Until when a type is not asked about.
    until: Mutex<HashMap<String, Instant>>,
}

impl Known {
    pub(crate) fn new(pool: PgPool) -> Arc<Self> {
        Arc::new(Self {
            pool,
            until: Mutex::default(),
        })
    }

    /// Warns of those of these job types that no live worker knows. The database is asked about each
    /// once in a while, on a connection of the pool, and nobody waits for it.
    pub(crate) fn look_for<'k>(self: &Arc<Self>, kinds: impl IntoIterator<Item = &'k str>) {
        let now = Instant::now();
        let mut asked = Vec::new();
        let mut last = None;
        let mut until = self.until.lock();
        for kind in kinds {
            // Of many, most are like the one before.
            if last.replace(kind) != Some(kind) && until.get(kind).is_none_or(|until| *until <= now)
            {
                until.insert(kind.to_owned(), now + BELIEVED);
                asked.push(kind.to_owned());
            }
        }
        drop(until);
        if let (false, Ok(runtime)) = (asked.is_empty(), tokio::runtime::Handle::try_current()) {
            let known = Arc::clone(self);
            runtime.spawn(async move { known.ask(asked).await });
        }
    }

    async fn ask(&self, kinds: Vec<String>) {
        let unknown = async {
            let unknown = self.unknown(&kinds).await?;
            if unknown.is_empty() {
                return Ok(unknown);
            }
            tokio::time::sleep(BREATH).await;
            self.unknown(&unknown).await
        };
        match unknown.await {
            Ok(unknown) => {
                for kind in unknown {
                    tracing::warn!(
                        job.kind = kind,
                        "no live worker knows this job type: jobs of it wait until one does; \
                         register it with a worker"
                    );
                    self.until.lock().insert(kind, Instant::now() + QUIET);
                }
            }
            // Whoever enqueues hears of it elsewhere.
            Err(error) => tracing::debug!(%error, "who knows a job type could not be asked"),
        }
    }

    async fn unknown(&self, kinds: &[String]) -> Result<Vec<String>, sqlx::Error> {
        sqlx::query_file_scalar!("src/sql/unknown_kinds.sql", kinds)
            .fetch_all(&self.pool)
            .await
    }
}
