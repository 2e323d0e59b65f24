//! Lists runs by filter, page by page.

use chrono::{DateTime, Utc};
use jobs::{Cursor, Page};

use super::state::run_info;
use super::{Client, RunInfo};
use crate::{Result, RunStatus};

/// Selects the runs that [`Client::runs`] lists.
///
/// ```no_run
/// # use pipeline::{Client, RunFilter, RunStatus};
/// # async fn example(client: Client) -> pipeline::Result<()> {
/// let mut filter = RunFilter::new().pipeline("video").status(RunStatus::Failed).limit(50);
/// loop {
///     let page = client.runs(&filter).await?;
///     for run in &page.items {
///         println!("{} {}", run.id, run.created_at);
///     }
///     let Some(next) = page.next else { break };
///     filter = filter.after(next);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a filter lists nothing by itself"]
pub struct RunFilter {
    pipeline: Option<String>,
    statuses: Vec<RunStatus>,
    tags: Vec<String>,
    from: Option<DateTime<Utc>>,
    before: Option<DateTime<Utc>>,
    after: Option<Cursor>,
    limit: Option<u16>,
}

impl RunFilter {
    /// Creates a filter that selects all runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects the runs of this pipeline.
    pub fn pipeline(mut self, name: impl Into<String>) -> Self {
        self.pipeline = Some(name.into());
        self
    }

    /// Selects the runs with this status. Several calls select runs with any of the statuses.
    pub fn status(mut self, status: RunStatus) -> Self {
        self.statuses.push(status);
        self
    }

    /// Selects the runs with this tag. Several calls select runs with all of the tags.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Selects the runs that were created at this time or later.
    pub fn created_from(mut self, time: DateTime<Utc>) -> Self {
        self.from = Some(time);
        self
    }

    /// Selects the runs that were created before this time.
    pub fn created_before(mut self, time: DateTime<Utc>) -> Self {
        self.before = Some(time);
        self
    }

    /// Selects the runs after this cursor, which is [`Page::next`] of the page before.
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Sets the maximum number of runs of a page (100 by default; from 1 to 1,000).
    pub fn limit(mut self, limit: u16) -> Self {
        self.limit = Some(limit.clamp(1, 1_000));
        self
    }

    /// Returns the upper bound of the listed runs: each has a smaller pair of `created_at` and id.
    fn end(&self) -> (Option<DateTime<Utc>>, i64) {
        let before = self.before.map(|time| Cursor::new(time, i64::MIN));
        match before.into_iter().chain(self.after).min() {
            Some(end) => (Some(end.created_at()), end.id()),
            None => (None, i64::MAX),
        }
    }
}

impl Client {
    /// Returns a page of the runs that a filter selects, the newest first. Runs with the same creation time are
    /// ordered by id.
    ///
    /// A run that is created between two pages does not move the others. A run whose transaction commits late may
    /// appear on a page that was already read.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database) if the query fails.
    pub async fn runs(&self, filter: &RunFilter) -> Result<Page<RunInfo>> {
        let statuses = match &filter.statuses[..] {
            [] => RunStatus::ALL,
            some => some,
        };
        let mut statuses: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
        statuses.sort_unstable();
        statuses.dedup();
        let limit = filter.limit.unwrap_or(100);
        let (before, id) = filter.end();
        // One row more than the limit: it shows whether there is a next page.
        let rows = sqlx::query_file!(
            "src/sql/runs_list.sql",
            &statuses as &[&str],
            filter.pipeline,
            (!filter.tags.is_empty()).then_some(&filter.tags[..]),
            filter.from,
            before,
            id,
            i64::from(limit) + 1,
        )
        .fetch_all(self.pool())
        .await?;
        let mut runs = Vec::with_capacity(rows.len());
        for row in rows {
            runs.push(run_info!(row));
        }
        Ok(Page::of(runs, limit, |run: &RunInfo| {
            Cursor::new(run.created_at, run.id.get())
        }))
    }
}
