//! The workers of this process, to which a client of the same process can hand over jobs that it inserts.
//!
//! The client reserves slots, inserts the jobs as claimed by the worker, and after the commit starts them here: no
//! notification, no claim. Three things keep a job from being lost:
//!
//! - The client draws the tokens, and the ledger expects them before the statement is sent: a committer that
//!   reconnects meanwhile does not give the claims back.
//! - A hand-over is offered for the database that the worker was last connected to. The statement compares that with
//!   its own database and otherwise only enqueues the jobs: a hand-over never crosses two databases.
//! - A hand-over that is dropped while its result is unknown makes the committer give back what the ledger does not
//!   know, as after a lost connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::PgConnection;
use tokio::sync::OwnedSemaphorePermit;

use super::committer::Committer;
use super::connection::EngineConnection;
use super::hooks::AfterCommit;
use super::lifecycle::Phase;
use super::probe::Moment;
use super::recover::lease_is_half_over;
use crate::attempt::{Claimed, Envelope, Ledger, TransactionGuard};

/// How long a hand-over may keep its slots while its statement is under way. A start with a key may wait for
/// another transaction; the slots are not to wait with it.
const MAX_SLOT_WAIT: Duration = Duration::from_secs(1);

/// The workers of this process that have been started.
static WORKERS: Mutex<Vec<Weak<Committer>>> = Mutex::new(Vec::new());

/// The state of a worker that the clients of its process read and change.
#[derive(Debug, Default)]
pub(crate) struct Local {
    /// The identity of the database that the committer was last connected to: `pipeline.database_id_v1`.
    database: Mutex<Option<String>>,
    /// Whether claims that the ledger does not know are to be given back.
    has_unknown: AtomicBool,
}

impl Local {
    /// Asks the database for its identity.
    pub(super) async fn connected(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let database = sqlx::query_scalar!("select pipeline.database_id_v1()")
            .fetch_one(connection)
            .await?;
        *self.database.lock() = database;
        Ok(())
    }

    /// Makes the calls that follow from a committed transaction.
    pub(super) async fn call(&self, calls: Vec<AfterCommit>, connection: &mut EngineConnection) {
        if calls.is_empty() {
            return;
        }
        let database = self.database.lock().clone();
        let (Some(database), Ok(connection)) = (database, connection.get().await) else {
            return;
        };
        for call in calls {
            call.call(connection, &database).await;
        }
    }

    /// Asks the next transaction of any committer to give back claims that the ledger does not know.
    pub(super) fn note_unknown(&self) {
        self.has_unknown.store(true, Ordering::Release);
    }

    /// Returns whether claims that the ledger does not know are to be given back, once.
    pub(super) fn take_unknown(&self) -> bool {
        self.has_unknown.swap(false, Ordering::AcqRel)
    }
}

/// Returns the workers of this process that have been started.
pub(super) fn workers() -> Vec<Arc<Committer>> {
    WORKERS.lock().iter().filter_map(Weak::upgrade).collect()
}

/// Lets the clients of this process find a worker.
pub(super) fn register(committer: &Arc<Committer>) {
    let mut workers = WORKERS.lock();
    workers.retain(|worker| worker.strong_count() > 0);
    workers.push(Arc::downgrade(committer));
}

/// Jobs that are about to be inserted as claimed by a worker of this process.
#[derive(Debug)]
pub struct HandOver {
    committer: Arc<Committer>,
    database: String,
    /// The slot of each job, by the job's token.
    seats: HashMap<i64, OwnedSemaphorePermit>,
    /// Keeps the worker from ending while the statement is under way.
    under_way: Option<TransactionGuard<Arc<Ledger>>>,
    sent: Option<Instant>,
}

impl HandOver {
    /// Returns an empty hand-over to each worker of this process that serves this database and takes work.
    pub fn candidates(database: &str) -> Vec<Self> {
        let workers = workers();
        let serves = |worker: &Arc<Committer>| {
            worker.local.database.lock().as_deref() == Some(database)
                && worker.hooks.claims_owned_jobs()
                && worker.config.worker() != 0
        };
        let workers = workers.into_iter().filter(serves);
        workers
            .filter_map(|committer| {
                let under_way = committer.ledger.owned_transaction();
                // Shutdown closes the worker to work first, then looks for open transactions.
                (!committer.is_full()).then(|| Self {
                    database: database.to_owned(),
                    seats: HashMap::new(),
                    under_way: Some(under_way),
                    sent: None,
                    committer,
                })
            })
            .collect()
    }

    /// Reserves a slot for a job of this type. Returns the token of its attempt; `None` if the job has to queue.
    pub fn reserve(&mut self, queue: &str, kind: &str, version: u32, priority: i16) -> Option<i64> {
        let committer = &self.committer;
        let knows = committer.config.job_types.iter().any(|known| known == kind)
            && committer.config.registry.knows(kind, version);
        if !knows {
            return None;
        }
        let slots = committer.slots.get(committer.slots.pattern_of(queue)?);
        let slot = slots.reserve_one(priority)?;
        let token = fastrand::i64(1..=i64::MAX);
        committer.ledger.expect(token);
        self.seats.insert(token, slot);
        Some(token)
    }

    /// Returns the worker's id.
    pub fn worker(&self) -> i64 {
        self.committer.config.worker()
    }

    /// Returns the identity of the worker's database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Awaits the statement that inserts the jobs. The slots are released if the statement takes long.
    pub async fn send<T>(&mut self, statement: impl Future<Output = T>) -> T {
        self.sent = Some(Instant::now());
        let mut statement = std::pin::pin!(statement);
        if let Ok(answer) = tokio::time::timeout(MAX_SLOT_WAIT, &mut statement).await {
            return answer;
        }
        self.release();
        statement.await
    }

    /// Notes that the worker has no claim of this hand-over: none was made, or the caller has given it back.
    pub fn unused(mut self) {
        self.sent = None;
    }

    /// Starts the jobs, which were inserted as claimed by the worker. Returns `false` if the worker cannot start
    /// them any more: the caller then gives the claims back.
    pub async fn begin(&mut self, jobs: Vec<Claimed>) -> bool {
        let Some(sent) = self.sent.filter(|_| self.under_way.is_some()) else {
            return false;
        };
        let committer = Arc::clone(&self.committer);
        if committer.lifecycle.has_reached(Phase::Flushing)
            || lease_is_half_over(&jobs, sent.elapsed())
        {
            return false;
        }
        committer.hooks.probe(Moment::HandedOver, jobs.len()).await;
        let mut envelopes = Vec::with_capacity(jobs.len());
        for job in jobs {
            let (token, resolved) = (job.token, committer.config.registry.resolve(&job));
            let slot = self.seats.remove(&token);
            envelopes.extend(Envelope::claimed(
                job,
                resolved,
                &committer.ledger,
                slot,
                sent,
            ));
            committer.ledger.forget_expected(token);
        }
        self.sent = None;
        committer.receive(envelopes);
        true
    }

    /// Releases the slots, and lets the worker end.
    fn release(&mut self) {
        for (token, slot) in self.seats.drain() {
            drop(slot);
            self.committer.ledger.forget_expected(token);
        }
        self.under_way = None;
        self.committer.work.notify_one();
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        self.release();
        if self.sent.is_some() {
            self.committer.local.note_unknown();
            self.committer.slots.wake_all();
        }
    }
}
