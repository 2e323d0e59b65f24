//! The first steps of a start are handed over to a worker of the same process that has a free slot.
//!
//! A handed-over step is claimed by the statement that inserts it: no notification is sent, and no claim follows.

use std::sync::Arc;
use std::time::Duration;

use ::jobs::testing::Moment;
use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Client, Pipeline, Run, RunStatus, Worker};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgListener;
use tests::{Database, with_database};

use super::start::says;
use super::support::{Running, What, act, eventually};
use crate::jobs::proxy::Proxy;
use crate::jobs::support::Watch;

/// A worker that no poll wakes during a test, and that has handed over a first step before.
async fn worker(db: &Database, set_up: impl FnOnce(Worker) -> Worker) -> (Running, Arc<Watch>) {
    let watch = Arc::<Watch>::default();
    let it = Running::start_with(db, |worker| {
        set_up(worker.poll(Duration::from_secs(10))).probe(watch.clone())
    });
    while handed_over(&watch) == 0 {
        let run = it.client.start(says("warm", "w")).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
    }
    (it, watch)
}

fn handed_over(watch: &Watch) -> usize {
    watch.counts(Moment::HandedOver).iter().sum()
}

/// The status, the attempt and the worker of a run's first step in the queue.
async fn queued<O>(db: &Database, run: &Run<O>) -> (String, i16, Option<i64>) {
    sqlx::query_as("select status::text, attempt, worker from pipeline.jobs where id = $1 << 18")
        .bind(run.id())
        .fetch_one(db.pool())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_step_starts_without_a_notification_and_without_a_claim() {
    with_database(async |db| {
        let (it, watch) = worker(db, |worker| worker).await;
        it.script.tell("x", What::Wait);
        let mut listener = PgListener::connect_with(db.pool()).await.unwrap();
        listener.listen("pipeline_jobs").await.unwrap();
        // At the moment of a start, a claim of the worker may have reserved every slot.
        let run = loop {
            let before = handed_over(&watch);
            let mark = sqlx::query("select pg_notify('pipeline_jobs', 'mark')");
            mark.execute(db.pool()).await.unwrap();
            let run = it.client.start(says("video", "x")).await.unwrap();
            if handed_over(&watch) > before {
                break run;
            }
            it.script.let_through("x");
            run.wait().await.unwrap();
        };
        let (status, attempt, worker) = queued(db, &run).await;
        assert_eq!((status.as_str(), attempt), ("running", 1));
        assert!(worker.is_some());
        it.script.says("x").await;
        // Nothing was announced between the last mark and the end.
        let end = sqlx::query("select pg_notify('pipeline_jobs', 'end')");
        end.execute(db.pool()).await.unwrap();
        let mut heard = Vec::new();
        while heard.last().is_none_or(|last| last != "end") {
            heard.push(listener.recv().await.unwrap().payload().to_owned());
        }
        assert_eq!(heard[heard.len() - 2..], ["mark", "end"]);
        it.script.let_through("x");
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        assert_eq!(run.output().await.unwrap(), "x");
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_are_handed_over_up_to_the_free_slots() {
    with_database(async |db| {
        let (it, watch) = worker(db, |worker| worker).await;
        let runs = loop {
            let before = watch.counts(Moment::HandedOver).len();
            let runs: Vec<_> = (0..40).map(|_| says("video", "x")).collect();
            let runs = it.client.start(runs).await.unwrap();
            if let [count] = watch.counts(Moment::HandedOver)[before..] {
                assert!((1..=16).contains(&count), "{count}");
                break runs;
            }
        };
        for run in runs {
            assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        }
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_a_paused_queue_is_not_handed_over() {
    with_database(async |db| {
        let (it, watch) = worker(db, |worker| worker).await;
        it.client.pause("default").await.unwrap();
        let before = handed_over(&watch);
        let run = it.client.start(says("video", "x")).await.unwrap();
        assert_eq!(queued(db, &run).await, ("ready".into(), 0, None));
        it.client.resume("default").await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        assert_eq!(handed_over(&watch), before);
        it.stop().await;
    })
    .await;
}

/// A job type that the worker does not know.
#[derive(Serialize, Deserialize, Job)]
struct Strange;

impl Perform for Strange {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

/// The job type `act` of a later release.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "act", version = 2)]
struct NewerAct;

impl Perform for NewerAct {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_the_worker_cannot_perform_now_is_not_handed_over() {
    with_database(async |db| {
        // Each in a queue with slots of its own, which no claim for another queue reserves.
        let queues = ["strange", "newer", "delayed", "large", "inside"];
        let with_queues = |worker| {
            let queue = |worker: Worker, name: &&str| worker.queue(*name, 1);
            queues.iter().fold(worker, queue)
        };
        let (it, watch) = worker(db, with_queues).await;
        let before = handed_over(&watch);
        let strange = Pipeline::configure("strange", |p| {
            p.step("a", Strange).queue("strange");
        });
        let newer = Pipeline::configure("newer", |p| {
            p.step("a", NewerAct).queue("newer");
        });
        let delayed = Pipeline::configure("delayed", |p| {
            let step = p.step("a", act("x")).queue("delayed");
            step.delay(Duration::from_secs(3600));
        });
        let of = |queue: &str, word: &str| {
            Pipeline::configure(queue, |p| p.step("a", act(word)).queue(queue)).unwrap()
        };
        // Strange comes last: a worker that does not know a type takes the job and puts it back, and may reserve
        // every slot meanwhile.
        it.client.start(newer.unwrap()).await.unwrap();
        let delayed = it.client.start(delayed.unwrap()).await.unwrap();
        assert_eq!(queued(db, &delayed).await.0, "scheduled");
        let large = of("large", &"x".repeat(20_000));
        let large = it.client.start(large).await.unwrap();
        let mut tx = db.pool().begin().await.unwrap();
        let inside = it.client.start_in(&mut tx, of("inside", "x"));
        let inside = inside.await.unwrap();
        tx.commit().await.unwrap();
        it.client.start(strange.unwrap()).await.unwrap();
        assert_eq!(handed_over(&watch), before);
        assert_eq!(large.wait().await.unwrap(), RunStatus::Succeeded);
        assert_eq!(inside.wait().await.unwrap(), RunStatus::Succeeded);
        let chain = it.client.start(says("one", "x")).then(says("two", "x"));
        let chain = chain.await.unwrap();
        let last = &chain.chained().await.unwrap()[0];
        assert_eq!(last.wait().await.unwrap(), RunStatus::Succeeded);
        assert_eq!(handed_over(&watch), before);
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_in_one_database_is_never_handed_over_to_a_worker_of_another() {
    with_database(async |one| {
        with_database(async |two| {
            let (it, watch) = worker(one, |worker| worker).await;
            let before = handed_over(&watch);
            let client = Client::new(two.pool().clone());
            for _ in 0..3 {
                let run = client.start(says("video", "x")).await.unwrap();
                assert_eq!(queued(two, &run).await, ("ready".into(), 0, None));
            }
            assert_eq!(handed_over(&watch), before);
            it.stop().await;
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn the_database_compares_its_identity_with_that_of_the_worker() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        client.start(says("video", "x")).await.unwrap();
        let start = async |id: i64, database: &str| -> (String, bool) {
            sqlx::query_as(
                "select result::text, handed_over
                 from pipeline.graphs g cross join lateral pipeline.start_runs_v1(
                     g.id, g.fingerprint, false,
                     array[($1, $1, null, 'steps', null, null, null, null, null, null)::pipeline.new_run],
                     array[($1, 77, 0, 0, '\"x\"')::pipeline.new_step], 9, $2)",
            )
            .bind(id)
            .bind(database)
            .fetch_one(db.pool())
            .await
            .unwrap()
        };
        let here: String = sqlx::query_scalar("select pipeline.database_id_v1()")
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert!(here.starts_with(db.name()), "{here}");
        assert_eq!(start(1_000, "elsewhere 1").await, ("started".into(), false));
        let run = client.run(1_000.into());
        assert_eq!(queued(db, &run).await, ("ready".into(), 0, None));
        assert_eq!(start(1_001, &here).await, ("started".into(), true));
        let run = client.run(1_001.into());
        assert_eq!(queued(db, &run).await, ("running".into(), 1, Some(9)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_queues_when_no_slot_is_free_or_the_worker_stops() {
    with_database(async |db| {
        let (it, watch) = worker(db, |worker| worker.queue("default", 1)).await;
        it.script.tell("x", What::WaitStubbornly);
        let first = it.client.start(says("video", "x")).await.unwrap();
        it.script.says("x").await;
        let before = handed_over(&watch);
        let second = it.client.start(says("video", "y")).await.unwrap();
        assert_eq!(queued(db, &second).await, ("ready".into(), 0, None));
        let other = Pipeline::configure("other", |p| p.step("a", act("z")).queue("other"));
        let other = other.unwrap();
        it.ask_to_stop();
        eventually("the worker takes no work any more", async || {
            let run = it.client.start(other.clone()).await.unwrap();
            (queued(db, &run).await.0 == "ready").then_some(())
        })
        .await;
        let count = handed_over(&watch);
        let run = it.client.start(other).await.unwrap();
        assert_eq!(queued(db, &run).await, ("ready".into(), 0, None));
        assert_eq!(handed_over(&watch), count);
        it.script.let_through("x");
        assert_eq!(first.wait().await.unwrap(), RunStatus::Succeeded);
        assert!(before <= count);
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handed_over_step_whose_answer_is_lost_runs_once_and_costs_no_attempt() {
    with_database(async |db| {
        let (it, watch) = worker(db, |worker| worker).await;
        let proxy = Proxy::start(db);
        let pool = proxy.pool();
        let client = Client::new(pool.clone());
        client.start(says("video", "y")).await.unwrap();
        let before = watch.counts(Moment::Claimed).len();
        proxy.lose_the_next_answer_to("lost");
        let run = client.start(says("video", "lost")).await.unwrap();
        assert!(proxy.has_lost_it() && run.is_new());
        // Its only attempt was claimed by nobody: it is given back, and claimed.
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        assert_eq!(it.script.count("lost"), 1);
        assert!(watch.counts(Moment::Claimed).len() > before);
        pool.close().await;
        it.stop().await;
    })
    .await;
}

/// Waits until a start is blocked by another transaction.
async fn blocked(db: &Database) {
    eventually("the start waits for the key", async || {
        let waits: bool = sqlx::query_scalar(
            "select exists (select from pg_stat_activity
                            where datname = current_database() and wait_event_type = 'Lock')",
        )
        .fetch_one(db.pool())
        .await
        .unwrap();
        waits.then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_dropped_in_flight_leaves_no_step_behind() {
    with_database(async |db| {
        let (it, _) = worker(db, |worker| worker).await;
        let mut tx = db.pool().begin().await.unwrap();
        let theirs = it.client.start_in(&mut tx, says("video", "x")).key("k");
        theirs.await.unwrap();
        let client = it.client.clone();
        let start = tokio::spawn(async move { client.start(says("video", "x")).key("k").await });
        blocked(db).await;
        start.abort();
        assert!(start.await.unwrap_err().is_cancelled());
        tx.rollback().await.unwrap();
        let run = eventually("the start is done", async || {
            it.client.run_by_key("video", "k").await.unwrap()
        })
        .await;
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        assert_eq!(it.script.count("x"), 1);
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_waits_for_a_key_gives_its_slot_to_others() {
    with_database(async |db| {
        let (it, _) = worker(db, |worker| worker.queue("default", 1)).await;
        let mut tx = db.pool().begin().await.unwrap();
        let theirs = it.client.start_in(&mut tx, says("video", "x")).key("k");
        theirs.await.unwrap();
        let client = it.client.clone();
        let start = tokio::spawn(async move { client.start(says("video", "x")).key("k").await });
        blocked(db).await;
        let other = it.client.start(says("video", "y")).await.unwrap();
        assert_eq!(other.wait().await.unwrap(), RunStatus::Succeeded);
        tx.rollback().await.unwrap();
        let run = start.await.unwrap().unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        assert_eq!(it.script.count("x"), 1);
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_with_a_key_of_another_run_hands_nothing_over() {
    with_database(async |db| {
        let (it, watch) = worker(db, |worker| worker).await;
        let first = it.client.start(says("video", "x")).key("k").await.unwrap();
        first.wait().await.unwrap();
        let before = handed_over(&watch);
        let same = it.client.start(says("video", "x")).key("k").await.unwrap();
        assert_eq!((same.id(), same.is_new()), (first.id(), false));
        it.client
            .start(says("video", "y"))
            .key("k")
            .await
            .unwrap_err();
        assert_eq!(handed_over(&watch), before);
        becomes_empty(db).await;
        it.stop().await;
    })
    .await;
}

/// Waits until the queue is empty.
async fn becomes_empty(db: &Database) {
    eventually("the queue is empty", async || {
        let count: i64 = sqlx::query_scalar("select count(*) from pipeline.jobs")
            .fetch_one(db.pool())
            .await
            .unwrap();
        (count == 0).then_some(())
    })
    .await;
}
