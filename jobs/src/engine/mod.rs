//! The engine: one for each worker, on a few connections of its own.
//!
//! | task | what it does | its connection |
//! |---|---|---|
//! | [`committer`] | ends attempts in groups, and claims new ones (in one [`transaction`]) | one, and a second one while many ends wait |
//! | [`isolation`] | writes the ends of failed groups apart | one, once a group has failed |
//! | [`tick`] | makes due jobs ready, finds lost leases, sends notifications | one |
//! | [`renew`] | renews leases, stops jobs whose lease is lost | one |
//! | [`listen`] | receives notifications of new work | one |
//! | [`maintenance`] | runs the tasks of extensions | one each |
//!
//! Each task holds only the parts that it uses: the [configuration](config), the [hooks], the
//! [ledger](crate::attempt) of attempts, the [slots], the [outbox] of notifications, and the
//! [lifecycle], whose phases it awaits. Nothing in memory must survive a crash: work that was not committed is done
//! again by another worker.

mod committer;
mod config;
mod connection;
mod end_rows;
mod hooks;
mod inbox;
mod isolation;
mod lifecycle;
mod listen;
mod local;
mod maintenance;
#[cfg(feature = "testing")]
pub(crate) mod manual;
mod marks;
mod outbox;
mod probe;
mod ranges;
mod recover;
mod renew;
mod report;
mod running_job;
mod schedule;
mod slots;
mod stretches;
mod supervisor;
mod takeover;
mod tick;
mod transaction;
mod watchdog;

use std::sync::Arc;
use std::time::Instant;

use apalis_core::worker::context::WorkerContext;
use chrono::{DateTime, Utc};
use tokio::sync::{Notify, RwLock};

use crate::attempt::{GroupLimits, Ledger};
use crate::{Result, channels};

use committer::Committer;
pub(crate) use config::Config;
pub use end_rows::{EndRow, FailedRow, end_jobs, positions};
pub(crate) use hooks::Hooks;
use hooks::MaintenanceCalls;
pub use hooks::{
    AfterCommit, ClaimHook, Effects, EndHook, EndSettings, Ended, FailedJob, MaintenanceTask,
    OfferedSlots, SlotOffer,
};
pub(crate) use inbox::Inbox;
pub(crate) use lifecycle::{Lifecycle, Phase};
use listen::Listener;
pub use local::HandOver;
use local::Local;
use maintenance::Maintenance;
pub use outbox::Notification;
use outbox::Outbox;
#[cfg(feature = "testing")]
pub use probe::{Moment, Probe};
use renew::Leases;
pub use running_job::RunningJob;
use schedule::Schedule;
pub(crate) use slots::{Slots, covers};
use tick::Ticker;
pub(crate) use watchdog::BLOCKING_THRESHOLD;

/// The parts of one worker's engine, each with one owner.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) config: Arc<Config>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) hooks: Arc<Hooks>,
    ledger: Arc<Ledger>,
    outbox: Arc<Outbox>,
    schedule: Arc<Schedule>,
    calls: Arc<MaintenanceCalls>,
    committer: Arc<Committer>,
}

impl Engine {
    pub(crate) fn new(
        config: Config,
        patterns: Vec<(String, u32)>,
        hooks: Hooks,
        limits: GroupLimits,
    ) -> Result<Self> {
        let work = Arc::<Notify>::default();
        let config = Arc::new(config);
        let slots = Arc::new(Slots::new(patterns, Arc::clone(&work))?);
        let calls = Arc::new(MaintenanceCalls::of(&hooks.maintenance));
        let hooks = Arc::new(hooks);
        let ledger = Arc::new(Ledger::new(limits, Arc::clone(&work)));
        let outbox = Arc::<Outbox>::default();
        let schedule = Arc::<Schedule>::default();
        let lifecycle = Arc::new(Lifecycle::new());
        let inbox = Arc::<Inbox>::default();
        let committer = Arc::new(Committer {
            config: Arc::clone(&config),
            hooks: Arc::clone(&hooks),
            ledger: Arc::clone(&ledger),
            slots: Arc::clone(&slots),
            outbox: Arc::clone(&outbox),
            schedule: Arc::clone(&schedule),
            lifecycle: Arc::clone(&lifecycle),
            inbox: Arc::clone(&inbox),
            work,
            claiming: RwLock::default(),
            local: Local::default(),
        });
        Ok(Self {
            config,
            slots,
            lifecycle,
            inbox,
            hooks,
            ledger,
            outbox,
            schedule,
            calls,
            committer,
        })
    }

    /// Starts the engine's tasks, once. apalis calls this when it first polls the worker, because a worker may be
    /// built outside of any runtime.
    pub(crate) fn start(self: &Arc<Self>, context: &WorkerContext) {
        if !self.lifecycle.was_started() && self.lifecycle.start(context) {
            tokio::spawn(supervisor::run(Arc::clone(self), context.clone()));
        }
    }

    /// Returns the application's handler of failed attempts.
    pub(crate) fn error_reporter(&self) -> Option<&crate::on_error::ErrorReporter> {
        self.hooks.error_reporter.as_deref()
    }

    /// Stops claiming. Running jobs have their grace period; after it, the engine hands them back.
    pub(crate) fn stop(&self) {
        self.lifecycle.advance(Phase::Draining);
    }

    fn ticker(&self) -> Ticker {
        Ticker {
            config: Arc::clone(&self.config),
            hooks: Arc::clone(&self.hooks),
            ledger: Arc::clone(&self.ledger),
            slots: Arc::clone(&self.slots),
            outbox: Arc::clone(&self.outbox),
            schedule: Arc::clone(&self.schedule),
            lifecycle: Arc::clone(&self.lifecycle),
        }
    }

    fn leases(&self) -> Leases {
        Leases {
            config: Arc::clone(&self.config),
            hooks: Arc::clone(&self.hooks),
            ledger: Arc::clone(&self.ledger),
            lifecycle: Arc::clone(&self.lifecycle),
        }
    }

    fn listener(&self) -> Listener {
        Listener {
            pool: self.config.pool.clone(),
            slots: Arc::clone(&self.slots),
            schedule: Arc::clone(&self.schedule),
            calls: Arc::clone(&self.calls),
            lifecycle: Arc::clone(&self.lifecycle),
        }
    }

    fn maintenance(&self) -> Maintenance {
        Maintenance {
            config: Arc::clone(&self.config),
            ledger: Arc::clone(&self.ledger),
            slots: Arc::clone(&self.slots),
            outbox: Arc::clone(&self.outbox),
            calls: Arc::clone(&self.calls),
            lifecycle: Arc::clone(&self.lifecycle),
        }
    }
}

/// Tells this worker and others that these queues got work, by a transaction that began after `begun`.
fn announce(slots: &Slots, outbox: &Outbox, queues: impl Iterator<Item = String>, begun: Instant) {
    announce_since(slots, outbox, queues, slots.marks.time_at(begun));
}

/// Tells this worker and others that these queues got work whose `run_at` is `since` or later.
fn announce_since(
    slots: &Slots,
    outbox: &Outbox,
    queues: impl Iterator<Item = String>,
    since: DateTime<Utc>,
) {
    outbox.push(queues.map(|queue| {
        slots.wake(&queue, since);
        Notification {
            channel: channels::JOBS,
            payload: listen::payload(&queue, since),
        }
    }));
}
