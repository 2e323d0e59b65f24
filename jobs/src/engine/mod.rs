//! The engine: one for each worker, on a few connections of its own.
//!
//! | task | what it does |
//! |---|---|
//! | [`turn`] | ends attempts in groups, and claims new ones (in one [`transaction`]); a second one helps when many wait |
//! | [`tick`] | turns what is due ready, finds lost leases, tells others of work |
//! | [`renew`] | renews leases, and stops jobs whose lease is lost |
//! | [`listen`] | hears of new work |
//!
//! They share [`Shared`], and talk to each other through it alone. Nothing in it must survive: what
//! was not committed happens again elsewhere.

pub mod by_hand;
mod chores;
mod ends;
mod lines;
mod link;
mod listen;
mod marks;
mod probe;
mod ranges;
mod recover;
mod renew;
mod settle;
mod stretches;
mod tick;
mod transaction;
mod turn;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use apalis_core::worker::context::WorkerContext;
use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::backend::{Claimed, Control, Envelope, Inbox, Why};
use crate::registry::Registry;

pub use ends::{Came, End};
pub(crate) use ends::{Chances, Verb, judge, storable};
pub(crate) use lines::{Line, Reserved, covers};
use marks::Marks;
pub use probe::{Moment, Probe};
pub use settle::{Chore, LoadInput, News, Offer, Offered, Settle, Settled};

/// How long a worker that stops tries to write down its last ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a worker was told.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) pool: PgPool,
    pub(crate) name: String,
    pub(crate) host: String,
    /// Only job types like one of these, as patterns of SQL's LIKE.
    pub(crate) only: Option<Vec<String>>,
    pub(crate) keep_succeeded: bool,
    pub(crate) grace: Duration,
    pub(crate) poll: Duration,
    pub(crate) unknown_after: Duration,
    /// The most ends in one transaction.
    pub(crate) group: usize,
    /// The most bytes of large args that a claim takes for one queue.
    pub(crate) claim_bytes: i64,
    pub(crate) probe: Option<Arc<dyn Probe>>,
}

/// An attempt that was claimed for us and has not ended, whether it has started or not.
#[derive(Debug)]
pub(crate) struct Alive {
    pub(crate) id: i64,
    pub(crate) control: Arc<Control>,
    pub(crate) lease: Duration,
    /// When we last sent for the lease that we hold.
    pub(crate) renewed: Instant,
}

/// What the engine's tasks and the attempts share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) lines: Vec<Line>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) settle: Vec<Arc<dyn Settle>>,
    pub(crate) load: Vec<Arc<dyn LoadInput>>,
    pub(crate) chores: Vec<Arc<dyn Chore>>,
    /// The job types that are known and taken.
    pub(crate) kinds: Vec<String>,
    pub(crate) inbox: Inbox,
    /// By token.
    pub(crate) alive: Mutex<HashMap<i64, Alive>>,
    /// Ends that wait for the next turn.
    ends: Mutex<Vec<End>>,
    /// The tokens of those that a turn has taken.
    in_flight: Mutex<HashSet<i64>>,
    /// Read by turns, from what they send until what they claimed is known.
    turning: tokio::sync::RwLock<()>,
    /// Many ends wait.
    many: Notify,
    /// Reported, and not committed yet.
    uncommitted: AtomicUsize,
    /// Begun here and stopped with their leases.
    pub(crate) lapsed: Mutex<HashSet<i64>>,
    /// Lost leases that are being taken over from here.
    lost: Mutex<HashSet<i64>>,
    /// What other processes must hear of.
    news: Mutex<HashSet<News>>,
    /// Calls chores before their time, by channel.
    calls: HashMap<&'static str, Notify>,
    next_due: Mutex<Option<Instant>>,
    /// Where the queue is known to hold nothing ready.
    marks: Marks,
    /// The tick is to look there, too.
    sweep_asked: AtomicBool,
    worker: OnceLock<i64>,
    closed_at: OnceLock<Instant>,
    /// apalis's view of the worker; it can be paused there.
    context: OnceLock<WorkerContext>,
    started: AtomicBool,
    /// Why the worker cannot run on this database.
    pub(crate) refusal: Mutex<Option<Error>>,
    /// It cannot.
    pub(crate) refused: CancellationToken,
    /// Wakes the turn.
    signal: Notify,
    /// Wakes the tick.
    tick_now: Notify,
    /// Others are to hear something, now.
    news_now: Notify,
    /// Tells the tick that something is due earlier than it thinks.
    due_changed: Notify,
    /// Nothing more is claimed.
    pub(crate) stopping: CancellationToken,
    /// Nothing runs any more: what is left is to be committed, and soon.
    closing: CancellationToken,
    /// All is committed: the other tasks can end, too.
    drained: CancellationToken,
    /// They have, and the worker's row says that it stopped.
    pub(crate) finished: CancellationToken,
}

impl Shared {
    pub(crate) fn new(
        settings: Settings,
        mut lines: Vec<Line>,
        registry: Arc<Registry>,
        settle: Vec<Arc<dyn Settle>>,
        load: Vec<Arc<dyn LoadInput>>,
        chores: Vec<Arc<dyn Chore>>,
        kinds: Vec<String>,
    ) -> Self {
        lines::most_specific_first(&mut lines);
        Self {
            settings,
            lines,
            registry,
            settle,
            load,
            calls: chores
                .iter()
                .filter_map(|chore| Some((chore.channel()?, Notify::new())))
                .collect(),
            chores,
            kinds,
            inbox: Inbox::default(),
            alive: Mutex::default(),
            ends: Mutex::default(),
            in_flight: Mutex::default(),
            turning: tokio::sync::RwLock::default(),
            many: Notify::new(),
            uncommitted: AtomicUsize::new(0),
            lapsed: Mutex::default(),
            lost: Mutex::default(),
            news: Mutex::default(),
            next_due: Mutex::default(),
            marks: Marks::default(),
            sweep_asked: AtomicBool::new(false),
            worker: OnceLock::new(),
            closed_at: OnceLock::new(),
            context: OnceLock::new(),
            started: AtomicBool::new(false),
            refusal: Mutex::default(),
            refused: CancellationToken::new(),
            signal: Notify::new(),
            tick_now: Notify::new(),
            news_now: Notify::new(),
            due_changed: Notify::new(),
            stopping: CancellationToken::new(),
            closing: CancellationToken::new(),
            drained: CancellationToken::new(),
            finished: CancellationToken::new(),
        }
    }

    /// Starts the engine's tasks, once. Called when the worker is first polled: it may have been
    /// built outside of any runtime.
    pub(crate) fn start(self: &Arc<Self>, worker: &WorkerContext) {
        if self.started.load(Ordering::Acquire) || self.started.swap(true, Ordering::AcqRel) {
            return;
        }
        let _ = self.context.set(worker.clone());
        tokio::spawn(supervise(Arc::clone(self), worker.clone()));
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Stops claiming. What runs gets its grace; then it is handed back.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
        self.signal.notify_one();
    }

    /// The database is not one that the worker can run on, for now: told once.
    fn refuse(&self, error: Error) {
        let mut refusal = self.refusal.lock();
        if refusal.is_none() {
            tracing::error!(%error, worker = self.settings.name, "the worker cannot run");
            *refusal = Some(error);
            self.refused.cancel();
        }
    }

    /// Whether nothing more is to be claimed, for now or for good.
    fn is_closed_to_work(&self) -> bool {
        self.stopping.is_cancelled() || self.context.get().is_some_and(WorkerContext::is_paused)
    }

    fn worker(&self) -> i64 {
        self.worker.get().copied().unwrap_or(0)
    }

    pub(crate) fn patterns(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|line| line.pattern.as_str())
    }

    fn queues_json(&self) -> serde_json::Value {
        self.lines
            .iter()
            .map(|line| serde_json::json!({ "queue": line.pattern, "slots": line.slots }))
            .collect()
    }

    /// Takes an attempt's end. It will be written, whatever comes.
    pub(crate) fn report(&self, end: End) {
        self.uncommitted.fetch_add(1, Ordering::AcqRel);
        let waiting = {
            let mut ends = self.ends.lock();
            ends.push(end);
            ends.len()
        };
        self.signal.notify_one();
        if self.are_many(waiting) {
            self.many.notify_one();
        }
    }

    /// Whether so many ends wait that a second connection helps. A few are better off in one group, and
    /// so is a small part of all that are on their way.
    fn are_many(&self, waiting: usize) -> bool {
        waiting >= turn::MANY.max(self.uncommitted() / turn::SHARE)
    }

    /// Ends that another transaction keeps from being written join the next turn.
    fn hold(&self, held: Vec<End>) {
        self.ends.lock().extend(held);
    }

    /// Whether all that is left are ends that another transaction holds up.
    fn is_held_up(&self) -> bool {
        let ends = self.ends.lock();
        !ends.is_empty() && ends.iter().all(|end| end.held_since.is_some())
    }

    fn committed(&self, count: usize) {
        self.uncommitted.fetch_sub(count, Ordering::AcqRel);
        if self.closing.is_cancelled() {
            // It may have been the last that was waited for.
            self.signal.notify_one();
        }
    }

    fn uncommitted(&self) -> usize {
        self.uncommitted.load(Ordering::Acquire)
    }

    /// Whether there is nothing left to do, and nothing will come.
    fn is_drained(&self) -> bool {
        if !self.closing.is_cancelled() {
            return false;
        }
        // While nobody can come or go: an attempt reports before it goes, and a turn counts as
        // uncommitted until what it has claimed is here.
        let alive = self.alive.lock();
        alive.is_empty() && self.uncommitted() == 0
    }

    /// The tokens of everything that was claimed for us and that we know of.
    fn known_tokens(&self) -> Vec<i64> {
        // In this order: an attempt that ends goes from the one to the other.
        let mut tokens: Vec<i64> = self.alive.lock().keys().copied().collect();
        let ends = self.ends.lock();
        tokens.extend(ends.iter().map(End::token));
        tokens.extend(self.in_flight.lock().iter());
        drop(ends);
        tokens.extend(self.lapsed.lock().iter());
        tokens
    }

    /// There may be work in this queue whose `run_at` is this or later.
    pub(crate) fn wake(&self, queue: &str, since: DateTime<Utc>) {
        self.marks.cut(queue, since);
        self.wake_line(queue);
    }

    fn wake_line(&self, queue: &str) {
        for line in self.lines.iter().filter(|line| line.matches(queue)) {
            line.wake();
        }
        self.signal.notify_one();
    }

    pub(crate) fn wake_all(&self) {
        self.lines.iter().for_each(Line::wake);
        self.signal.notify_one();
    }

    /// There may be work anywhere: asks for all of it, and has the tick look where nothing was seen.
    pub(crate) fn sweep_now(&self) {
        self.sweep_asked.store(true, Ordering::Release);
        self.wake_all();
        self.tick_now.notify_one();
    }

    /// A job comes back after this time: the tick must not be later.
    fn due_in(&self, wait: Option<Duration>) {
        let Some(at) = wait.and_then(|wait| Instant::now().checked_add(wait)) else {
            return;
        };
        let mut next = self.next_due.lock();
        if next.is_none_or(|known| at < known) {
            *next = Some(at);
            drop(next);
            self.due_changed.notify_one();
        }
    }

    /// Others, and we ourselves, hear that these queues got work by a transaction that was begun not
    /// before this moment.
    fn announce(&self, queues: impl Iterator<Item = String>, begun: Instant) {
        self.announce_since(queues, self.marks.time_at(begun));
    }

    /// The same of work whose `run_at` is this or later.
    fn announce_since(&self, queues: impl Iterator<Item = String>, since: DateTime<Utc>) {
        let told = |queue: String| {
            self.wake(&queue, since);
            News {
                channel: listen::CHANNEL,
                text: listen::payload(&queue, since),
            }
        };
        self.tell(queues.map(told));
    }

    /// Other processes hear of it, soon.
    fn tell(&self, news: impl Iterator<Item = News>) {
        let mut all = self.news.lock();
        let before = all.len();
        all.extend(news);
        if all.len() > before {
            drop(all);
            self.news_now.notify_one();
        }
    }

    /// These jobs are to stop, where they run here.
    fn ask_to_stop(&self, jobs: &[i64]) {
        if jobs.is_empty() {
            return;
        }
        let jobs: HashSet<i64> = jobs.iter().copied().collect();
        for alive in self.alive.lock().values() {
            if jobs.contains(&alive.id) {
                alive.control.ask_to_stop();
            }
        }
    }

    /// Ends when a chore is called on its channel.
    async fn called(&self, channel: Option<&'static str>) {
        match channel.and_then(|channel| self.calls.get(channel)) {
            Some(call) => call.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Whether this worker takes jobs that are steps of runs.
    fn takes_steps(&self) -> bool {
        self.settle.iter().any(|settle| settle.takes_steps())
    }

    async fn probe(&self, moment: Moment, count: usize) {
        if let Some(probe) = &self.settings.probe {
            probe.at(moment, count).await;
        }
    }

    /// Gives each claimed job its slot and sends it on its way.
    fn start_claimed(&self, claimed: Vec<Claimed>, mut reserved: Vec<Reserved>, sent: Instant) {
        let mut tasks = Vec::with_capacity(claimed.len());
        let Some(shared) = self.inbox.owner() else {
            return;
        };
        for job in claimed {
            let line = usize::try_from(job.line - 1).unwrap_or(usize::MAX);
            let permit = reserved.get_mut(line).and_then(|r| r.permits.split(1));
            tasks.push(Envelope::claimed(job, Arc::clone(&shared), permit, sent));
        }
        for reserved in reserved {
            // All that we asked for came, or nobody was asked because all was handed over: there may
            // be more.
            if reserved.permits.num_permits() == 0 && reserved.claims {
                self.lines[reserved.line].wake();
            }
        }
        self.inbox.push(tasks);
        self.signal.notify_one();
    }

    pub(crate) fn gone(&self, token: i64) {
        self.alive.lock().remove(&token);
        // A slot may be free now, and work may wait for it.
        self.signal.notify_one();
    }

    /// Whether it is time to leave what cannot be written to those who take over: the worker is
    /// stopping, and the database has not answered for a while.
    fn gives_up(&self) -> bool {
        self.closed_at
            .get()
            .is_some_and(|at| at.elapsed() >= PATIENCE)
    }
}

/// The engine's life: register, run, and at the end bring everything home.
async fn supervise(shared: Arc<Shared>, worker: WorkerContext) {
    let pool = link::own_pool(&shared.settings.pool.connect_options());
    let mut first = link::Link::new(pool.clone());
    // Asking is the only way: apalis tells a backend of a stop only when no job runs any more.
    let stop_asked = {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            while !worker.is_shutting_down() && !shared.stopping.is_cancelled() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            shared.stop();
        })
    };
    if tick::register(&shared, &mut first).await {
        let mut renewals = link::Link::new(pool.clone());
        renew::connect(&mut renewals).await;
        let tasks = [
            tokio::spawn(turn::run(
                Arc::clone(&shared),
                link::Link::new(pool.clone()),
            )),
            tokio::spawn(turn::assist(
                Arc::clone(&shared),
                link::Link::new(pool.clone()),
            )),
            tokio::spawn(tick::run(Arc::clone(&shared), first)),
            tokio::spawn(renew::run(Arc::clone(&shared), renewals)),
        ];
        let chores = chores::spawn(&shared, &pool);
        let listener = tokio::spawn(listen::run(Arc::clone(&shared), pool.clone()));
        shared.stopping.cancelled().await;
        bring_home(&shared).await;
        let _ = shared.closed_at.set(Instant::now());
        shared.closing.cancel();
        shared.signal.notify_one();
        for task in tasks.into_iter().chain(chores) {
            let _ = task.await;
        }
        listener.abort();
    }
    shared.finished.cancel();
    stop_asked.abort();
    pool.close().await;
}

/// What was claimed and has not started goes back at once, also where the claim is still on its way;
/// what runs is asked to stop, has its grace, and is then handed back.
async fn bring_home(shared: &Shared) {
    let controls = || -> Vec<Arc<Control>> {
        let alive = shared.alive.lock();
        alive
            .values()
            .map(|alive| Arc::clone(&alive.control))
            .collect()
    };
    let began = Instant::now();
    loop {
        let grace_is_over = began.elapsed() >= shared.settings.grace;
        drop(shared.inbox.drain());
        for control in controls() {
            control.ask_to_stop();
            if grace_is_over {
                control.kill(Why::Shutdown);
            }
        }
        let is_home = grace_is_over || shared.lines.iter().all(Line::is_idle);
        if is_home && shared.alive.lock().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
