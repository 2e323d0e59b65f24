//! Lists of jobs.

use super::info::{JobInfo, JobRow, JobStatus};
use crate::{Client, Cursor, JobId, Page, Result};

/// Selects the jobs that [`Client::jobs`] lists.
///
/// ```no_run
/// # use jobs::{Client, JobFilter, JobStatus};
/// # async fn example(client: Client) -> jobs::Result<()> {
/// let mut filter = JobFilter::new().queue("media").status(JobStatus::Failed).limit(50);
/// loop {
///     let page = client.jobs(&filter).await?;
///     for job in &page.items {
///         println!("{} {}", job.id, job.job_type);
///     }
///     let Some(next) = page.next else { break };
///     filter = filter.after(next);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a filter lists nothing by itself"]
pub struct JobFilter {
    status: Option<JobStatus>,
    queue: Option<String>,
    job_type: Option<String>,
    after: Option<Cursor>,
    limit: Option<u16>,
}

impl JobFilter {
    /// Creates a filter that selects all jobs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects the jobs with this status.
    pub fn status(mut self, status: JobStatus) -> Self {
        self.status = Some(status);
        self
    }

    /// Selects the jobs of this queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Selects the jobs of this type.
    pub fn job_type(mut self, job_type: impl Into<String>) -> Self {
        self.job_type = Some(job_type.into());
        self
    }

    /// Continues the list after a page that was listed before.
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Sets the maximum number of jobs of a page (100 by default; from 1 to 1,000).
    pub fn limit(mut self, limit: u16) -> Self {
        self.limit = Some(limit.clamp(1, 1_000));
        self
    }
}

impl Client {
    /// Lists jobs in the descending order of their ids: of the jobs that were enqueued, the newest come first. Steps of
    /// runs have ids that follow those of their runs, and are listed among the other jobs by these ids.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database) if the database cannot be reached.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Page<JobInfo>> {
        let limit = filter.limit.unwrap_or(100);
        let rows = sqlx::query_file_as!(
            JobRow,
            "src/sql/jobs_list.sql",
            filter.status.map(JobStatus::as_str),
            filter.queue,
            filter.job_type,
            filter.after.map(|cursor| cursor.id()),
            // One more than the limit shows whether there is a next page.
            i64::from(limit) + 1,
        )
        .fetch_all(self.pool())
        .await?;
        let jobs: Vec<JobInfo> = rows
            .into_iter()
            .map(JobInfo::try_from)
            .collect::<Result<_, _>>()?;
        Ok(Page::of(jobs, limit, |job| {
            Cursor::new(job.created_at, JobId::get(job.id))
        }))
    }
}
