//! Log lines about the ends of attempts, written once they are committed.

use super::hooks::FailedJob;
use super::transaction::Committed;
use crate::attempt::{AttemptEnd, EndKind};

/// Logs the ends of a committed transaction: each job that failed for good at warn, and each attempt that will
/// be retried at info.
pub(super) fn ends(ends: &[AttemptEnd], done: &Committed) {
    for (at, end) in ends.iter().enumerate() {
        if done.held.contains_key(&at) {
            continue;
        }
        if done.stale.contains(&at) {
            if end.kind != EndKind::Lost && !end.sent_before {
                tracing::warn!(
                    job.id = end.id,
                    attempt = end.attempt,
                    "attempt ended after its lease was lost; its end was ignored"
                );
            }
        } else if let Some(job) = done.failed.get(&at) {
            failed(end, job);
        } else if matches!(end.kind, EndKind::Retry | EndKind::Lost) {
            retried(end);
        }
    }
}

fn failed(end: &AttemptEnd, job: &FailedJob) {
    let label = end.label.as_deref();
    let kind = job.kind.as_str();
    let (class, message) = &job.reason;
    let run = job.run.or(label.and_then(|label| label.run));
    let step = job.step.as_deref();
    let step = step.or(label.and_then(|label| label.step.as_deref()));
    let key = job.key.as_deref();
    if job.is_optional {
        tracing::info!(
            job.id = end.id,
            job.kind = kind,
            run.id = run,
            step.key = step,
            key,
            attempt = end.attempt,
            error.class = class,
            error.message = message,
            "optional step failed"
        );
    } else {
        tracing::warn!(
            job.id = end.id,
            job.kind = kind,
            run.id = run,
            step.key = step,
            key,
            attempt = end.attempt,
            error.class = class,
            error.message = message,
            "job failed for good"
        );
    }
}

fn retried(end: &AttemptEnd) {
    let label = end.label.as_deref();
    let class = match end.kind {
        EndKind::Lost => "WorkerDied",
        _ => end.error().map_or("", |(class, _)| class),
    };
    tracing::info!(
        job.id = end.id,
        job.kind = label.map(|label| label.kind.as_str()),
        run.id = label.and_then(|label| label.run),
        step.key = label.and_then(|label| label.step.as_deref()),
        attempt = end.attempt,
        error.class = class,
        error.message = end.error().map(|(_, message)| message),
        retry_in_ms = u64::try_from(end.wait.as_millis()).unwrap_or(u64::MAX),
        "attempt failed; the job will be retried"
    );
}

/// Logs ends that could not be written before the shutdown timed out.
pub(super) fn given_up(count: usize) {
    tracing::error!(
        count,
        "ends of attempts could not be written in time; their jobs are taken over when their leases expire"
    );
}
