//! Log lines about the ends of attempts, written after the commit.

use super::hooks::{FailedJob, Hooks};
use super::transaction::Committed;
use crate::FailedAttempt;
use crate::attempt::{AttemptEnd, EndKind, HeldRow, LongHeld};

/// Logs the ends of a committed transaction: each job that failed for good at warn, and each attempt that will
/// be retried at info.
pub(super) fn ends(ends: &[AttemptEnd], done: &Committed, hooks: &Hooks) {
    for (at, end) in ends.iter().enumerate() {
        if done.held.contains_key(&at) {
            continue;
        }
        let is_late = done.stale.contains(&at) && end.kind != EndKind::Lost && !end.sent_before;
        let failed = done.failed.get(&at);
        let is_retried = !done.stale.contains(&at)
            && failed.is_none()
            && matches!(end.kind, EndKind::Retry | EndKind::Lost);
        if !is_late && !is_retried && failed.is_none() {
            continue;
        }
        let label = end.label.as_deref();
        let owner_id = label.and_then(|label| label.owner_id);
        let owner_id = failed.and_then(|job| job.owner_id).or(owner_id);
        let owner_label = label.and_then(|label| label.owner_label.as_deref());
        let owner_label = failed
            .and_then(|job| job.owner_label.as_deref())
            .or(owner_label);
        let _entered = hooks.owner_span(owner_id, owner_label).entered();
        if let Some(reporter) = hooks.error_reporter.as_ref().filter(|_| !is_late) {
            reporter.report(failed_attempt(end, failed, owner_id, owner_label));
        }
        match failed {
            _ if is_late => late(end),
            Some(job) => failed_for_good(end, job),
            None => retried(end),
        }
    }
}

fn job_type(end: &AttemptEnd) -> Option<&str> {
    end.label.as_deref().map(|label| label.job_type.as_str())
}

fn late(end: &AttemptEnd) {
    tracing::warn!(
        job.id = end.id,
        job.type = job_type(end),
        attempt = end.attempt,
        "attempt ended after its lease was lost; its end was ignored"
    );
}

fn failed_for_good(end: &AttemptEnd, job: &FailedJob) {
    let (class, message) = &job.reason;
    let key = job.key.as_deref();
    if job.is_optional {
        tracing::info!(
            job.id = end.id,
            job.type = job.job_type,
            key,
            attempt = end.attempt,
            error.class = class,
            error.message = message,
            "optional job failed; its owner continues"
        );
    } else {
        tracing::warn!(
            job.id = end.id,
            job.type = job.job_type,
            key,
            attempt = end.attempt,
            error.class = class,
            error.message = message,
            "job failed for good"
        );
    }
}

/// Describes a failed attempt for [`Worker::on_error`](crate::Worker::on_error).
fn failed_attempt(
    end: &AttemptEnd,
    failed: Option<&FailedJob>,
    owner_id: Option<i64>,
    owner_label: Option<&str>,
) -> FailedAttempt {
    let (error_class, error_message) = match failed {
        Some(job) => job.reason.clone(),
        None => {
            let message = end.error().map_or("", |(_, message)| message);
            (retried_class(end).to_owned(), message.to_owned())
        }
    };
    let failed_type = failed.map(|job| job.job_type.as_str());
    FailedAttempt {
        job: end.id.into(),
        job_type: failed_type.or(job_type(end)).map(str::to_owned),
        attempt: u16::try_from(end.attempt).unwrap_or(0),
        owner_id,
        owner_label: owner_label.map(str::to_owned),
        error_class,
        error_message,
        is_final: failed.is_some(),
    }
}

/// Returns the error class of an attempt whose job is retried.
fn retried_class(end: &AttemptEnd) -> &str {
    match end.kind {
        EndKind::Lost => "WorkerDied",
        _ => end.error().map_or("", |(class, _)| class),
    }
}

fn retried(end: &AttemptEnd) {
    let class = retried_class(end);
    // The engine does not know whether the owner is being cancelled.
    let unless = if end.is_owned() {
        " unless its owner is being cancelled"
    } else {
        ""
    };
    tracing::info!(
        job.id = end.id,
        job.type = job_type(end),
        attempt = end.attempt,
        error.class = class,
        error.message = end.error().map(|(_, message)| message),
        retry_in_ms = u64::try_from(end.wait.as_millis()).unwrap_or(u64::MAX),
        "attempt failed; the job will be retried{unless}"
    );
}

/// The maximum number of jobs, owners or rows that one report names.
const MAX_NAMED: usize = 5;

/// The reason of unwritten ends if the database did not answer.
pub(super) const NO_ANSWER: &str = "the database did not answer in time";
/// The reason of unwritten ends if other sessions hold the rows that the ends change.
pub(super) const ROWS_HELD: &str = "other sessions hold their rows";

/// Logs ends that could not be written before the shutdown timed out.
pub(super) fn given_up(ends: &[AttemptEnd], reason: &str) {
    if ends.is_empty() {
        return;
    }
    let jobs: Vec<i64> = ends.iter().map(|end| end.id).take(MAX_NAMED).collect();
    let owner = |end: &AttemptEnd| end.label.as_ref().and_then(|label| label.owner_id);
    let mut owners: Vec<i64> = ends.iter().filter_map(owner).collect();
    owners.sort_unstable();
    owners.dedup();
    owners.truncate(MAX_NAMED);
    tracing::error!(
        count = ends.len(),
        ?jobs,
        ?owners,
        reason,
        "ends of attempts could not be written in time; their jobs are taken over when their leases expire"
    );
}

/// Logs the rows that other sessions have held for long: one line for each of the first rows.
pub(super) fn held(rows: &[LongHeld], hooks: &Hooks) {
    for held in rows.iter().take(MAX_NAMED) {
        let (span, job) = match held.row {
            HeldRow::Job(id) => (tracing::Span::none(), Some(id)),
            HeldRow::Hook(hook, row) => (hooks.row_span(hook, row), None),
        };
        let _entered = span.entered();
        tracing::warn!(
            job.id = job,
            ends = held.ends,
            held_ms = u64::try_from(held.time.as_millis()).unwrap_or(u64::MAX),
            held_rows = rows.len(),
            "ends of attempts wait for a row that another session holds; other work continues; find the session \
             in pg_stat_activity and end it"
        );
    }
}
