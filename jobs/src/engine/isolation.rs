//! The isolation task: writes the ends of a failed group in smaller groups, on a separate connection.
//!
//! A group that failed because of its data, or took too long, is halved until the failing end is alone.
//! Meanwhile the committer writes all other ends. If the database refuses a single end, that end is replaced
//! by a failure with the reason. If a single end takes too long, it is retried after the other groups, with
//! a longer timeout.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::committer::{Committer, TRANSACTION_TIMEOUT, sent_before};
use super::connection::{EngineConnection, timed_out};
use super::lifecycle::Phase;
use super::report;
use super::transaction::Parts;
use super::transaction::{self, Failure, Request};
use crate::attempt::{AttemptEnd, EndKind, IsolatedGroup};
use crate::sqlstate::ErrorClass;

/// The maximum time limit for the transaction of a single end.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);
/// The number of failures of a single end, while the database answered, after which the end is refused.
const MAX_SINGLE_FAILURES: u8 = 20;
/// The class of the error that replaces an end which the database refused.
const END_REFUSED: &str = "EndRefused";

/// Writes isolated groups until the worker is flushed.
pub(crate) async fn run(committer: Arc<Committer>, mut connection: EngineConnection) {
    loop {
        tokio::select! {
            () = committer.ledger.isolated() => {}
            () = committer.lifecycle.reached(Phase::Closing) => break,
        }
        while let Some(group) = committer.ledger.take_isolated() {
            write(&committer, &mut connection, group).await;
        }
    }
    connection.close().await;
}

async fn write(committer: &Committer, connection: &mut EngineConnection, group: IsolatedGroup) {
    let IsolatedGroup { mut ends, limit } = group;
    let sent = Instant::now();
    let request = Request {
        ends: &ends,
        reserved: &[],
        // The transaction's limit covers two statements of this length.
        statement_limit: (limit > TRANSACTION_TIMEOUT).then_some(limit / 2),
        isolate_inputs: false,
    };
    let parts = Parts {
        config: &committer.config,
        hooks: &committer.hooks,
        slots: &committer.slots,
    };
    let attempt = transaction::run(parts, connection, request);
    let outcome = tokio::time::timeout(limit, attempt).await;
    let outcome = outcome.unwrap_or_else(|_| Err(Failure::Error(timed_out(limit))));
    let error = match outcome {
        Ok(done) => {
            connection.succeeded();
            committer
                .finish(ends, done, Vec::new(), sent, connection)
                .await;
            return;
        }
        Err(Failure::Held { hook, rows }) => {
            committer.defer_rows(ends, hook, &rows).await;
            return;
        }
        // Nothing was claimed; the fence tells which ends were written.
        Err(Failure::Unknown(_)) => {
            ends = ends.into_iter().map(sent_before).collect();
            timed_out(limit)
        }
        Err(Failure::Error(error)) => error,
    };
    for end in &mut ends {
        end.failures = end.failures.saturating_add(1);
        end.isolation_limit = Some(limit);
    }
    let class = ErrorClass::of(&error);
    if class == ErrorClass::Server {
        connection.failed(&error);
    }
    if committer.lifecycle.gives_up() {
        committer.ledger.forget(&ends);
        report::given_up(&ends, report::NO_ANSWER);
    } else if ends.len() > 1 {
        let mut first = ends;
        let second = first.split_off(first.len() / 2);
        committer.ledger.isolate(first, limit);
        committer.ledger.isolate(second, limit);
    } else {
        alone(committer, ends, limit, class, &error);
    }
    if class != ErrorClass::Data {
        connection
            .back_off(&committer.lifecycle, Phase::Flushing)
            .await;
    }
}

/// Handles a single end whose transaction failed.
fn alone(
    committer: &Committer,
    ends: Vec<AttemptEnd>,
    limit: Duration,
    class: ErrorClass,
    error: &sqlx::Error,
) {
    let ledger = &committer.ledger;
    // An error that the database keeps reporting for this end alone is the end's, whatever its class.
    let is_refused = class == ErrorClass::Data
        || error.as_database_error().is_some()
            && !ErrorClass::is_unreachable(error)
            && ends.iter().any(|end| end.failures >= MAX_SINGLE_FAILURES);
    match class {
        _ if class != ErrorClass::TooLong && is_refused => {
            for end in ends {
                if end.error().is_some_and(|(class, _)| class == END_REFUSED) {
                    // The database refused the failure, too: the job's lease expires.
                    tracing::error!(job.id = end.id, %error, "end of an attempt cannot be written; dropping it");
                    ledger.forget(&[end]);
                } else {
                    ledger.isolate(vec![refused(end, error)], limit);
                }
            }
        }
        ErrorClass::TooLong => ledger.isolate(ends, (limit * 2).min(MAX_TIMEOUT)),
        _ => ledger.isolate(ends, limit),
    }
}

/// Turns an end that the database refused into a failure with the reason.
fn refused(end: AttemptEnd, error: &sqlx::Error) -> AttemptEnd {
    let mut failure = AttemptEnd {
        kind: EndKind::Fail,
        output: None,
        ..end
    };
    failure.set_error(
        END_REFUSED,
        &format!(
            "the database refused the attempt's end: {error}; repair what the job returned or what \
             refuses it, then retry the job, or reopen its run"
        ),
    );
    failure
}
