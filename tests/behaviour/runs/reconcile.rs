//! The reconciler: work that manual changes of rows have stopped ends with a reason; without such changes the
//! reconciler finds nothing.
//!
//! Shown with a reconciler that looks every few milliseconds, and rows that are changed by hand.

use std::sync::Arc;
use std::time::Duration;

use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Client, Continue, Error, Ignore, Pipeline, ReconcilerStats, Run, Worker};
use serde::{Deserialize, Serialize};
use tests::{Database, with_database};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::graphs::topologies::shapes::{
    self, Add, Both, Break, Decide, Make, Mend, OrElse, ParityArms, Sum,
};
use crate::jobs::support::eventually;

/// Waits until the test lets it through.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(queue = "gate", lease = "60s")]
struct Hold;

impl Perform for Hold {
    type Input = ();
    type Output = i64;
    async fn perform(self, (): (), cx: &Context) -> Result<i64, JobError> {
        let gate = cx.data::<Arc<Semaphore>>()?;
        gate.acquire().await?.forget();
        Ok(1)
    }
}

/// Fails at first.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(max_attempts = 3, backoff = "fixed(1ms)")]
struct Flaky;

impl Perform for Flaky {
    type Input = i64;
    type Output = i64;
    async fn perform(self, number: i64, cx: &Context) -> Result<i64, JobError> {
        if cx.attempt() < 3 {
            return Err("not yet".into());
        }
        Ok(number)
    }
}

/// A worker whose reconciler looks all the time.
struct Looking {
    gate: Arc<Semaphore>,
    stop: CancellationToken,
    task: JoinHandle<pipeline::Result<()>>,
}

impl Looking {
    /// It serves these queues only.
    fn start(db: &Database, queues: &[&str]) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let stop = CancellationToken::new();
        let mut worker = Worker::new(db.pool().clone())
            .register::<(
                Hold,
                Flaky,
                Make,
                Add,
                Sum,
                Both,
                OrElse,
                Break,
                Decide,
                Mend,
            )>()
            .data(Arc::clone(&gate))
            .reconcile_every(Duration::from_millis(10));
        for queue in queues {
            worker = worker.queue(*queue, 16);
        }
        Self {
            gate,
            task: tokio::spawn(worker.run_until(stop.clone().cancelled_owned())),
            stop,
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn client(db: &Database) -> Client {
    Client::new(db.pool().clone())
}

async fn health(db: &Database) -> ReconcilerStats {
    client(db).reconciler_stats().await.unwrap()
}

/// `hold` and `add` after it, and beside them `beside`.
fn declared() -> Pipeline<i64> {
    Pipeline::configure("by_hand", |p| {
        p.step("beside", Hold);
        p.step("hold", Hold).then("add", Add(1))
    })
    .unwrap()
}

/// Something done by hand to a run.
async fn by_hand<O>(db: &Database, run: &Run<O>, statement: &'static str) {
    let done = sqlx::query(statement).bind(run.id()).execute(db.pool());
    assert_eq!(done.await.unwrap().rows_affected(), 1, "{statement}");
}

const DELETE_HOLD: &str = "delete from pipeline.jobs where id = pipeline.step_id($1, 1)";

async fn status<O>(db: &Database, run: &Run<O>) -> String {
    sqlx::query_scalar("select status::text from pipeline.runs where id = $1")
        .bind(run.id())
        .fetch_one(db.pool())
        .await
        .unwrap()
}

/// Each step's status, and the class of its error where it failed.
async fn steps<O>(db: &Database, run: &Run<O>) -> Vec<String> {
    sqlx::query_scalar(
        "select concat_ws(' ', step, status, error_class) from pipeline.run_steps
         where run = $1 order by no",
    )
    .bind(run.id())
    .fetch_all(db.pool())
    .await
    .unwrap()
}

async fn message<O>(db: &Database, run: &Run<O>, step: &str) -> String {
    sqlx::query_scalar("select error_message from pipeline.run_steps where run = $1 and step = $2")
        .bind(run.id())
        .bind(step)
        .fetch_one(db.pool())
        .await
        .unwrap()
}

async fn comes_to<O>(db: &Database, run: &Run<O>, wanted: &str) {
    eventually(&format!("the run is {wanted}"), async || {
        (status(db, run).await == wanted).then_some(())
    })
    .await;
}

async fn is_running(db: &Database, run: &Run<i64>) {
    eventually("both gates are reached", async || {
        let running: i64 = sqlx::query_scalar(
            "select count(*) from pipeline.jobs
             where pipeline.run_of(id) = $1 and id % 2 = 0 and status = 'running'",
        )
        .bind(run.id())
        .fetch_one(db.pool())
        .await
        .unwrap();
        (running == 2).then_some(())
    })
    .await;
}

async fn found(db: &Database, count: u64) {
    eventually("it is found", async || {
        (health(db).await.found == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_step_whose_queue_row_was_deleted_fails_and_its_run_goes_on_from_there() {
    with_database(async |db| {
        let run = client(db).start(declared()).await.unwrap();
        by_hand(db, &run, DELETE_HOLD).await;
        let worker = Looking::start(db, &["gate", "default"]);
        found(db, 1).await;
        assert_eq!(
            steps(db, &run).await,
            ["beside enqueued", "hold failed QueueRowLost", "add skipped"]
        );
        let said = message(db, &run, "hold").await;
        assert!(
            said.contains("step `hold` (job ") && said.contains("run.reopen()"),
            "{said}"
        );
        // What had started before it runs on.
        worker.gate.add_permits(1);
        comes_to(db, &run, "halted").await;
        // A pass notes its time first, so that the next pass is the first one after the find.
        eventually("another pass follows", async || {
            let health = health(db).await;
            (health.found_at.is_some() && health.acted_at >= health.found_at).then_some(())
        })
        .await;
        worker.stop().await;
        assert_eq!(health(db).await.found, 1);
    })
    .await;
}

#[tokio::test]
async fn a_strategy_decides_what_follows_from_a_lost_row_as_from_any_failure() {
    with_database(async |db| {
        let carry_on = Pipeline::configure("carry_on", |p| {
            p.failure_strategy(Continue);
            p.step("beside", Make(1)).then("after_beside", Add(1));
            p.step("hold", Hold).then("add", Add(1))
        });
        let ignored = Pipeline::configure("ignored", |p| {
            p.step("beside", Make(1));
            let hold = p.step("hold", Hold).failure_strategy(Ignore);
            p.after(&hold).step("or_else", OrElse(7))
        });
        let run = client(db).start(carry_on.unwrap()).await.unwrap();
        let other = client(db).start(ignored.unwrap()).await.unwrap();
        let by_key = "delete from pipeline.jobs j using pipeline.run_steps s
                      where s.run = $1 and s.step = 'hold' and j.id = s.batch";
        by_hand(db, &run, by_key).await;
        by_hand(db, &other, by_key).await;
        let worker = Looking::start(db, &["default"]);
        comes_to(db, &run, "failed").await;
        comes_to(db, &other, "failed").await;
        worker.stop().await;
        let mut all = steps(db, &run).await;
        all.sort();
        assert_eq!(
            all,
            [
                "add skipped",
                "after_beside succeeded",
                "beside succeeded",
                "hold failed QueueRowLost"
            ]
        );
        let mut all = steps(db, &other).await;
        all.sort();
        assert_eq!(
            all,
            [
                "beside succeeded",
                "hold failed QueueRowLost",
                "or_else succeeded"
            ]
        );
    })
    .await;
}

#[tokio::test]
async fn the_end_of_an_attempt_whose_row_was_deleted_comes_too_late() {
    with_database(async |db| {
        let run = client(db).start(declared()).await.unwrap();
        let worker = Looking::start(db, &["gate", "default"]);
        is_running(db, &run).await;
        by_hand(db, &run, DELETE_HOLD).await;
        found(db, 1).await;
        // Both succeed now; one of them is late.
        worker.gate.add_permits(2);
        comes_to(db, &run, "halted").await;
        worker.stop().await;
        assert_eq!(
            steps(db, &run).await,
            [
                "beside succeeded",
                "hold failed QueueRowLost",
                "add skipped"
            ]
        );
        let ends: i64 =
            sqlx::query_scalar("select count(*) from pipeline.events where run = $1 and step = 1")
                .bind(run.id())
                .fetch_one(db.pool())
                .await
                .unwrap();
        assert_eq!(ends, 1, "the step ended once");
        assert_eq!(health(db).await.found, 1);
    })
    .await;
}

#[tokio::test]
async fn a_queue_row_that_no_step_can_have_is_deleted_and_its_step_fails() {
    let spoils = [
        (
            "update pipeline.jobs set status = 'failed', ended_at = pipeline.now(),
                    error_class = 'Mine', error_message = 'by hand'
             where id = pipeline.step_id($1, 1)",
            "it is failed",
        ),
        (
            "update pipeline.jobs set job_type = 'make' where id = pipeline.step_id($1, 1)",
            "its type is `make` and not `hold`",
        ),
        (
            "update pipeline.jobs set lease_ms = 0 where id = pipeline.step_id($1, 1)",
            "its lease is 0 ms long",
        ),
    ];
    with_database(async |db| {
        for (at, (spoil, detail)) in spoils.into_iter().enumerate() {
            let run = client(db).start(declared()).await.unwrap();
            by_hand(db, &run, spoil).await;
            let worker = Looking::start(db, &["default"]);
            found(db, at as u64 + 1).await;
            assert_eq!(steps(db, &run).await[1], "hold failed QueueRowSpoiled");
            let said = message(db, &run, "hold").await;
            assert!(said.contains(detail), "{said}");
            worker.stop().await;
            let left: Vec<i64> =
                sqlx::query_scalar("select pipeline.no_of(id)::bigint from pipeline.jobs")
                    .fetch_all(db.pool())
                    .await
                    .unwrap();
            assert_eq!(left, [0], "the row of `beside` alone");
            let worker = Looking::start(db, &["gate"]);
            worker.gate.add_permits(1);
            comes_to(db, &run, "halted").await;
            worker.stop().await;
        }
    })
    .await;
}

#[tokio::test]
async fn counts_that_were_changed_are_set_right() {
    let spoils = [
        "update pipeline.runs set live_steps = live_steps + 1 where id = $1",
        "update pipeline.runs set live_steps = live_steps - 2 where id = $1",
        "update pipeline.steps set open_edges = 7 where run = $1 and no = 2",
    ];
    with_database(async |db| {
        for (at, spoil) in spoils.into_iter().enumerate() {
            let run = client(db).start(declared()).await.unwrap();
            by_hand(db, &run, spoil).await;
            let worker = Looking::start(db, &["gate", "default"]);
            found(db, at as u64 + 1).await;
            worker.gate.add_permits(2);
            comes_to(db, &run, "succeeded").await;
            worker.stop().await;
        }
        assert_eq!(health(db).await.found, 3);
    })
    .await;
}

#[tokio::test]
async fn what_a_step_has_seen_is_counted_again_with_what_it_waits_for() {
    with_database(async |db| {
        let run = Pipeline::configure("seen", |p| {
            p.failure_strategy(Continue);
            let one = p.step("one", Hold);
            let other = p.step("other", Hold);
            p.following((&one, &other)).step("last", Make(1))
        });
        let run = client(db).start(run.unwrap()).await.unwrap();
        // Somebody decides that the first has failed; nobody tells those after it.
        by_hand(
            db,
            &run,
            "update pipeline.steps set status = 'failed', ended_at = pipeline.now(),
                    error_class = 'Mine', error_message = 'by hand'
             where run = $1 and no = 0",
        )
        .await;
        by_hand(
            db,
            &run,
            "delete from pipeline.jobs where id = pipeline.step_id($1, 0)",
        )
        .await;
        let worker = Looking::start(db, &["gate", "default"]);
        found(db, 2).await;
        worker.gate.add_permits(1);
        comes_to(db, &run, "failed").await;
        worker.stop().await;
        assert_eq!(
            steps(db, &run).await,
            ["one failed Mine", "other succeeded", "last skipped"]
        );
    })
    .await;
}

/// Scenarios: T185
#[tokio::test]
async fn a_step_that_nobody_will_decide_about_fails_and_a_run_without_a_live_step_ends() {
    let succeed =
        "update pipeline.steps set status = 'succeeded', output = '1', ended_at = pipeline.now()
                   where run = $1 and no = 1";
    with_database(async |db| {
        let run = client(db).start(declared()).await.unwrap();
        by_hand(db, &run, succeed).await;
        by_hand(db, &run, DELETE_HOLD).await;
        let worker = Looking::start(db, &["gate", "default"]);
        // The step after it, and the run's count.
        found(db, 2).await;
        worker.gate.add_permits(1);
        comes_to(db, &run, "halted").await;
        assert_eq!(
            steps(db, &run).await,
            [
                "beside succeeded",
                "hold succeeded",
                "add failed StepUndecided"
            ]
        );
        worker.stop().await;

        let single = Pipeline::configure("single", |p| {
            p.step("first", Make(1));
            p.step("hold", Hold)
        });
        let run = client(db).start(single.unwrap()).await.unwrap();
        by_hand(
            db,
            &run,
            "update pipeline.steps set status = 'succeeded', output = '1', ended_at = pipeline.now()
             where run = $1 and no = 1",
        )
        .await;
        by_hand(db, &run, DELETE_HOLD).await;
        let worker = Looking::start(db, &["default"]);
        comes_to(db, &run, "succeeded").await;
        worker.stop().await;
        let events: Vec<String> = sqlx::query_scalar(
            "select no || ' ' || status from pipeline.events where run = $1 order by no",
        )
        .bind(run.id())
        .fetch_all(db.pool())
        .await
        .unwrap();
        assert_eq!(events, ["1 running", "2 succeeded", "3 succeeded"]);
    })
    .await;
}

#[tokio::test]
async fn one_run_that_cannot_be_set_right_does_not_keep_the_others_from_it() {
    with_database(async |db| {
        let stuck = client(db).start(declared()).await.unwrap();
        let other = client(db).start(declared()).await.unwrap();
        // Its next event has a number that is taken.
        by_hand(
            db,
            &stuck,
            "insert into pipeline.events (run, no, at, status) values ($1, 2, pipeline.now(), 'x')",
        )
        .await;
        by_hand(db, &stuck, DELETE_HOLD).await;
        by_hand(db, &other, DELETE_HOLD).await;
        let worker = Looking::start(db, &["gate", "default"]);
        eventually("the other is set right", async || {
            (steps(db, &other).await[1] == "hold failed QueueRowLost").then_some(())
        })
        .await;
        assert_eq!(steps(db, &stuck).await[1], "hold enqueued");
        by_hand(
            db,
            &stuck,
            "delete from pipeline.events where run = $1 and status = 'x'",
        )
        .await;
        worker.gate.add_permits(2);
        comes_to(db, &stuck, "halted").await;
        comes_to(db, &other, "halted").await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_run_that_somebody_holds_is_left_for_the_next_time() {
    with_database(async |db| {
        let run = client(db).start(declared()).await.unwrap();
        by_hand(db, &run, DELETE_HOLD).await;
        let mut holder = db.pool().begin().await.unwrap();
        sqlx::query("select from pipeline.runs where id = $1 for no key update")
            .bind(run.id())
            .execute(&mut *holder)
            .await
            .unwrap();
        let worker = Looking::start(db, &["gate", "default"]);
        eventually("it passes by twice", async || {
            (health(db).await.passes >= 2).then_some(())
        })
        .await;
        assert_eq!(health(db).await.found, 0);
        holder.rollback().await.unwrap();
        found(db, 1).await;
        worker.gate.add_permits(1);
        comes_to(db, &run, "halted").await;
        worker.stop().await;
    })
    .await;
}

/// Whether a pass was made, and how many runs it looked at.
async fn pass(
    connection: &mut sqlx::PgConnection,
    every: Duration,
    runs: i32,
    steps: i64,
) -> (bool, i32) {
    sqlx::query_as("select passed, checked from pipeline.reconcile_runs_v1(1, $1, $2, $3)")
        .bind(i64::try_from(every.as_millis()).unwrap())
        .bind(runs)
        .bind(steps)
        .fetch_one(connection)
        .await
        .unwrap()
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn one_acts_at_a_time_and_not_before_it_is_time() {
    with_database(async |db| {
        let mut one = db.pool().begin().await.unwrap();
        let mut other = db.pool().acquire().await.unwrap();
        assert!(pass(&mut one, HOUR, 10, 10).await.0);
        assert!(!pass(&mut other, HOUR, 10, 10).await.0, "one is at it");
        one.commit().await.unwrap();
        assert!(!pass(&mut other, HOUR, 10, 10).await.0, "it is not time");
        db.move_clock(HOUR).await;
        assert!(pass(&mut other, HOUR, 10, 10).await.0);
        assert_eq!(health(db).await.passes, 2);
    })
    .await;
}

#[tokio::test]
async fn live_runs_are_looked_at_page_by_page_and_then_from_the_beginning() {
    with_database(async |db| {
        let runs = client(db).start(vec![declared(); 5]).await.unwrap();
        let mut connection = db.pool().acquire().await.unwrap();
        let mut pages = Vec::new();
        for _ in 0..5 {
            let (passed, checked) = pass(&mut connection, HOUR, 2, 1_000).await;
            assert!(passed);
            pages.push(checked);
            db.move_clock(HOUR).await;
        }
        assert_eq!(pages, [2, 2, 1, 2, 2]);
        // A page also ends with the run that makes it so many steps and edges: four of each run.
        let (_, checked) = pass(&mut connection, HOUR, 10, 5).await;
        assert_eq!(checked, 1, "what was left of the round");
        db.move_clock(HOUR).await;
        let (_, checked) = pass(&mut connection, HOUR, 10, 5).await;
        assert_eq!(checked, 2);
        drop(connection);
        let worker = Looking::start(db, &["gate", "default"]);
        worker.gate.add_permits(10);
        for run in &runs {
            comes_to(db, run, "succeeded").await;
        }
        worker.stop().await;
        assert_eq!(health(db).await.found, 0);
    })
    .await;
}

/// What one pass is to look at: run, first step, last step, whether these are its last.
async fn parts(
    connection: &mut sqlx::PgConnection,
    units: i64,
) -> Vec<(pipeline::RunId, i32, i32, bool)> {
    sqlx::query_as(
        "select part.* from pipeline.reconcile_runs_v1(1, 3600000, 10, $1) as pass
         cross join lateral unnest(pass.runs, pass.firsts, pass.lasts, pass.is_end) as part",
    )
    .bind(units)
    .fetch_all(connection)
    .await
    .unwrap()
}

/// Five steps, none of which is enqueued but the first.
fn line() -> Pipeline<i64> {
    Pipeline::configure("line", |p| {
        let first = p.step("s0", Make(0)).delay(HOUR);
        (1..5).fold(first, |up, n| up.then(&format!("s{n}"), Add(1)))
    })
    .unwrap()
}

#[tokio::test]
async fn a_large_run_is_looked_at_in_parts_and_the_next_run_comes_after_it() {
    with_database(async |db| {
        let large = client(db).start(line()).await.unwrap();
        let small = client(db).start(declared()).await.unwrap();
        let mut connection = db.pool().acquire().await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(parts(&mut connection, 4).await);
            db.move_clock(HOUR).await;
        }
        let (large, small) = (large.id(), small.id());
        // Its steps and the edges that lead to them are 1, 2, 2, 2, 2.
        assert_eq!(seen[0], [(large, 0, 1, false)]);
        assert_eq!(seen[1], [(large, 2, 3, false)]);
        assert_eq!(seen[2], [(large, 4, 4, true), (small, 0, 2, true)]);
        assert_eq!(seen[3], [], "the end of the round");
        assert_eq!(parts(&mut connection, 4).await, [(large, 0, 1, false)]);
    })
    .await;
}

/// The look comes after the pass, in a transaction of its own: one that fails does not hold the others up.
#[tokio::test]
async fn a_run_that_cannot_be_looked_at_is_passed_by() {
    with_database(async |db| {
        let client = client(db);
        let runs = client.start(vec![declared(); 3]);
        let runs = runs.await.unwrap();
        let mut connection = db.pool().acquire().await.unwrap();
        for run in &runs {
            let looked_at = parts(&mut connection, 4).await;
            assert_eq!(looked_at, [(run.id(), 0, 2, true)]);
            let mut tx = db.pool().begin().await.unwrap();
            sqlx::query(
                "select pipeline.runs_to_check_v1(array[$1], '{0}', '{2}', '{true}'), 1 / 0",
            )
            .bind(run.id())
            .execute(&mut *tx)
            .await
            .unwrap_err();
            db.move_clock(HOUR).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_find_each_thing_once() {
    with_database(async |db| {
        let runs = client(db).start(vec![declared(); 40]).await.unwrap();
        let workers = [
            Looking::start(db, &["gate", "default"]),
            Looking::start(db, &["gate", "default"]),
        ];
        for run in &runs {
            by_hand(db, run, DELETE_HOLD).await;
        }
        for worker in &workers {
            worker.gate.add_permits(80);
        }
        for run in &runs {
            comes_to(db, run, "halted").await;
        }
        assert_eq!(health(db).await.found, 40);
        for worker in workers {
            worker.stop().await;
        }
    })
    .await;
}

/// Retries, a failure, a branch, a fan-in.
fn busy() -> Pipeline<i64> {
    Pipeline::configure("busy", |p| {
        p.failure_strategy(Continue);
        let made = p.step("make", Make(2));
        let flaky = made.then("flaky", Flaky);
        let broken = flaky.then("break", Break).optional();
        let way = made.branch(
            "decide",
            Decide,
            ParityArms {
                even: || flaky.then("even", Add(1)),
                odd: || flaky.then("odd", Add(2)),
            },
        );
        p.after(&broken).step("or_else", OrElse(1));
        way.then("last", Add(1))
    })
    .unwrap()
}

/// Does not end within the hour.
fn patient() -> Pipeline<i64> {
    Pipeline::configure("patient", |p| {
        p.step("make", Make(2)).then("flaky", Flaky);
        p.step("later", Make(1)).delay(HOUR)
    })
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_busy_normal_life_it_finds_nothing() {
    with_database(async |db| {
        let workers = [Looking::start(db, &["*"]), Looking::start(db, &["default"])];
        for _ in 0..6 {
            let client = client(db);
            client.start(vec![busy(); 20]).await.unwrap();
            for (_, declare) in shapes::all() {
                client.start(declare().unwrap()).await.unwrap();
            }
            let patient = client.start(vec![patient(); 5]).await.unwrap();
            for run in &patient {
                let chain = client.start(busy()).then(busy()).then((busy(), busy()));
                let first = chain.await.unwrap();
                run.cancel().await.unwrap();
                match first.chained().await.unwrap()[0].cancel().await {
                    Ok(()) | Err(Error::NotCancellable { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            for run in &patient {
                comes_to(db, run, "cancelled").await;
                run.reopen().await.unwrap();
            }
        }
        db.move_clock(HOUR).await;
        eventually("all runs end", async || {
            let live: i64 =
                sqlx::query_scalar("select count(*) from pipeline.runs where ended_at is null")
                    .fetch_one(db.pool())
                    .await
                    .unwrap();
            (live == 0).then_some(())
        })
        .await;
        for worker in workers {
            worker.stop().await;
        }
        let health = health(db).await;
        assert_eq!(health.found, 0, "{health:?}");
        assert!(health.passes > 0 && health.checked > 0, "{health:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_upstream_somebody_deleted_is_skipped() {
    with_database(async |db| {
        let client = client(db);
        let run = client.start(declared()).then(declared()).await.unwrap();
        let chained = run.chained().await.unwrap()[0].clone();
        // All that is of it, as somebody tidies up.
        for statement in [
            "delete from pipeline.jobs where id >> 18 = $1 and id % 2 = 0",
            "delete from pipeline.steps where run = $1",
            "delete from pipeline.events where run = $1",
            "delete from pipeline.runs where id = $1",
        ] {
            let done = sqlx::query(statement).bind(run.id()).execute(db.pool());
            done.await.unwrap();
        }
        let it = Looking::start(db, &["*"]);
        let limit = Duration::from_secs(30);
        let status = chained.wait().timeout(limit).await.unwrap();
        assert_eq!(status, pipeline::RunStatus::Skipped);
        assert!(health(db).await.found >= 1);
        it.stop().await;
    })
    .await;
}
