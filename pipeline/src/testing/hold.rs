//! Holding a step while a test looks at the middle of a run.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use jobs::Envelope;
use jobs::testing::{Moment, Probe};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Harness;
use crate::StepContext as _;

impl Harness {
    /// Holds the steps with this key, in all runs: their jobs do not start until the returned guard is released or
    /// dropped. [`run_until_idle`](Self::run_until_idle) then runs everything else, so that a test can look at the
    /// middle of a run.
    ///
    /// A held job is enqueued: its attempt is not counted, and its timeout does not pass. While
    /// [`run_until_idle`](Self::run_until_idle) is awaited, each held job occupies one of the harness's
    /// [slots](super::Setup::slots).
    ///
    /// ```no_run
    /// # use pipeline::{Pipeline, testing::Harness};
    /// # async fn example(harness: Harness, order: Pipeline) -> Result<(), Box<dyn std::error::Error>> {
    /// let charge = harness.hold_step("charge");
    /// let run = harness.client().start(order).await?;
    /// harness.run_until_idle().await?;
    /// harness.assert(&run).await?.running().step("reserve").succeeded().step("charge").enqueued();
    ///
    /// charge.release();
    /// harness.run_until_idle().await?;
    /// harness.assert(&run).await?.succeeded();
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn hold_step(&self, key: impl Into<String>) -> HeldStep {
        let id = self.holds.add(key.into(), Location::caller());
        HeldStep {
            holds: Arc::clone(&self.holds),
            id,
        }
    }
}

/// Holds a step until it is released or dropped. Created by [`Harness::hold_step`].
#[must_use = "the step is held only as long as this value lives"]
pub struct HeldStep {
    holds: Arc<Holds>,
    id: u64,
}

impl HeldStep {
    /// Lets the step run, the next time that the harness runs.
    pub fn release(self) {}
}

impl Drop for HeldStep {
    fn drop(&mut self) {
        self.holds.remove(self.id);
    }
}

impl fmt::Debug for HeldStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldStep").finish_non_exhaustive()
    }
}

/// One call of `hold_step` that has not been released.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    id: u64,
    pub(super) step: String,
    pub(super) at: &'static Location<'static>,
}

/// All holds of a harness, and the jobs that wait for their release.
#[derive(Debug)]
pub(super) struct Holds {
    holds: watch::Sender<Vec<Hold>>,
    waiting: Mutex<BTreeSet<i64>>,
}

impl Holds {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            holds: watch::Sender::new(Vec::new()),
            waiting: Mutex::default(),
        })
    }

    fn add(&self, step: String, at: &'static Location<'static>) -> u64 {
        let mut id = 0;
        self.holds.send_modify(|holds| {
            id = holds.last().map_or(0, |last| last.id + 1);
            holds.push(Hold { id, step, at });
        });
        id
    }

    fn remove(&self, id: u64) {
        self.holds
            .send_modify(|holds| holds.retain(|hold| hold.id != id));
    }

    /// Returns the holds that have not been released.
    pub(super) fn all(&self) -> Vec<Hold> {
        self.holds.borrow().clone()
    }

    /// Returns the ids of the jobs that wait for a release.
    pub(super) fn waiting(&self) -> Vec<i64> {
        self.waiting.lock().iter().copied().collect()
    }
}

impl Probe for Holds {
    fn at(&self, _: Moment, _: usize) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn before_attempt<'a>(&'a self, attempt: &'a Envelope) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(step) = attempt.step() else {
                return;
            };
            let is_free = |holds: &Vec<Hold>| holds.iter().all(|hold| hold.step != step);
            let mut holds = self.holds.subscribe();
            if is_free(&holds.borrow_and_update()) {
                return;
            }
            let _waiting = WaitingJob::new(&self.waiting, attempt.id().get());
            // The sender lives as long as `self`.
            let _ = holds.wait_for(is_free).await;
        })
    }
}

/// A job that waits for a release. An attempt that is dropped meanwhile no longer waits.
struct WaitingJob<'a> {
    jobs: &'a Mutex<BTreeSet<i64>>,
    id: i64,
}

impl<'a> WaitingJob<'a> {
    fn new(jobs: &'a Mutex<BTreeSet<i64>>, id: i64) -> Self {
        jobs.lock().insert(id);
        Self { jobs, id }
    }
}

impl Drop for WaitingJob<'_> {
    fn drop(&mut self) {
        self.jobs.lock().remove(&self.id);
    }
}
