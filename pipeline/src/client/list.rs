//! Runs, found by what is known of them, a page at a time.

use chrono::{DateTime, Utc};
use jobs::{Cursor, Page};

use super::state::run_info;
use super::{Client, RunInfo};
use crate::{Result, RunStatus};

/// Which runs to list.
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
    /// All runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Those of a pipeline.
    pub fn pipeline(mut self, name: impl Into<String>) -> Self {
        self.pipeline = Some(name.into());
        self
    }

    /// Those that stand there. Said several times: that stand in any of these.
    pub fn status(mut self, status: RunStatus) -> Self {
        self.statuses.push(status);
        self
    }

    /// Those that have this tag. Said several times: that have all of them.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Those created at this time or later.
    pub fn created_from(mut self, time: DateTime<Utc>) -> Self {
        self.from = Some(time);
        self
    }

    /// Those created before this time.
    pub fn created_before(mut self, time: DateTime<Utc>) -> Self {
        self.before = Some(time);
        self
    }

    /// Those after a page that was listed.
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// At most so many to a page (100 by default; from 1 to 1,000).
    pub fn limit(mut self, limit: u16) -> Self {
        self.limit = Some(limit.clamp(1, 1_000));
        self
    }

    /// What runs have to come before in (`created_at`, id).
    fn end(&self) -> (Option<DateTime<Utc>>, i64) {
        let before = self.before.map(|time| Cursor::new(time, i64::MIN));
        match before.into_iter().chain(self.after).min() {
            Some(end) => (Some(end.created_at()), end.id()),
            None => (None, i64::MAX),
        }
    }
}

impl Client {
    /// Runs, the newest first: by when they were made, and those of one moment by their ids. A run
    /// that is made while you turn the pages moves none of the others; one whose transaction is
    /// committed late may appear on a page that you have passed.
    ///
    /// # Errors
    ///
    /// When the database cannot be asked.
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
        // One more than asked for says whether there is a next page.
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
