//! Rows that another session holds: no advance and no cancel waits for them.

use std::sync::Arc;
use std::time::Duration;

use ::jobs::extension::Claimed;
use ::jobs::testing::{ManualEngine, Moment, Outcome, Slots};
use pipeline::{Client, Pipeline, Run, Worker};
use sqlx::{PgConnection, PgPool};
use tests::{Database, with_database};

use super::support::{Act, Running, Told, What, act, eventually, take_up_all};
use crate::jobs::support::Watch;

fn one(name: &str) -> Pipeline<String> {
    Pipeline::configure(name, |p| p.step("a", act(name))).unwrap()
}

/// A worker that does nothing by itself.
async fn engine(pool: &PgPool) -> ManualEngine {
    let worker = Worker::new(pool.clone())
        .register::<(Act, Told)>()
        .queue("*", 100);
    worker.into_jobs().manual().await.unwrap()
}

async fn claim(engine: &mut ManualEngine) -> Vec<Claimed> {
    let slots = Slots {
        free: 100,
        claim: true,
    };
    let mut claimed = engine.turn(Vec::new(), slots, false).await.unwrap().claimed;
    claimed.sort_by_key(|job| job.id);
    claimed
}

fn succeeded(jobs: &[Claimed]) -> Vec<::jobs::extension::AttemptEnd> {
    let end = |job| ManualEngine::end(job, &Outcome::Success("\"done\"".to_owned()));
    jobs.iter().map(end).collect()
}

async fn hold(connection: &mut PgConnection, run: pipeline::RunId) {
    sqlx::query("select from pipeline.runs where id = $1 for no key update")
        .bind(run)
        .execute(connection)
        .await
        .unwrap();
}

async fn status(db: &Database, run: pipeline::RunId) -> String {
    sqlx::query_scalar("select status::text from pipeline.runs where id = $1")
        .bind(run)
        .fetch_one(db.pool())
        .await
        .unwrap()
}

/// Longer than any of our own limits: a call that takes so long waits for the lock.
async fn soon<T>(call: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(25);
    let outcome = tokio::time::timeout(limit, call).await;
    outcome.expect("it waits for a row that somebody holds")
}

#[tokio::test]
async fn a_held_run_is_named_and_a_deleted_one_is_not() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let runs = client.start([one("x"), one("y")]).await.unwrap();
        let [held, free] = [runs[0].id(), runs[1].id()];
        let mut holder = db.pool().begin().await.unwrap();
        hold(&mut holder, held).await;
        let names: Vec<pipeline::RunId> = sqlx::query_scalar("select pipeline.held_runs_v1($1)")
            .bind([held, free, 4_711.into()])
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(names, [held]);
        holder.rollback().await.unwrap();
    })
    .await;
}

/// A worker whose step has ended in a held run goes on with other runs, and writes the end when it can.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_run_stops_no_other_run_of_its_worker() {
    with_database(async |db| {
        let watch = Arc::new(Watch::default());
        let it = Running::start_with(db, |worker| worker.probe(watch.clone()));
        it.script.tell("x", What::WaitStubbornly);
        let run = it.client.start(one("x")).await.unwrap();
        it.script.says("x").await;
        let mut holder = db.pool().begin().await.unwrap();
        hold(&mut holder, run.id()).await;
        it.script.let_through("x");
        eventually("the end is deferred again and again", async || {
            (watch.counts(Moment::Deferred).len() >= 5).then_some(())
        })
        .await;
        for n in 0..10 {
            let name = format!("other{n}");
            let other = it.client.start(one(&name)).await.unwrap();
            it.becomes(&other, "succeeded").await;
        }
        assert_eq!(status(db, run.id()).await, "running");
        holder.rollback().await.unwrap();
        it.becomes(&run, "succeeded").await;
        assert_eq!(it.script.count("x"), 1, "performed once");
        it.stop().await;
    })
    .await;
}

#[tokio::test]
async fn the_end_of_a_held_run_is_deferred_also_when_it_goes_alone() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let runs = client.start([one("x"), one("y")]).await.unwrap();
        let mut engine = engine(db.pool()).await;
        let jobs = claim(&mut engine).await;
        let mut holder = db.pool().begin().await.unwrap();
        hold(&mut holder, runs[0].id()).await;
        let turn = engine.turn(succeeded(&jobs[..1]), Slots::default(), false);
        let turn = soon(turn).await.unwrap();
        assert_eq!((turn.held.len(), turn.ended.len()), (1, 0));
        let turn = engine.turn(succeeded(&jobs), Slots::default(), false);
        let turn = soon(turn).await.unwrap();
        assert_eq!((turn.held.len(), turn.ended.len()), (1, 1));
        assert_eq!(status(db, runs[1].id()).await, "succeeded");
        holder.rollback().await.unwrap();
        let turn = engine.turn(turn.held, Slots::default(), false).await;
        assert_eq!(turn.unwrap().ended.len(), 1);
    })
    .await;
}

/// Rule 5: the caller learns which runs are concerned, defers their ends and sends the others again.
#[tokio::test]
async fn a_held_chained_run_is_not_waited_for_and_the_runs_that_lead_to_it_are_named() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let other = client.start(one("x")).await.unwrap();
        let run = client.start(one("y")).then(one("m")).then(one("n"));
        let run = run.await.unwrap();
        let mut engine = engine(db.pool()).await;
        let jobs = claim(&mut engine).await;
        let mut holder = db.pool().begin().await.unwrap();
        // The last of the chain: it is reached, and not touched.
        hold(&mut holder, tests::chain_of(&run).await[1].id()).await;
        let turn = engine.turn(succeeded(&jobs), Slots::default(), false);
        let turn = soon(turn).await.unwrap();
        assert_eq!((turn.held.len(), turn.ended.len()), (1, 1));
        assert_eq!(
            turn.held[0].job() >> 18,
            run.id().get(),
            "the run that leads to it"
        );
        assert_eq!(status(db, other.id()).await, "succeeded");
        assert_eq!(status(db, run.id()).await, "running");
        holder.rollback().await.unwrap();
        let turn = engine.turn(turn.held, Slots::default(), false).await;
        assert_eq!(turn.unwrap().ended.len(), 1);
        assert_eq!(
            status(db, run.chained().await.unwrap()[0].id()).await,
            "running"
        );
    })
    .await;
}

#[tokio::test]
async fn a_cancel_goes_on_without_a_queue_row_that_is_held_and_withdraws_it_later() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let pipeline = Pipeline::configure("two", |p| {
            p.step("a", act("a"));
            p.step("b", act("b"))
        });
        let run: Run<String> = client.start(pipeline.unwrap()).await.unwrap();
        let mut holder = db.pool().begin().await.unwrap();
        sqlx::query("select from pipeline.jobs where id = pipeline.step_id($1, 0) for update")
            .bind(run.id())
            .execute(&mut *holder)
            .await
            .unwrap();
        soon(run.cancel()).await.unwrap();
        let steps = "select string_agg(step || ' ' || status, ', ' order by no)
                     from pipeline.run_steps where run = $1";
        let steps: String = sqlx::query_scalar(steps)
            .bind(run.id())
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(steps, "a enqueued, b cancelled");
        assert_eq!(status(db, run.id()).await, "cancelling");
        take_up_all(db.pool()).await;
        assert_eq!(status(db, run.id()).await, "cancelling", "it is held still");
        holder.rollback().await.unwrap();
        take_up_all(db.pool()).await;
        assert_eq!(status(db, run.id()).await, "cancelled");
        let left: i64 = sqlx::query_scalar("select count(*) from pipeline.requests")
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(left, 0);
    })
    .await;
}

/// A run in a chain is opened again while the run before it is busy: it waits for that run and not for
/// its lock.
#[tokio::test]
async fn a_reopening_does_not_wait_for_the_run_before_it() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let run = client.start(one("x")).then(one("y")).await.unwrap();
        let down = run.chained().await.unwrap()[0].clone();
        down.cancel().await.unwrap();
        let mut holder = db.pool().begin().await.unwrap();
        hold(&mut holder, run.id()).await;
        soon(async { down.reopen().force().await }).await.unwrap();
        assert_eq!(status(db, down.id()).await, "pending");
        holder.rollback().await.unwrap();
        take_up_all(db.pool()).await;
        assert_eq!(
            status(db, down.id()).await,
            "pending",
            "until that run ends"
        );
        let mut engine = engine(db.pool()).await;
        let jobs = claim(&mut engine).await;
        let turn = engine.turn(succeeded(&jobs), Slots::default(), false).await;
        assert_eq!(turn.unwrap().ended.len(), 1);
        assert_eq!(status(db, down.id()).await, "running");
    })
    .await;
}

#[tokio::test]
async fn a_cancel_or_a_reopening_of_a_held_run_gives_up_and_says_what_was_not_done() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let id = client.start(one("x")).await.unwrap().id();
        let run = client
            .clone()
            .with_lock_timeout(Duration::from_millis(50))
            .run(id);
        let mut holder = db.pool().begin().await.unwrap();
        hold(&mut holder, id).await;
        let texts = [
            run.cancel().await.unwrap_err().to_string(),
            run.reopen().await.unwrap_err().to_string(),
        ];
        for (text, asked) in texts.iter().zip(["cancelled", "reopened"]) {
            let begins = format!("run {id} was not {asked}: another transaction has held it");
            assert!(text.starts_with(&begins), "{text}");
            assert!(
                text.contains("for 50ms") && text.contains("pg_stat_activity"),
                "{text}"
            );
        }
        holder.rollback().await.unwrap();
        assert_eq!(status(db, id).await, "running");
    })
    .await;
}
