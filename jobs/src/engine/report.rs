//! Log lines about the ends of attempts, written once they are committed.

use super::hooks::{FailedJob, Hooks};
use super::transaction::Committed;
use crate::attempt::{AttemptEnd, EndKind, HeldRow, LongHeld};

/// Logs the ends of a committed transaction: each job that failed for good at warn, and each attempt that will
/// be retried at info.
pub(super) fn ends(ends: &[AttemptEnd], done: &Committed) {
    for (at, end) in ends.iter().enumerate() {
        if done.held.contains_key(&at) {
            continue;
        }
        if done.stale.contains(&at) {
            if end.kind != EndKind::Lost && !end.sent_before {
                let label = end.label.as_deref();
                tracing::warn!(
                    job.id = end.id,
                    job.kind = label.map(|label| label.kind.as_str()),
                    run.id = label.and_then(|label| label.run),
                    step.key = label.and_then(|label| label.step.as_deref()),
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
    // Whether the run is being cancelled is not known here.
    let unless = if end.is_step() {
        " unless its run is being cancelled"
    } else {
        ""
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
        "attempt failed; the job will be retried{unless}"
    );
}

/// The number of jobs, runs or rows that one report names.
const NAMED: usize = 5;

/// Why the ends of a report could not be written.
pub(super) const NO_ANSWER: &str = "the database did not answer in time";
pub(super) const ROWS_HELD: &str = "other sessions hold their rows";

/// Logs ends that could not be written before the shutdown timed out.
pub(super) fn given_up(ends: &[AttemptEnd], reason: &str) {
    if ends.is_empty() {
        return;
    }
    let jobs: Vec<i64> = ends.iter().map(|end| end.id).take(NAMED).collect();
    let run = |end: &AttemptEnd| end.label.as_ref().and_then(|label| label.run);
    let mut runs: Vec<i64> = ends.iter().filter_map(run).collect();
    runs.sort_unstable();
    runs.dedup();
    runs.truncate(NAMED);
    tracing::error!(
        count = ends.len(),
        ?jobs,
        ?runs,
        reason,
        "ends of attempts could not be written in time; their jobs are taken over when their leases expire"
    );
}

/// Logs the rows that other sessions have held for long: the first of them, a line each.
pub(super) fn held(rows: &[LongHeld], hooks: &Hooks) {
    for held in rows.iter().take(NAMED) {
        let (mut run, mut batch, mut job) = (None, None, None);
        match held.row {
            HeldRow::Job(id) => job = Some(id),
            HeldRow::Hook(at, id) if hooks.end.get(at).is_some_and(|hook| hook.takes_steps()) => {
                run = Some(id);
            }
            HeldRow::Hook(_, id) => batch = Some(id),
        }
        tracing::warn!(
            run.id = run,
            batch.id = batch,
            job.id = job,
            ends = held.ends,
            held_ms = u64::try_from(held.time.as_millis()).unwrap_or(u64::MAX),
            held_rows = rows.len(),
            "ends of attempts wait for a row that another session holds; other work goes on; find the session \
             in pg_stat_activity and end it"
        );
    }
}
