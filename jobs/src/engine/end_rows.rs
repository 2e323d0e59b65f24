//! Ends of attempts as rows of the database's own types, and the statement that ends jobs.

use sqlx::PgConnection;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo};

use super::hooks::{EndSettings, Ended, FailedJob};
use crate::attempt::{AttemptEnd, EndKind};
use crate::limits;

/// The outcome of an attempt: `pipeline.attempt_outcome`.
#[derive(Debug, Clone, Copy, sqlx::Type)]
#[sqlx(
    type_name = "pipeline.attempt_outcome",
    rename_all = "snake_case",
    no_pg_array
)]
pub(crate) enum AttemptOutcome {
    Succeeded,
    /// The attempt succeeded and asked its owner to end early.
    #[sqlx(rename = "ended_run")]
    EndedOwner,
    Retryable,
    Failed,
    Discarded,
    Snoozed,
    HandedBack,
    UnknownType,
    LeaseLost,
}

/// The id of the type `json`, which is the same on every server.
const JSON: Oid = Oid(114);

/// JSON text, for a column of type `json`.
#[derive(Clone, Copy)]
struct JsonText<'a>(&'a str);

impl sqlx::Type<sqlx::Postgres> for JsonText<'_> {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(JSON)
    }
}

impl sqlx::Encode<'_, sqlx::Postgres> for JsonText<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
}

/// The end of an attempt: `pipeline.attempt_end`.
#[derive(sqlx::Encode)]
pub struct EndRow<'a> {
    job: i64,
    token: i64,
    outcome: AttemptOutcome,
    attempt: i16,
    ran_ms: Option<i32>,
    wait_ms: i64,
    output: Option<JsonText<'a>>,
    error_class: Option<&'a str>,
    error_message: Option<&'a str>,
    position: i32,
}

impl sqlx::Type<sqlx::Postgres> for EndRow<'_> {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("pipeline.attempt_end")
    }
}

impl PgHasArrayType for EndRow<'_> {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::array_of("pipeline.attempt_end")
    }
}

impl std::fmt::Debug for EndRow<'_> {
    /// Omits the output and the error, which must not appear in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndRow")
            .field("job", &self.job)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

impl<'a> EndRow<'a> {
    /// Creates the rows of these ends, in the order of their jobs' ids. Each row has the position of its end in the
    /// list.
    pub fn of(ends: &[&'a AttemptEnd]) -> Vec<Self> {
        let row = |(position, end): (usize, &&'a AttemptEnd)| Self {
            job: end.id,
            token: end.token,
            outcome: end.outcome(),
            attempt: end.attempt,
            ran_ms: end.ran.and_then(|ran| i32::try_from(ran.as_millis()).ok()),
            wait_ms: limits::millis(end.wait),
            output: end.output.as_deref().map(|output| JsonText(output.get())),
            error_class: end.error().map(|(class, _)| class),
            error_message: end.error().map(|(_, message)| message),
            position: i32::try_from(position).unwrap_or(i32::MAX),
        };
        let mut rows: Vec<Self> = ends.iter().enumerate().map(row).collect();
        rows.sort_unstable_by_key(|row| row.job);
        rows
    }
}

impl AttemptEnd {
    fn outcome(&self) -> AttemptOutcome {
        match self.kind {
            EndKind::Succeed if self.ends_owner => AttemptOutcome::EndedOwner,
            EndKind::Succeed => AttemptOutcome::Succeeded,
            EndKind::Retry => AttemptOutcome::Retryable,
            EndKind::Fail => AttemptOutcome::Failed,
            EndKind::Discard => AttemptOutcome::Discarded,
            EndKind::Snooze => AttemptOutcome::Snoozed,
            EndKind::HandBack => AttemptOutcome::HandedBack,
            EndKind::Unknown => AttemptOutcome::UnknownType,
            EndKind::Lost => AttemptOutcome::LeaseLost,
        }
    }
}

/// A job that has failed for good: `pipeline.failed_job`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "pipeline.failed_job", no_pg_array)]
pub struct FailedRow {
    position: i32,
    job_type: String,
    key: Option<String>,
    error_class: Option<String>,
    error_message: Option<String>,
    owner_id: Option<i64>,
    owner_label: Option<String>,
    is_optional: Option<bool>,
}

impl PgHasArrayType for FailedRow {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::array_of("pipeline.failed_job")
    }
}

impl FailedRow {
    /// Returns the position of the job's end, and the job.
    pub fn into_parts(self) -> (usize, FailedJob) {
        let job = FailedJob {
            reason: (
                self.error_class.unwrap_or_default(),
                self.error_message.unwrap_or_default(),
            ),
            job_type: self.job_type,
            key: self.key,
            owner_id: self.owner_id,
            owner_label: self.owner_label,
            is_optional: self.is_optional.unwrap_or(false),
        };
        (position(self.position), job)
    }
}

/// Returns the positions of ends that a statement returned.
pub fn positions(returned: Option<Vec<i32>>) -> Vec<usize> {
    returned
        .unwrap_or_default()
        .into_iter()
        .map(position)
        .collect()
}

fn position(returned: i32) -> usize {
    usize::try_from(returned).unwrap_or(usize::MAX)
}

/// Ends attempts of jobs that no extension owns, as the engine does without an end hook.
///
/// # Errors
///
/// The database's error; then nothing was written.
pub async fn end_jobs(
    connection: &mut PgConnection,
    ends: &[&AttemptEnd],
    settings: EndSettings,
) -> Result<Ended, sqlx::Error> {
    let (keep, unknown_ms) = (settings.keep_succeeded, settings.unknown_ms);
    let rows = EndRow::of(ends);
    let row = sqlx::query_file!("src/sql/end_jobs.sql", &rows as _, keep, unknown_ms)
        .fetch_one(connection)
        .await?;
    Ok(Ended::of_jobs(row.stale, row.held, row.failed))
}

impl Ended {
    /// Reads the answer of `end_jobs_v1`.
    pub(super) fn of_jobs(
        stale: Option<Vec<i32>>,
        held: Option<Vec<i32>>,
        failed: Option<Vec<FailedRow>>,
    ) -> Self {
        let failed = failed.unwrap_or_default().into_iter();
        Self {
            stale: positions(stale),
            held: positions(held),
            failed: failed.map(FailedRow::into_parts).collect(),
            ..Self::default()
        }
    }
}
