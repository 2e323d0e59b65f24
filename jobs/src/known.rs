//! Whether somebody would take a job: of what nobody does, we tell at once, and not when it has waited
//! for long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::PgPool;

/// So long is an answer believed.
const BELIEVED: Duration = Duration::from_secs(10);
/// So long is a warning not repeated.
const QUIET: Duration = Duration::from_secs(60);
/// Of a job type, so many queues are asked about in that time, and no more: there may be one for each
/// customer.
const QUEUES: usize = 32;
/// A worker of the same process may be about to register.
const BREATH: Duration = Duration::from_secs(1);

/// What somebody must take: a job of this type in this queue, which may be a step of a run.
#[expect(missing_docs, reason = "they say what they are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'k> {
    pub kind: &'k str,
    pub version: u32,
    pub queue: &'k str,
    pub is_step: bool,
}

/// What a client and its clones know of who takes what.
#[derive(Debug)]
pub(crate) struct Known {
    pool: PgPool,
    /// What was asked, by job type.
    asked: Mutex<HashMap<String, Vec<Asked>>>,
}

#[derive(Debug, Clone)]
struct Asked {
    kind: String,
    version: u32,
    queue: String,
    is_step: bool,
    /// Until then it is not asked again.
    until: Instant,
}

impl Asked {
    fn is(&self, wanted: Wanted<'_>) -> bool {
        (self.queue.as_str(), self.version, self.is_step)
            == (wanted.queue, wanted.version, wanted.is_step)
    }
}

impl Known {
    pub(crate) fn new(pool: PgPool) -> Arc<Self> {
        Arc::new(Self {
            pool,
            asked: Mutex::default(),
        })
    }

    /// Warns of those that no live worker takes. The database is asked about each once in a while, on
    /// a connection of the pool, and nobody waits for it.
    pub(crate) fn look_for<'k>(self: &Arc<Self>, wanted: impl IntoIterator<Item = Wanted<'k>>) {
        let mut fresh = Vec::new();
        let mut last = None;
        let mut asked = self.asked.lock();
        for wanted in wanted {
            // Of many, most are like the one before.
            if last.replace(wanted) != Some(wanted) {
                fresh.extend(note(&mut asked, wanted));
            }
        }
        drop(asked);
        if let (false, Ok(runtime)) = (fresh.is_empty(), tokio::runtime::Handle::try_current()) {
            let known = Arc::clone(self);
            runtime.spawn(async move { known.ask(fresh).await });
        }
    }

    async fn ask(&self, wanted: Vec<Asked>) {
        let untaken = async {
            let untaken = self.untaken(&wanted).await?;
            if untaken.is_empty() {
                return Ok(untaken);
            }
            tokio::time::sleep(BREATH).await;
            let again: Vec<Asked> = untaken.into_iter().map(|(asked, _)| asked).collect();
            self.untaken(&again).await
        };
        match untaken.await {
            Ok(untaken) => {
                for (job, why) in untaken {
                    why.warn(&job);
                    self.keep_quiet(&job);
                }
            }
            // Whoever enqueues hears of it elsewhere.
            Err(error) => tracing::debug!(%error, "who takes a job could not be asked"),
        }
    }

    fn keep_quiet(&self, job: &Asked) {
        let mut asked = self.asked.lock();
        for known in asked.get_mut(&job.kind).into_iter().flatten() {
            if (&known.queue, known.version, known.is_step)
                == (&job.queue, job.version, job.is_step)
            {
                known.until = Instant::now() + QUIET;
            }
        }
    }

    async fn untaken(&self, wanted: &[Asked]) -> Result<Vec<(Asked, Why)>, sqlx::Error> {
        let kinds: Vec<&str> = wanted.iter().map(|asked| asked.kind.as_str()).collect();
        let queues: Vec<&str> = wanted.iter().map(|asked| asked.queue.as_str()).collect();
        let steps: Vec<bool> = wanted.iter().map(|asked| asked.is_step).collect();
        let versions = wanted.iter().map(|asked| i32::try_from(asked.version));
        let versions: Vec<i32> = versions.map(|it| it.unwrap_or(i32::MAX)).collect();
        let rows = sqlx::query_file!(
            "src/sql/untaken.sql",
            &kinds as &[&str],
            &queues as &[&str],
            &steps,
            &versions
        )
        .fetch_all(&self.pool)
        .await?;
        let of = |ord: i64| wanted.get(usize::try_from(ord - 1).ok()?).cloned();
        Ok(rows
            .into_iter()
            .filter_map(|row| {
                let why = match (row.is_known, row.is_current, row.is_taken) {
                    (false, ..) => Why::Unknown,
                    (_, false, _) => Why::OldVersion,
                    (.., false) => Why::OnlyJobs,
                    _ => Why::Unserved,
                };
                Some((of(row.ord)?, why))
            })
            .collect())
    }
}

/// Notes that it is asked about now; `None` where it was lately.
fn note(asked: &mut HashMap<String, Vec<Asked>>, wanted: Wanted<'_>) -> Option<Asked> {
    let now = Instant::now();
    if let Some(of_kind) = asked.get_mut(wanted.kind) {
        let lately = |known: &Asked| known.until > now;
        if of_kind
            .iter()
            .any(|known| known.is(wanted) && lately(known))
        {
            return None;
        }
        of_kind.retain(lately);
        if of_kind.len() >= QUEUES {
            return None;
        }
    }
    let fresh = Asked {
        kind: wanted.kind.to_owned(),
        version: wanted.version,
        queue: wanted.queue.to_owned(),
        is_step: wanted.is_step,
        until: now + BELIEVED,
    };
    let of_kind = asked.entry(fresh.kind.clone()).or_default();
    of_kind.push(fresh.clone());
    Some(fresh)
}

/// Why nobody takes a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Unknown,
    OldVersion,
    OnlyJobs,
    Unserved,
}

impl Why {
    /// Warns of a job that nobody takes, with the remedy.
    fn warn(self, job: &Asked) {
        let (kind, version, queue) = (&job.kind, job.version, &job.queue);
        match self {
            Self::Unknown => tracing::warn!(
                job.kind = kind,
                job.version = version,
                job.queue = queue,
                "no live worker knows this job type: jobs of it wait until one does; register it with a worker"
            ),
            Self::OldVersion => tracing::warn!(
                job.kind = kind,
                job.version = version,
                job.queue = queue,
                "live workers know this job type only in older versions: jobs of this version wait; deploy a \
                 worker that knows it"
            ),
            Self::OnlyJobs => tracing::warn!(
                job.kind = kind,
                job.version = version,
                job.queue = queue,
                "of the live workers, only such as take no steps of runs know this job type: its steps wait; run \
                 a `pipeline::Worker` instead of a `jobs::Worker`"
            ),
            Self::Unserved => tracing::warn!(
                job.kind = kind,
                job.version = version,
                job.queue = queue,
                "no live worker that knows this job type serves its queue: its jobs wait until one does; name the \
                 queue with `Worker::queue`"
            ),
        }
    }
}
