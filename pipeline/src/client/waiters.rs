//! Who waits for runs to end: one listener for all of them, whatever their number.
//!
//! A waiter leaves word of its run first, and then the run is looked at: so no end falls between the
//! two. Notifications make it quick; a look at all runs that are waited for, each second, makes it sure.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{PgExecutor, PgPool};
use tokio::sync::{Notify, oneshot};
use tokio::time::MissedTickBehavior;

use super::output::Returned;
use crate::RunStatus;
use crate::db::is_transient;
use crate::db::notifications::ENDED_RUNS_CHANNEL;

/// How often all are looked at.
const POLL: Duration = Duration::from_secs(1);
/// So many looks after the last waiter has gone, the listener goes too.
const LINGER: u32 = 5;
/// A look takes no longer unless the connection is lost.
const LOOK: Duration = Duration::from_secs(10);
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// To plan a look costs more than to look.
const PLANS: &str = "set plan_cache_mode to force_generic_plan; set jit to off";

/// The waiters of all clients of this process, which workers of this process tell directly.
static OF_PROCESS: Mutex<Vec<Weak<Waiters>>> = Mutex::new(Vec::new());

/// The end of a run.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    /// How the run ended; `None` if the run does not exist.
    pub(crate) status: Option<RunStatus>,
    /// What the run returned, if a worker of this process said so.
    pub(crate) returned: Option<Returned>,
}

/// Returns those of these runs for which a client of this process waits, at most `limit` of them.
pub(crate) fn waited_for(runs: &[i64], limit: usize) -> Vec<i64> {
    let all = of_process();
    let waits = |run: &i64| all.iter().any(|it| it.state.lock().is_waited_for(*run));
    if all.iter().all(|it| it.state.lock().waiting.is_empty()) {
        return Vec::new();
    }
    runs.iter().copied().filter(waits).take(limit).collect()
}

/// Tells the clients of this process that wait in this database about ended runs.
pub(crate) fn tell(database: &str, ended: Vec<(i64, Told)>) {
    let here = |it: &Arc<Waiters>| it.database.lock().as_deref() == Some(database);
    for waiters in of_process().iter().filter(|it| here(it)) {
        let mut state = waiters.state.lock();
        for (run, told) in &ended {
            state.tell(*run, told);
        }
    }
}

fn of_process() -> Vec<Arc<Waiters>> {
    OF_PROCESS.lock().iter().filter_map(Weak::upgrade).collect()
}

/// Those of one client and its clones.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
    /// Somebody has come to wait.
    came: Notify,
    /// The identity of the database, once it is known: `pipeline.database_id_v1`.
    database: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct State {
    /// By run, and a number of their own.
    waiting: BTreeMap<(i64, u64), oneshot::Sender<Told>>,
    /// Runs that have not been looked at since somebody came to wait for them.
    fresh: Vec<i64>,
    count: u64,
    /// Whether somebody listens.
    served: bool,
}

impl State {
    fn is_waited_for(&self, run: i64) -> bool {
        self.waiting
            .range((run, 0)..=(run, u64::MAX))
            .next()
            .is_some()
    }

    fn tell(&mut self, run: i64, told: &Told) {
        while let Some((key, _)) = self.waiting.range((run, 0)..=(run, u64::MAX)).next() {
            let key = *key;
            if let Some(waiter) = self.waiting.remove(&key) {
                // One that has gone meanwhile need not know.
                let _ = waiter.send(told.clone());
            }
        }
    }
}

/// A place among the waiters, given back when it is dropped.
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    key: (i64, u64),
    told: oneshot::Receiver<Told>,
}

impl Place {
    /// Waits until the run has ended. An error: nobody listens any more.
    pub(crate) async fn told(&mut self) -> Result<Told, oneshot::error::RecvError> {
        (&mut self.told).await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiters.state.lock().waiting.remove(&self.key);
    }
}

impl Waiters {
    /// Waits for a run from here on.
    pub(crate) fn join(
        self: &Arc<Self>,
        pool: &PgPool,
        database: Option<String>,
        run: i64,
    ) -> Place {
        if database.is_some() {
            *self.database.lock() = database;
        }
        let (tell, told) = oneshot::channel();
        let mut state = self.state.lock();
        state.count += 1;
        let key = (run, state.count);
        state.waiting.insert(key, tell);
        state.fresh.push(run);
        let is_first = !std::mem::replace(&mut state.served, true);
        drop(state);
        if is_first {
            self.join_process();
            let service = Service {
                waiters: self.clone(),
                ended: false,
            };
            // Not under the lock: a runtime that is ending drops it at once.
            tokio::spawn(service.run(pool.clone()));
        }
        self.came.notify_one();
        Place {
            waiters: self.clone(),
            key,
            told,
        }
    }

    /// Lets the workers of this process find these waiters.
    fn join_process(self: &Arc<Self>) {
        let mut all = OF_PROCESS.lock();
        all.retain(|other| other.strong_count() > 0);
        if !all.iter().any(|other| other.as_ptr() == Arc::as_ptr(self)) {
            all.push(Arc::downgrade(self));
        }
    }

    /// Every run that is waited for.
    fn all(&self) -> Vec<i64> {
        let mut state = self.state.lock();
        state.fresh.clear();
        let mut runs: Vec<i64> = state.waiting.keys().map(|(run, _)| *run).collect();
        runs.dedup();
        runs
    }

    fn fresh(&self) -> Vec<i64> {
        std::mem::take(&mut self.state.lock().fresh)
    }

    /// Those of a notification that are waited for.
    fn named_in(&self, text: &str) -> Vec<i64> {
        let state = self.state.lock();
        let runs = text.split(',').filter_map(|run| run.parse().ok());
        runs.filter(|run| state.is_waited_for(*run)).collect()
    }

    /// Looks at these runs, and tells those who wait for one that is over or not there.
    async fn look(&self, executor: impl PgExecutor<'_>, runs: &[i64]) -> Result<(), sqlx::Error> {
        if runs.is_empty() {
            return Ok(());
        }
        let rows = sqlx::query_file!("src/sql/runs_over.sql", runs).fetch_all(executor);
        let rows = tokio::time::timeout(LOOK, rows)
            .await
            .map_err(|elapsed| std::io::Error::new(std::io::ErrorKind::TimedOut, elapsed))??;
        for row in rows {
            let status = row.status.as_deref().map(str::parse).transpose()?;
            let returned = None;
            self.state.lock().tell(row.id, &Told { status, returned });
        }
        Ok(())
    }
}

/// The one that listens. Where it ends before its time, because its runtime does, those who wait see
/// that their word is gone, and another takes its place.
struct Service {
    waiters: Arc<Waiters>,
    ended: bool,
}

impl Drop for Service {
    fn drop(&mut self) {
        if !self.ended {
            let mut state = self.waiters.state.lock();
            state.served = false;
            state.fresh.clear();
            state.waiting.clear();
        }
    }
}

impl Service {
    async fn run(mut self, pool: PgPool) {
        // Not one of the application's: those may all be busy, perhaps with waiting for us.
        let own = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(Duration::from_secs(5))
            .after_connect(|connection, _| {
                Box::pin(async move {
                    sqlx::raw_sql(PLANS).execute(connection).await?;
                    Ok(())
                })
            })
            .connect_lazy_with(
                (*pool.connect_options())
                    .clone()
                    .application_name("pipeline"),
            );
        tokio::select! {
            () = pool.close_event() => {}
            () = self.serve(&own, &pool) => {}
        }
        drop(self);
        own.close().await;
    }

    async fn serve(&mut self, own: &PgPool, pool: &PgPool) {
        let mut wait = FIRST_WAIT;
        loop {
            let Err(error) = self.listen(own, &mut wait).await else {
                return;
            };
            tracing::warn!(%error, "not listening for the ends of runs; the poll goes on");
            // The server may have no room for one more connection: then one of the application's.
            match self.waiters.look(pool, &self.waiters.all()).await {
                Err(error @ sqlx::Error::Database(_)) if !is_transient(&error) => return,
                _ if self.has_ended() => return,
                _ => tokio::time::sleep(wait).await,
            }
            wait = (wait * 2).min(POLL);
        }
    }

    /// Returns when nobody has waited for a while.
    async fn listen(&mut self, own: &PgPool, wait: &mut Duration) -> Result<(), sqlx::Error> {
        let mut listener = PgListener::connect_with(own).await?;
        listener.eager_reconnect(false);
        listener.listen(ENDED_RUNS_CHANNEL).await?;
        let database = sqlx::query_scalar!("select pipeline.database_id_v1()")
            .fetch_one(&mut listener)
            .await?;
        *self.waiters.database.lock() = database;
        *wait = FIRST_WAIT;
        // The first look comes at once: runs may have ended before we listened.
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut idle = 0;
        loop {
            let runs = tokio::select! {
                heard = listener.try_recv() => {
                    let heard = heard?.ok_or_else(lost)?;
                    let mut runs = self.waiters.named_in(heard.payload());
                    while let Some(more) = listener.next_buffered() {
                        runs.extend(self.waiters.named_in(more.payload()));
                    }
                    runs
                }
                () = self.waiters.came.notified() => self.waiters.fresh(),
                _ = poll.tick() => {
                    let runs = self.waiters.all();
                    idle = if runs.is_empty() { idle + 1 } else { 0 };
                    if idle > LINGER && self.has_ended() {
                        return Ok(());
                    }
                    runs
                }
            };
            self.waiters.look(&mut listener, &runs).await?;
        }
    }

    /// Ends if nobody waits.
    fn has_ended(&mut self) -> bool {
        let mut state = self.waiters.state.lock();
        self.ended = state.waiting.is_empty();
        state.served = !self.ended;
        self.ended
    }
}

fn lost() -> sqlx::Error {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}
