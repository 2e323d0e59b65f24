//! The watchdog: names the jobs that block a thread of the runtime.
//!
//! A job that does not yield keeps its neighbours on the same thread from running, and on a small runtime
//! the engine as well: leases are not renewed, and innocent jobs are stopped. The watchdog is a thread of its
//! own, because a task would stand still with the others.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::attempt::Ledger;

/// How long one poll of a job may take before the job is named.
pub(crate) const BLOCKING_LIMIT: Duration = Duration::from_secs(1);
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Starts the watchdog, which ends with the ledger.
pub(crate) fn start(ledger: &Arc<Ledger>) {
    let ledger = Arc::downgrade(ledger);
    let started = std::thread::Builder::new()
        .name("pipeline-watchdog".to_owned())
        .spawn(move || watch(&ledger));
    if let Err(error) = started {
        tracing::warn!(%error, "watchdog could not be started; blocking jobs will not be named");
    }
}

fn watch(ledger: &Weak<Ledger>) {
    let mut named: HashSet<i64> = HashSet::new();
    loop {
        std::thread::sleep(CHECK_INTERVAL);
        let Some(ledger) = ledger.upgrade() else {
            return;
        };
        let blocked = ledger.blocked(BLOCKING_LIMIT);
        named.retain(|job| blocked.iter().any(|(blocked, ..)| blocked == job));
        for (job, time, label) in blocked {
            if named.insert(job) {
                tracing::warn!(
                    job.id = job,
                    job.kind = label.kind,
                    run.id = label.run,
                    step.key = label.step,
                    blocked_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
                    "job blocks a thread of the runtime: leases of other jobs may be lost; move the \
                     blocking part to tokio::task::spawn_blocking"
                );
            }
        }
    }
}
