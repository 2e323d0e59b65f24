//! Rows are held, and other work must not notice.
//!
//! Three workers have a steady backlog of plain jobs, batches, diamonds and chains (see [`load`]). Free
//! windows and held ones take turns. Before a held window sessions outside lock runs, batches and queue
//! rows (see [`locks`]), and two more worker processes are started: one is frozen inside a transaction
//! that holds runs, one is asked to stop (see [`victims`]). So the same three workers are at work in
//! every window, and the speed of the work that nobody holds can be compared. During the held window
//! other rows are locked for moments. After it everything is let go.
//!
//! In the end everything must have ended as it had to, once; only attempts of those two processes may have
//! lost their lease. Then a run is cancelled while many workers advance it (see [`cancel`]).

mod cancel;
mod load;
mod locks;
mod victims;

use std::cell::Cell;
use std::time::{Duration, Instant};

use sqlx::PgPool;

use super::crew::{Crew, retire};
use super::runs::record::{self, Tally};
use super::runs::{SLOTS, crew_of};
use super::{END_TIMEOUT, close_with};
use crate::frame::{Report, Result, median};
use load::{FREE, HELD, Load, Window, speed};
use locks::{Held, Locks, lock_briefly};
use victims::{Frozen, STOP_LIMIT};

/// Options of `bench -- chaos held`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// How many held windows, each between two free ones.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The length of a free window in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    free: u64,
    /// The length of a held window in seconds. Locks and frozen processes last a few seconds longer.
    #[arg(long, default_value_t = 45, value_parser = clap::value_parser!(u64).range(1..))]
    held: u64,
    /// How many runs are cancelled while many workers advance them.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    cancels: u32,
    /// How many steps each of these runs has.
    #[arg(long, default_value_t = 30_000)]
    steps: usize,
}

const WORKERS: usize = 3;
/// How long held work may take to end after it was let go.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);
/// Work that nobody holds ends within this time, or within half of the held window if that is longer.
const LATE: Duration = Duration::from_secs(8);

pub(super) async fn run(options: Options) -> Result<()> {
    let mut crew = crew_of(WORKERS).await?;
    let pool = crew.pool().clone();
    let mut load = Load::new(&pool);
    let mut bench = Bench::new(&pool, &options);
    let began = Instant::now();
    let done = Cell::new(false);
    let story = async {
        bench.rounds(&mut crew).await?;
        done.set(true);
        Ok(())
    };
    let fed = load.feed(&done);
    futures_util::future::try_join(story, fed).await?;

    if !crew.all_ended(END_TIMEOUT).await? {
        bench.say(format!(
            "not all has ended {END_TIMEOUT:?} after everything was let go"
        ));
    }
    bench.violations.extend(crew.dismiss().await?);
    println!(
        "{} rounds under {WORKERS} workers of {SLOTS} slots, in {:.1} s: {} rows held by sessions; {} \
         processes frozen inside a transaction, which held {} runs and {} queue rows; {} processes \
         stopped while rows were held, in {:?}",
        options.rounds,
        began.elapsed().as_secs_f64(),
        bench.locked,
        bench.frozen.len(),
        bench.frozen_rows.0,
        bench.frozen_rows.1,
        bench.stopped.len(),
        bench.stop_times,
    );
    let ratio = speed(&pool, &bench.windows, &bench.held.runs, &bench.held.jobs).await?;
    let mut violations = bench.check(&crew, load).await?;
    println!("{}\n", Tally::of(&pool).await?);

    let second = crew.second_database().await?;
    let cancels = cancel::cancels(&second, options.cancels, options.steps).await?;
    println!(
        "cancels of a run of {} steps: {:.0?} ms\n",
        options.steps, cancels.milliseconds
    );
    violations.extend(cancels.violations);
    violations.extend(record::invariants(&second).await?);
    second.close().await;
    pool.close().await;
    let mut report = Report::default();
    report.ratio("chaos/held_speed", ratio);
    report.value("chaos/cancel_ms", median(cancels.milliseconds));
    close_with(report, "chaos/held", &violations)
}

struct Bench<'a> {
    options: &'a Options,
    held: Held,
    windows: Vec<Window>,
    /// Process numbers.
    frozen: Vec<i32>,
    stopped: Vec<i32>,
    /// Those that did not stop when they were asked to.
    killed: Vec<i32>,
    stop_times: Vec<Duration>,
    locked: usize,
    frozen_rows: (usize, usize),
    violations: Vec<String>,
}

impl<'a> Bench<'a> {
    fn new(pool: &PgPool, options: &'a Options) -> Self {
        Self {
            options,
            held: Held::new(pool),
            windows: Vec::new(),
            frozen: Vec::new(),
            stopped: Vec::new(),
            killed: Vec::new(),
            stop_times: Vec::new(),
            locked: 0,
            frozen_rows: (0, 0),
            violations: Vec::new(),
        }
    }

    fn say(&mut self, violation: String) {
        self.violations.push(violation);
    }

    async fn rounds(&mut self, crew: &mut Crew) -> Result<()> {
        // The first jobs find cold caches.
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.free(crew).await?;
        for _ in 0..self.options.rounds {
            self.held(crew).await?;
            self.free(crew).await?;
        }
        Ok(())
    }

    async fn free(&mut self, crew: &Crew) -> Result<()> {
        let time = Duration::from_secs(self.options.free);
        let window = Window::over(FREE, crew.pool(), async {
            tokio::time::sleep(time).await;
            Ok(())
        });
        self.windows.push(window.await?);
        Ok(())
    }

    async fn held(&mut self, crew: &mut Crew) -> Result<()> {
        let frozen = self.freeze(crew).await?;
        let mut locks = Locks::default();
        self.held.lock_queue_rows(crew, &mut locks).await?;
        // Started only now: with a queue row that is locked it could write no end, and the long lease of
        // that job would have to run out.
        let (mut stopping, pid) = victims::start(crew).await?;
        self.held.lock_runs_and_batches(crew, &mut locks).await?;
        self.locked += locks.rows;
        self.violations.extend(locks.missed.iter().cloned());
        // Long enough for ends of held work to be waiting.
        tokio::time::sleep(Duration::from_secs(1)).await;
        match retire(&mut stopping, STOP_LIMIT).await? {
            Some(took) => {
                self.stopped.push(pid);
                self.stop_times.push(took);
            }
            None => {
                self.killed.push(pid);
                self.say(format!(
                    "a worker has not stopped in {STOP_LIMIT:?} while rows were held"
                ));
            }
        }

        let time = Duration::from_secs(self.options.held);
        let window = Window::over(HELD, crew.pool(), async {
            let brief = [lock_briefly(crew, time), lock_briefly(crew, time)];
            futures_util::future::try_join_all(brief).await?;
            Ok(())
        });
        self.windows.push(window.await?);
        let late = late(crew.pool(), &self.held, time.div_f64(2.0).max(LATE)).await?;
        self.violations.extend(late);

        locks.release().await?;
        self.violations.extend(frozen.thaw().await?);
        for left in self.held.all_ended(RELEASE_TIMEOUT).await? {
            self.say(format!("{left} {RELEASE_TIMEOUT:?} after it was let go"));
        }
        Ok(())
    }

    /// Freezes a worker process, and notes which rows it holds.
    async fn freeze(&mut self, crew: &mut Crew) -> Result<Frozen> {
        let (process, pid) = victims::start(crew).await?;
        self.frozen.push(pid);
        let frozen = Frozen::catch(crew, process).await?;
        if frozen.xids.is_empty() {
            self.say("no process could be frozen inside a transaction that holds a run".to_owned());
            return Ok(frozen);
        }
        let (runs, jobs) = frozen.holds(crew.pool()).await?;
        self.frozen_rows.0 += runs.len();
        self.frozen_rows.1 += jobs.len();
        self.held.runs.extend(runs);
        self.held.jobs.extend(jobs);
        Ok(frozen)
    }

    /// Everything that is wrong in the end.
    async fn check(self, crew: &Crew, mut load: Load) -> Result<Vec<String>> {
        let (pool, lines) = (crew.pool(), crew.lines()?);
        let mut violations = self.violations;
        violations.extend(record::check(pool, &lines).await?);
        let dead = [self.frozen, self.killed].concat();
        violations.extend(lost_without_cause(pool, &dead, &self.stopped, &self.held).await?);
        load.naps.absorb(self.held.naps);
        load.naps.absorb(self.held.slow);
        load.diamonds.absorb(self.held.diamonds);
        load.chains.absorb(self.held.chains);
        violations.extend(load.diamonds.check(pool).await?);
        violations.extend(load.chains.check(pool).await?);
        let verdict = load.naps.check(pool, &lines).await?;
        println!("plain jobs: {}", verdict.summary);
        violations.extend(verdict.violations);
        Ok(violations)
    }
}

/// Counts work that nobody holds and that has not ended though it is older than `age`. The other runs of
/// a held run's chain count as held: an advance locks them together.
async fn late(pool: &PgPool, held: &Held, age: Duration) -> Result<Vec<String>> {
    let late: Vec<(String, i64)> = sqlx::query_as(
        "with recursive held (run) as (
             select unnest($1::bigint[])
             union
             select case c.upstream when h.run then c.downstream else c.upstream end
             from pipeline.chains c join held h on h.run in (c.upstream, c.downstream)
         )
         select 'runs', count(*) from pipeline.runs
         where ended_at is null and created_at < clock_timestamp() - $3 * interval '1 s'
           and id not in (select run from held)
         union all
         select 'plain jobs', count(*) from pipeline.jobs
         where ended_at is null and created_at < clock_timestamp() - $3 * interval '1 s'
           and job_type = 'chaos.nap' and id <> all ($2)",
    )
    .bind(&held.runs)
    .bind(&held.jobs)
    .bind(age.as_secs_f64())
    .fetch_all(pool)
    .await?;
    Ok(late
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| {
            format!("{count} {what} that nobody holds have not ended after {age:?}")
        })
        .collect())
}

/// Attempts on record as lost whose worker was alive: neither frozen nor killed, nor stopped with work that
/// was held.
async fn lost_without_cause(
    pool: &PgPool,
    dead: &[i32],
    stopped: &[i32],
    held: &Held,
) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar(
        "select format('job %s of batch %s: attempt %s is on record as lost at %s, and its worker (%s, process \
                        %s) was alive', a.job, coalesce(j.batch::text, '-'), a.attempt, a.ended_at, a.worker, w.pid)
         from pipeline.attempts a
         left join pipeline.workers w on w.id = a.worker
         left join pipeline.jobs j on j.id = a.job
         where a.error_class = 'WorkerDied'
           and (w.pid = any ($1)) is not true
           and (w.pid = any ($2) and (a.job = any ($4) or a.job % 2 = 0
                                                          and pipeline.run_of(a.job) = any ($3)))
               is not true
         order by a.job, a.attempt",
    )
    .bind(dead)
    .bind(stopped)
    .bind(&held.runs)
    .bind(&held.jobs)
    .fetch_all(pool)
    .await?)
}
