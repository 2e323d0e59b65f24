//! Warns of enqueued jobs that no live worker takes, soon after they were enqueued.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::PgPool;

/// How long the answer of the database about a demand is kept.
const ANSWER_TTL: Duration = Duration::from_secs(10);
/// How long the same warning is not repeated.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of queues of one job type that are checked in one [`ANSWER_TTL`]: an application may have one
/// queue for each customer.
const MAX_QUEUES_PER_JOB_TYPE: usize = 32;
/// How long a check waits before it looks again: a worker of this process may be about to register.
const RECHECK_DELAY: Duration = Duration::from_secs(1);

/// A kind of job that needs a live worker: a version of a job type in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand<'k> {
    /// The name of the job type.
    pub job_type: &'k str,
    /// The version of the job's data.
    pub version: u32,
    /// The queue of the job.
    pub queue: &'k str,
    /// Whether an extension owns the job.
    pub is_owned: bool,
}

/// Checks for a client and its clones whether live workers take the jobs that are enqueued.
#[derive(Debug)]
pub(crate) struct RoutingCheck {
    pool: PgPool,
    /// The demands that were checked lately, by job type.
    checked: Mutex<HashMap<String, Vec<Checked>>>,
}

#[derive(Debug, Clone)]
struct Checked {
    job_type: String,
    version: u32,
    queue: String,
    is_owned: bool,
    /// The time until which the demand is not checked again.
    until: Instant,
}

impl Checked {
    fn demand(&self) -> Demand<'_> {
        Demand {
            job_type: &self.job_type,
            version: self.version,
            queue: &self.queue,
            is_owned: self.is_owned,
        }
    }
}

impl RoutingCheck {
    pub(crate) fn new(pool: PgPool) -> Arc<Self> {
        Arc::new(Self {
            pool,
            checked: Mutex::default(),
        })
    }

    /// Warns of the demands that no live worker takes. A task asks the database about each demand at most once in
    /// [`ANSWER_TTL`], on a connection of the pool; the caller does not wait for it.
    pub(crate) fn warn_unroutable<'k>(
        self: &Arc<Self>,
        demands: impl IntoIterator<Item = Demand<'k>>,
    ) {
        let mut unchecked = Vec::new();
        let mut last = None;
        let mut checked = self.checked.lock();
        for demand in demands {
            // In a bulk call, most demands equal the one before.
            if last.replace(demand) != Some(demand) {
                unchecked.extend(note(&mut checked, demand));
            }
        }
        drop(checked);
        if let (false, Ok(runtime)) = (unchecked.is_empty(), tokio::runtime::Handle::try_current())
        {
            let check = Arc::clone(self);
            runtime.spawn(async move { check.check(unchecked).await });
        }
    }

    async fn check(&self, demands: Vec<Checked>) {
        let unroutable = async {
            let unroutable = self.unroutable(&demands).await?;
            if unroutable.is_empty() {
                return Ok(unroutable);
            }
            tokio::time::sleep(RECHECK_DELAY).await;
            let again: Vec<Checked> = unroutable.into_iter().map(|(demand, _)| demand).collect();
            self.unroutable(&again).await
        };
        match unroutable.await {
            Ok(unroutable) => {
                for (demand, reason) in unroutable {
                    reason.warn(&demand);
                    self.silence(&demand);
                }
            }
            // The caller sees errors of the database in the call that enqueues.
            Err(error) => tracing::debug!(%error, "routing check failed"),
        }
    }

    /// Keeps the warning about this demand from being repeated for [`WARNING_INTERVAL`].
    fn silence(&self, demand: &Checked) {
        let mut checked = self.checked.lock();
        for other in checked.get_mut(&demand.job_type).into_iter().flatten() {
            if other.demand() == demand.demand() {
                other.until = Instant::now() + WARNING_INTERVAL;
            }
        }
    }

    async fn unroutable(
        &self,
        demands: &[Checked],
    ) -> Result<Vec<(Checked, Unroutable)>, sqlx::Error> {
        let job_types: Vec<&str> = demands.iter().map(|it| it.job_type.as_str()).collect();
        let queues: Vec<&str> = demands.iter().map(|it| it.queue.as_str()).collect();
        let owned: Vec<bool> = demands.iter().map(|it| it.is_owned).collect();
        let versions = demands.iter().map(|it| i32::try_from(it.version));
        let versions: Vec<i32> = versions.map(|it| it.unwrap_or(i32::MAX)).collect();
        let rows = sqlx::query_file!(
            "src/sql/untaken.sql",
            &job_types as &[&str],
            &queues as &[&str],
            &owned,
            &versions
        )
        .fetch_all(&self.pool)
        .await?;
        let demand = |ord: i64| demands.get(usize::try_from(ord - 1).ok()?).cloned();
        Ok(rows
            .into_iter()
            .filter_map(|row| {
                let reason = match (row.is_known, row.is_current, row.is_taken) {
                    (false, ..) => Unroutable::UnknownType,
                    (_, false, _) => Unroutable::OldVersion,
                    (.., false) => Unroutable::OwnedJobsNotTaken,
                    _ => Unroutable::QueueNotServed,
                };
                Some((demand(row.ord)?, reason))
            })
            .collect())
    }
}

/// Notes that a demand is checked now. Returns `None` if it was checked lately.
fn note(checked: &mut HashMap<String, Vec<Checked>>, demand: Demand<'_>) -> Option<Checked> {
    let now = Instant::now();
    if let Some(of_type) = checked.get_mut(demand.job_type) {
        let is_recent = |other: &Checked| other.until > now;
        let is_noted = |other: &Checked| other.demand() == demand && is_recent(other);
        if of_type.iter().any(is_noted) {
            return None;
        }
        of_type.retain(is_recent);
        if of_type.len() >= MAX_QUEUES_PER_JOB_TYPE {
            return None;
        }
    }
    let noted = Checked {
        job_type: demand.job_type.to_owned(),
        version: demand.version,
        queue: demand.queue.to_owned(),
        is_owned: demand.is_owned,
        until: now + ANSWER_TTL,
    };
    let of_type = checked.entry(noted.job_type.clone()).or_default();
    of_type.push(noted.clone());
    Some(noted)
}

/// Why no live worker takes a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unroutable {
    UnknownType,
    OldVersion,
    OwnedJobsNotTaken,
    QueueNotServed,
}

impl Unroutable {
    /// Logs the warning with its remedy.
    fn warn(self, demand: &Checked) {
        let (job_type, version, queue) = (&demand.job_type, demand.version, &demand.queue);
        match self {
            Self::UnknownType => tracing::warn!(
                job.type = job_type,
                job.version = version,
                job.queue = queue,
                "no live worker knows this job type; its jobs wait; register the type with a worker"
            ),
            Self::OldVersion => tracing::warn!(
                job.type = job_type,
                job.version = version,
                job.queue = queue,
                "live workers know only older versions of this job type; its jobs wait; deploy a worker that knows \
                 this version"
            ),
            Self::OwnedJobsNotTaken => tracing::warn!(
                job.type = job_type,
                job.version = version,
                job.queue = queue,
                "the live workers that know this job type take no steps of runs; its steps wait; run a \
                 `pipeline::Worker` instead of a `jobs::Worker`"
            ),
            Self::QueueNotServed => tracing::warn!(
                job.type = job_type,
                job.version = version,
                job.queue = queue,
                "no live worker that knows this job type serves its queue; its jobs wait; name the queue with \
                 `Worker::queue`"
            ),
        }
    }
}
