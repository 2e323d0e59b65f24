//! The watchdog: logs the jobs that block a thread of the runtime.
//!
//! A job that does not yield keeps its neighbours on the same thread from running, and on a small runtime
//! the engine as well: leases are not renewed, and other jobs are stopped. The watchdog is a thread of its
//! own, because a task would stand still with the others.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::hooks::Hooks;
use crate::attempt::Ledger;

/// The duration of one poll of a job after which the watchdog logs the job.
pub(crate) const BLOCKING_THRESHOLD: Duration = Duration::from_secs(1);
/// The interval at which the watchdog checks all running jobs.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Starts the watchdog's thread, which ends when the ledger is dropped.
pub(crate) fn start(ledger: &Arc<Ledger>, hooks: Arc<Hooks>) {
    let ledger = Arc::downgrade(ledger);
    let started = std::thread::Builder::new()
        .name("pipeline-watchdog".to_owned())
        .spawn(move || watch(&ledger, &hooks));
    if let Err(error) = started {
        tracing::warn!(%error, "watchdog could not be started; blocking jobs are not logged");
    }
}

fn watch(ledger: &Weak<Ledger>, hooks: &Hooks) {
    let mut logged: HashSet<i64> = HashSet::new();
    loop {
        std::thread::sleep(CHECK_INTERVAL);
        let Some(ledger) = ledger.upgrade() else {
            return;
        };
        let blocked = ledger.blocked(BLOCKING_THRESHOLD);
        logged.retain(|job| blocked.iter().any(|(blocked, ..)| blocked == job));
        for (job, time, label) in blocked {
            if logged.insert(job) {
                let span = hooks.owner_span(label.owner_id, label.owner_label.as_deref());
                let _entered = span.enter();
                tracing::warn!(
                    job.id = job,
                    job.type = label.job_type,
                    blocked_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
                    "job blocks a thread of the runtime: leases of other jobs may be lost; move the \
                     blocking part to tokio::task::spawn_blocking"
                );
            }
        }
    }
}
