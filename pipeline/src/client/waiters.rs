//! Waits for the ends of runs, with one listener for all waiters of a client and its clones.
//!
//! A waiter is registered first, and then its run is queried, so that no end is missed in between. Notifications make
//! waiting fast. Once a second, all runs with waiters are queried, so that a lost notification does no harm.

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

/// The interval at which all runs with waiters are queried.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The number of polls without waiters after which the listener ends.
const MAX_IDLE_POLLS: u32 = 5;
/// The time limit of a query for ended runs. A query that takes longer counts as a lost connection.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay before the first reconnection.
const FIRST_RECONNECT_DELAY: Duration = Duration::from_millis(50);
/// The settings of the listener's session. Planning the listener's query costs more than executing it.
const SESSION_SETTINGS: &str = "set plan_cache_mode to force_generic_plan; set jit to off";

/// The waiters of all clients of this process. Workers of this process notify these waiters directly.
static PROCESS_WAITERS: Mutex<Vec<Weak<Waiters>>> = Mutex::new(Vec::new());

/// The end of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunEnd {
    /// The status with which the run ended; `None` if the run does not exist.
    pub(crate) status: Option<RunStatus>,
    /// The output of the run, if a worker of this process has passed it on.
    pub(crate) returned: Option<Returned>,
}

/// Returns the runs among `runs` for which a client of this process waits, at most `limit` of them.
pub(crate) fn waited_for(runs: &[i64], limit: usize) -> Vec<i64> {
    let all = of_process();
    let waits = |run: &i64| all.iter().any(|it| it.state.lock().is_waited_for(*run));
    if all.iter().all(|it| it.state.lock().waiting.is_empty()) {
        return Vec::new();
    }
    runs.iter().copied().filter(waits).take(limit).collect()
}

/// Notifies the waiters of this process that wait for these runs of this database.
pub(crate) fn tell(database: &str, ended: Vec<(i64, RunEnd)>) {
    let here = |it: &Arc<Waiters>| it.database.lock().as_deref() == Some(database);
    for waiters in of_process().iter().filter(|it| here(it)) {
        let mut state = waiters.state.lock();
        for (run, end) in &ended {
            state.tell(*run, end);
        }
    }
}

fn of_process() -> Vec<Arc<Waiters>> {
    PROCESS_WAITERS
        .lock()
        .iter()
        .filter_map(Weak::upgrade)
        .collect()
}

/// The waiters of one client and its clones.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
    /// Wakes the listener when a waiter has been added.
    added: Notify,
    /// The identity of the database, once it is known: `pipeline.database_id_v1`.
    database: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct State {
    /// The waiters by run and waiter number.
    waiting: BTreeMap<(i64, u64), oneshot::Sender<RunEnd>>,
    /// The runs that have not been queried since a waiter for them was added.
    fresh: Vec<i64>,
    /// The number of the last waiter.
    count: u64,
    /// Whether the listener runs.
    served: bool,
}

impl State {
    fn is_waited_for(&self, run: i64) -> bool {
        self.waiting
            .range((run, 0)..=(run, u64::MAX))
            .next()
            .is_some()
    }

    fn tell(&mut self, run: i64, end: &RunEnd) {
        while let Some((key, _)) = self.waiting.range((run, 0)..=(run, u64::MAX)).next() {
            let key = *key;
            if let Some(waiter) = self.waiting.remove(&key) {
                // The caller may have stopped waiting.
                let _ = waiter.send(end.clone());
            }
        }
    }
}

/// A registered waiter for one run. Dropping the waiter removes it.
pub(crate) struct Waiter {
    waiters: Arc<Waiters>,
    key: (i64, u64),
    end: oneshot::Receiver<RunEnd>,
}

impl Waiter {
    /// Waits until the run has ended. Returns an error if the listener has ended.
    pub(crate) async fn end(&mut self) -> Result<RunEnd, oneshot::error::RecvError> {
        (&mut self.end).await
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.waiters.state.lock().waiting.remove(&self.key);
    }
}

impl Waiters {
    /// Registers a waiter for a run, and starts the listener if it does not run.
    pub(crate) fn register(
        self: &Arc<Self>,
        pool: &PgPool,
        database: Option<String>,
        run: i64,
    ) -> Waiter {
        if database.is_some() {
            *self.database.lock() = database;
        }
        let (sender, end) = oneshot::channel();
        let mut state = self.state.lock();
        state.count += 1;
        let key = (run, state.count);
        state.waiting.insert(key, sender);
        state.fresh.push(run);
        let is_first = !std::mem::replace(&mut state.served, true);
        drop(state);
        if is_first {
            self.register_for_workers();
            let listener = Listener {
                waiters: self.clone(),
                ended: false,
            };
            // Spawned without the lock: a runtime that shuts down drops the task at once, and the drop takes the lock.
            tokio::spawn(listener.run(pool.clone()));
        }
        self.added.notify_one();
        Waiter {
            waiters: self.clone(),
            key,
            end,
        }
    }

    /// Makes these waiters known to the workers of this process.
    fn register_for_workers(self: &Arc<Self>) {
        let mut all = PROCESS_WAITERS.lock();
        all.retain(|other| other.strong_count() > 0);
        if !all.iter().any(|other| other.as_ptr() == Arc::as_ptr(self)) {
            all.push(Arc::downgrade(self));
        }
    }

    /// Returns all runs with waiters.
    fn all(&self) -> Vec<i64> {
        let mut state = self.state.lock();
        state.fresh.clear();
        let mut runs: Vec<i64> = state.waiting.keys().map(|(run, _)| *run).collect();
        runs.dedup();
        runs
    }

    /// Takes the runs that have not been queried since a waiter for them was added.
    fn fresh(&self) -> Vec<i64> {
        std::mem::take(&mut self.state.lock().fresh)
    }

    /// Returns the runs that a notification names and that have waiters.
    fn named_in(&self, text: &str) -> Vec<i64> {
        let state = self.state.lock();
        let runs = text.split(',').filter_map(|run| run.parse().ok());
        runs.filter(|run| state.is_waited_for(*run)).collect()
    }

    /// Queries these runs, and notifies the waiters of runs that have ended or do not exist.
    async fn query(&self, executor: impl PgExecutor<'_>, runs: &[i64]) -> Result<(), sqlx::Error> {
        if runs.is_empty() {
            return Ok(());
        }
        let rows = sqlx::query_file!("src/sql/runs_over.sql", runs).fetch_all(executor);
        let rows = tokio::time::timeout(QUERY_TIMEOUT, rows)
            .await
            .map_err(|elapsed| std::io::Error::new(std::io::ErrorKind::TimedOut, elapsed))??;
        for row in rows {
            let status = row.status.as_deref().map(str::parse).transpose()?;
            let returned = None;
            self.state.lock().tell(row.id, &RunEnd { status, returned });
        }
        Ok(())
    }
}

/// The task that listens for ended runs. If the task's runtime shuts down, the waiters see that their channels are
/// closed, and the first of them starts another listener.
struct Listener {
    waiters: Arc<Waiters>,
    ended: bool,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.ended {
            let mut state = self.waiters.state.lock();
            state.served = false;
            state.fresh.clear();
            state.waiting.clear();
        }
    }
}

impl Listener {
    async fn run(mut self, pool: PgPool) {
        // The listener has a connection of its own: all connections of the application's pool may be busy, also with
        // tasks that wait for runs.
        let own = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(Duration::from_secs(5))
            .after_connect(|connection, _| {
                Box::pin(async move {
                    sqlx::raw_sql(SESSION_SETTINGS).execute(connection).await?;
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
        let mut wait = FIRST_RECONNECT_DELAY;
        loop {
            let Err(error) = self.listen(own, &mut wait).await else {
                return;
            };
            tracing::warn!(%error, "cannot listen for ended runs; polling instead");
            // The server may accept no further connection: poll on a connection of the application's pool.
            match self.waiters.query(pool, &self.waiters.all()).await {
                Err(error @ sqlx::Error::Database(_)) if !is_transient(&error) => return,
                _ if self.end_if_idle() => return,
                _ => tokio::time::sleep(wait).await,
            }
            wait = (wait * 2).min(POLL_INTERVAL);
        }
    }

    /// Listens until there has been no waiter for [`MAX_IDLE_POLLS`] polls.
    async fn listen(&mut self, own: &PgPool, wait: &mut Duration) -> Result<(), sqlx::Error> {
        let mut listener = PgListener::connect_with(own).await?;
        listener.eager_reconnect(false);
        listener.listen(ENDED_RUNS_CHANNEL).await?;
        let database = sqlx::query_scalar!("select pipeline.database_id_v1()")
            .fetch_one(&mut listener)
            .await?;
        *self.waiters.database.lock() = database;
        *wait = FIRST_RECONNECT_DELAY;
        // The first tick is due at once: runs may have ended before the listener was connected.
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut idle = 0;
        loop {
            let runs = tokio::select! {
                received = listener.try_recv() => {
                    let received = received?.ok_or_else(lost)?;
                    let mut runs = self.waiters.named_in(received.payload());
                    while let Some(more) = listener.next_buffered() {
                        runs.extend(self.waiters.named_in(more.payload()));
                    }
                    runs
                }
                () = self.waiters.added.notified() => self.waiters.fresh(),
                _ = poll.tick() => {
                    let runs = self.waiters.all();
                    idle = if runs.is_empty() { idle + 1 } else { 0 };
                    if idle > MAX_IDLE_POLLS && self.end_if_idle() {
                        return Ok(());
                    }
                    runs
                }
            };
            self.waiters.query(&mut listener, &runs).await?;
        }
    }

    /// Ends the listener if there is no waiter. Returns whether the listener has ended.
    fn end_if_idle(&mut self) -> bool {
        let mut state = self.waiters.state.lock();
        self.ended = state.waiting.is_empty();
        state.served = !self.ended;
        self.ended
    }
}

fn lost() -> sqlx::Error {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}
