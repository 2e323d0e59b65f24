//! Splits the jobs of one call into statements by their bytes, and inserts them.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::{Due, Enqueued, NewJob, not_encodable};
use crate::routing::Demand;
use crate::{BatchId, Error, Result, limits};

/// The jobs of one call, with one page for each statement. Pages, and the jobs in them, are sorted in the
/// order in which every caller locks keys, so that two callers cannot deadlock.
pub(crate) struct Pages(Vec<Columns>);

impl Pages {
    /// Checks all jobs and splits them into pages.
    pub(crate) fn of(jobs: Vec<NewJob>, bytes: limits::Bytes) -> Result<Self> {
        if jobs.len() > limits::MAX_JOBS_PER_CALL {
            return Err(Error::TooMany { count: jobs.len() });
        }
        let mut size = 0;
        for job in &jobs {
            job.check()?;
            size += job.size();
            if size > bytes.call {
                let limit = bytes.call;
                return Err(Error::TooManyBytes { size, limit });
            }
        }
        let mut jobs: Vec<(usize, NewJob)> = jobs.into_iter().enumerate().collect();
        if size > bytes.page {
            // Jobs without a key come first, as within one statement (see `enqueue_jobs_v1`).
            let of = |job: &NewJob| (job.key.is_some().then_some(job.job_type), job.key.clone());
            jobs.sort_by_cached_key(|(_, job)| of(job));
        }
        let mut pages: Vec<Columns> = Vec::new();
        for (at, job) in jobs {
            let size = job.size();
            match pages.last_mut() {
                Some(page) if page.size + size <= bytes.page => page.push(at, size, job)?,
                _ => {
                    let mut page = Columns::default();
                    page.push(at, size, job)?;
                    pages.push(page);
                }
            }
        }
        Ok(Self(pages))
    }

    /// Returns whether one statement is enough.
    pub(crate) fn is_one(&self) -> bool {
        self.0.len() < 2
    }

    /// Returns what the jobs need of live workers.
    pub(crate) fn demands(&self) -> impl Iterator<Item = Demand<'_>> {
        self.0.iter().flat_map(Columns::demands)
    }

    /// Inserts the jobs page by page, and returns the results in the order of the call. The caller makes sure
    /// that all pages are kept or none.
    pub(crate) async fn insert(
        self,
        connection: &mut PgConnection,
        batch: Option<BatchId>,
    ) -> Result<Vec<Enqueued>> {
        let count = self.0.iter().map(|page| page.at.len()).sum();
        let mut answers: Vec<Option<Enqueued>> = vec![None; count];
        for page in self.0 {
            page.insert(connection, batch, &mut answers).await?;
        }
        answers
            .into_iter()
            .map(|answer| answer.ok_or_else(|| sqlx::Error::RowNotFound.into()))
            .collect()
    }
}

/// The jobs of one statement, as one array for each column.
#[derive(Default)]
struct Columns {
    /// The position of each job in the call.
    at: Vec<usize>,
    size: usize,
    job_types: Vec<&'static str>,
    versions: Vec<u32>,
    queues: Vec<String>,
    priorities: Vec<i16>,
    max_attempts: Vec<i16>,
    leases: Vec<i32>,
    args: Vec<String>,
    options: Vec<Option<String>>,
    keys: Vec<Option<String>>,
    delays: Vec<Option<i64>>,
    times: Vec<Option<DateTime<Utc>>>,
}

impl Columns {
    fn demands(&self) -> impl Iterator<Item = Demand<'_>> {
        self.job_types
            .iter()
            .zip(&self.versions)
            .zip(&self.queues)
            .map(|((job_type, version), queue)| Demand {
                job_type,
                version: *version,
                queue,
                is_owned: false,
            })
    }

    fn push(&mut self, at: usize, size: usize, job: NewJob) -> Result<()> {
        let job_type = job.job_type;
        self.at.push(at);
        self.size += size;
        self.job_types.push(job_type);
        self.versions.push(job.overrides.version.unwrap_or(1));
        self.queues.push(job.queue);
        self.priorities.push(job.priority);
        self.max_attempts.push(job.max_attempts.cast_signed());
        self.leases
            .push(i32::try_from(job.lease.as_millis()).unwrap_or(i32::MAX));
        self.options.push(job.overrides.json());
        self.args
            .push(job.args.map_err(|reason| not_encodable(job_type, reason))?);
        self.keys.push(job.key);
        let (delay, time) = match job.due {
            Due::After(delay) => (i64::try_from(delay.as_millis()).ok(), None),
            Due::At(moment) => (None, Some(moment)),
        };
        self.delays.push(delay);
        self.times.push(time);
        Ok(())
    }

    async fn insert(
        self,
        connection: &mut PgConnection,
        batch: Option<BatchId>,
        answers: &mut [Option<Enqueued>],
    ) -> Result<()> {
        let rows = sqlx::query_file!(
            "src/sql/enqueue.sql",
            &self.job_types as &[&str],
            &self.queues,
            &self.priorities,
            &self.max_attempts,
            &self.leases,
            &self.args,
            &self.options as &[Option<String>],
            &self.keys as &[Option<String>],
            &self.delays as &[Option<i64>],
            &self.times as &[Option<DateTime<Utc>>],
            batch.map(BatchId::get),
        )
        .fetch_all(connection)
        .await?;
        // Jobs without a key are returned in the order of the arrays, without a position.
        let mut plain = self
            .keys
            .iter()
            .enumerate()
            .filter(|(_, key)| key.is_none())
            .map(|(place, _)| place);
        for row in rows {
            let place = match row.ord {
                Some(ord) => usize::try_from(ord - 1).ok(),
                None => plain.next(),
            };
            if row.has_other_data {
                tracing::warn!(
                    job.id = row.id,
                    job.type = place.and_then(|place| self.job_types.get(place)),
                    key = place.and_then(|place| self.keys.get(place)?.as_deref()),
                    "key is taken by a live job with other data; the call returned that job, and its own data is lost"
                );
            }
            let at = place.and_then(|place| self.at.get(place));
            if let Some(slot) = at.and_then(|at| answers.get_mut(*at)) {
                *slot = Some(Enqueued {
                    id: row.id.into(),
                    is_new: row.is_new,
                    has_other_data: row.has_other_data,
                });
            }
        }
        Ok(())
    }
}
