//! Runs, found by what is known of them, a page at a time.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
///     for run in &page.runs {
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
        let before = self.before.map(|time| Cursor {
            created_at: time,
            id: i64::MIN,
        });
        match before.into_iter().chain(self.after).min() {
            Some(end) => (Some(end.created_at), end.id),
            None => (None, i64::MAX),
        }
    }
}

/// Some of the runs that were asked for.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Page {
    /// The runs, the newest first.
    pub runs: Vec<RunInfo>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<Cursor>,
}

/// A place in the list of all runs. Its text fits into a URL, and is what it is in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    created_at: DateTime<Utc>,
    id: i64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.created_at.timestamp_micros(), self.id)
    }
}

/// A text that is no [`Cursor`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no place in a list of runs: give `Page::next` as it was, or begin anew")]
pub struct BadCursor {
    text: String,
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let parts = text.split_once('_').and_then(|(time, id)| {
            Some(Self {
                created_at: DateTime::from_timestamp_micros(time.parse().ok()?)?,
                id: id.parse().ok()?,
            })
        });
        parts.ok_or_else(|| BadCursor {
            text: jobs::extension::limits::shortened(text),
        })
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
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
    pub async fn runs(&self, filter: &RunFilter) -> Result<Page> {
        let statuses = match &filter.statuses[..] {
            [] => RunStatus::ALL,
            some => some,
        };
        let mut statuses: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
        statuses.sort_unstable();
        statuses.dedup();
        let limit = usize::from(filter.limit.unwrap_or(100));
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
            i64::try_from(limit + 1).unwrap_or(i64::MAX),
        )
        .fetch_all(self.pool())
        .await?;
        let more = rows.len() > limit;
        let mut runs = Vec::with_capacity(rows.len());
        for row in rows.into_iter().take(limit) {
            runs.push(run_info!(row));
        }
        let last = runs.last().filter(|_| more).map(|run: &RunInfo| Cursor {
            created_at: run.created_at,
            id: run.id,
        });
        Ok(Page { runs, next: last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text() -> Result<(), BadCursor> {
        let created_at = DateTime::from_timestamp_micros(-1_234_567).unwrap_or_default();
        for id in [0, 7, i64::MAX] {
            let cursor = Cursor { created_at, id };
            assert_eq!(cursor.to_string().parse::<Cursor>()?, cursor);
            let json = serde_json::json!(cursor);
            assert_eq!(json, cursor.to_string());
            assert_eq!(serde_json::from_value(json).ok(), Some(cursor));
        }
        for text in ["", "_", "1", "1_x", "99999999999999999999_1", "1_2_3"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
        Ok(())
    }
}
