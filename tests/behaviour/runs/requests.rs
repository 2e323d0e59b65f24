//! Requests: a cancel or a deadline has its turn on a busy run, and no request holds up the others.

use std::time::Duration;

use pipeline::{Client, Error, Pipeline, Run};
use sqlx::PgConnection;
use tests::{Database, with_database};

use super::support::{Running, What, act, eventually, take_up};

fn one(name: &str) -> Pipeline<String> {
    Pipeline::configure(name, |p| p.step("a", act(name))).unwrap()
}

/// Tries to lock a run, as an advance does: whether it got it.
async fn advances(connection: &mut PgConnection, run: pipeline::RunId) -> bool {
    let held: Vec<pipeline::RunId> = sqlx::query_scalar("select pipeline.held_runs_v1(array[$1])")
        .bind(run)
        .fetch_one(connection)
        .await
        .unwrap();
    assert!(held.is_empty() || held == [run]);
    held.is_empty()
}

/// The request that a client leaves when it finds the run held.
async fn ask_cancel(db: &Database, run: pipeline::RunId) -> i64 {
    let asked: Option<i64> =
        sqlx::query_scalar("select request from pipeline.request_cancel_v1($1)")
            .bind(run)
            .fetch_one(db.pool())
            .await
            .unwrap();
    asked.expect("the run is held")
}

async fn status(db: &Database, run: pipeline::RunId) -> String {
    sqlx::query_scalar("select status::text from pipeline.runs where id = $1")
        .bind(run)
        .fetch_one(db.pool())
        .await
        .unwrap()
}

async fn requests(db: &Database) -> i64 {
    sqlx::query_scalar("select count(*) from pipeline.requests")
        .fetch_one(db.pool())
        .await
        .unwrap()
}

/// Waits until a client has left a request for the run.
async fn is_requested(db: &Database, run: pipeline::RunId) -> i64 {
    eventually("a request", async || {
        sqlx::query_scalar("select id from pipeline.requests where run = $1")
            .bind(run)
            .fetch_optional(db.pool())
            .await
            .unwrap()
    })
    .await
}

#[tokio::test]
async fn the_advance_after_a_cancel_was_asked_for_leaves_the_run_alone() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let run = client.start(one("x")).await.unwrap().id();
        let mut other = db.pool().acquire().await.unwrap();
        let mut advance = db.pool().begin().await.unwrap();
        assert!(advances(&mut advance, run).await);
        let request = ask_cancel(db, run).await;
        assert_eq!(take_up(db.pool(), request).await, "held");
        advance.commit().await.unwrap();
        // The row is free, and the next advance does not take it.
        assert!(!advances(&mut other, run).await);
        assert_eq!(take_up(db.pool(), request).await, "done");
        assert_eq!(status(db, run).await, "cancelled");
        assert!(advances(&mut other, run).await);
        assert_eq!(take_up(db.pool(), request).await, "gone");
    })
    .await;
}

/// However long the advance in flight takes: as long as the run is held, each try renews the turn.
#[tokio::test]
async fn a_turn_lasts_until_the_run_could_be_locked() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let run = client.start(one("x")).await.unwrap().id();
        let mut other = db.pool().acquire().await.unwrap();
        let mut advance = db.pool().begin().await.unwrap();
        assert!(advances(&mut advance, run).await);
        let request = ask_cancel(db, run).await;
        for _ in 0..5 {
            db.move_clock(Duration::from_millis(1_500)).await;
            assert_eq!(take_up(db.pool(), request).await, "held");
        }
        advance.commit().await.unwrap();
        assert!(!advances(&mut other, run).await);
        assert_eq!(take_up(db.pool(), request).await, "done");
    })
    .await;
}

#[tokio::test]
async fn a_request_that_nobody_takes_up_stalls_its_run_for_two_seconds_only() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let run = client.start(one("x")).await.unwrap().id();
        let mut other = db.pool().acquire().await.unwrap();
        let mut advance = db.pool().begin().await.unwrap();
        assert!(advances(&mut advance, run).await);
        ask_cancel(db, run).await;
        advance.commit().await.unwrap();
        assert!(!advances(&mut other, run).await);
        db.move_clock(Duration::from_secs(3)).await;
        assert!(advances(&mut other, run).await);
    })
    .await;
}

/// A run behind it in its chain is held for long: the run itself goes on meanwhile.
#[tokio::test]
async fn a_request_that_waits_for_another_run_takes_no_turn() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let run = client.start(one("x")).then(one("y")).await.unwrap();
        let mut other = db.pool().acquire().await.unwrap();
        let mut holder = db.pool().begin().await.unwrap();
        assert!(advances(&mut holder, run.chained().await.unwrap()[0].id()).await);
        let mut tx = db.pool().begin().await.unwrap();
        run.cancel_in(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        let request = is_requested(db, run.id()).await;
        assert_eq!(take_up(db.pool(), request).await, "held");
        assert!(advances(&mut other, run.id()).await);
        holder.rollback().await.unwrap();
        assert_eq!(take_up(db.pool(), request).await, "done");
        assert_eq!(status(db, run.id()).await, "cancelled");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cancels_as_soon_as_the_run_is_free() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let run = client.start(one("x")).await.unwrap();
        let mut advance = db.pool().begin().await.unwrap();
        assert!(advances(&mut advance, run.id()).await);
        let cancelling = tokio::spawn({
            let run = run.clone();
            async move { run.cancel().await }
        });
        is_requested(db, run.id()).await;
        advance.commit().await.unwrap();
        cancelling.await.unwrap().unwrap();
        assert_eq!(status(db, run.id()).await, "cancelled");
        assert_eq!(requests(db).await, 0);
    })
    .await;
}

/// The run ends while the client waits for it: the client hears so, and there is no event of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_came_too_late_says_so() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let run = client.start(one("x")).await.unwrap();
        let mut advance = db.pool().begin().await.unwrap();
        assert!(advances(&mut advance, run.id()).await);
        let cancelling = tokio::spawn({
            let run = run.clone();
            async move { run.cancel().await }
        });
        is_requested(db, run.id()).await;
        let fail = "with gone as (
                        delete from pipeline.jobs where id = pipeline.step_id($1, 0) returning id
                    )
                    select pipeline.advance_runs_v1(
                        array[row(id, 7, 'failed', 1, 1, 0, null, 'Told', 'no', 0)::pipeline.attempt_end],
                        1, '{}', '{}'
                    ) from gone";
        let fail = sqlx::query(fail).bind(run.id()).execute(&mut *advance);
        fail.await.unwrap();
        advance.commit().await.unwrap();
        let refused = cancelling.await.unwrap().unwrap_err();
        assert!(matches!(refused, Error::NotCancellable { .. }), "{refused}");
        assert_eq!(requests(db).await, 0);
        let events: Vec<String> =
            sqlx::query_scalar("select status from pipeline.events where run = $1 order by no")
                .bind(run.id())
                .fetch_all(db.pool())
                .await
                .unwrap();
        assert_eq!(events, ["running", "failed", "halted"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_takes_up_the_cancel_of_a_client_that_died() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("x", What::Wait);
        let run = it.client.start(one("x")).await.unwrap();
        it.script.says("x").await;
        let mut advance = db.pool().begin().await.unwrap();
        assert!(advances(&mut advance, run.id()).await);
        let client = tokio::spawn({
            let run = run.clone();
            async move { run.cancel().await }
        });
        is_requested(db, run.id()).await;
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        advance.commit().await.unwrap();
        it.script.says("x stopped").await;
        it.becomes(&run, "cancelled").await;
        it.stop().await;
    })
    .await;
}

fn with_deadline(name: &str) -> Pipeline<String> {
    Pipeline::configure(name, |p| {
        p.deadline(Duration::from_secs(60));
        p.step("a", act(name))
    })
    .unwrap()
}

#[tokio::test]
async fn a_deadline_has_its_turn_like_a_cancel() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let run = client.start(with_deadline("x")).await.unwrap().id();
        let mut other = db.pool().acquire().await.unwrap();
        db.move_clock(Duration::from_secs(61)).await;
        let mut advance = db.pool().begin().await.unwrap();
        assert!(advances(&mut advance, run).await);
        for _ in 0..2 {
            let ask = sqlx::query("select pipeline.request_deadlines_v1(100)");
            ask.execute(db.pool()).await.unwrap();
        }
        assert_eq!(requests(db).await, 1, "one of each run");
        let request = is_requested(db, run).await;
        assert_eq!(take_up(db.pool(), request).await, "held");
        advance.commit().await.unwrap();
        assert!(!advances(&mut other, run).await);
        assert_eq!(take_up(db.pool(), request).await, "done");
        assert_eq!(status(db, run).await, "failed");
    })
    .await;
}

async fn cancel_later<O>(db: &Database, run: &Run<O>) {
    let mut tx = db.pool().begin().await.unwrap();
    run.cancel_in(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

/// The request was for the round before. It is dropped, and an event of the run says so.
#[tokio::test]
async fn a_cancel_of_an_earlier_round_does_not_cancel_a_reopened_run() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let run = client.start(one("x")).await.unwrap();
        cancel_later(db, &run).await;
        let request = is_requested(db, run.id()).await;
        run.cancel().await.unwrap();
        run.reopen().force().await.unwrap();
        assert_eq!(take_up(db.pool(), request).await, "done");
        assert_eq!(status(db, run.id()).await, "running");
        let events = run.events().await.unwrap();
        let last = events.last().expect("the run has events");
        assert_eq!(last.status.to_string(), "cancel_came_too_late");

        cancel_later(db, &run).await;
        let request = is_requested(db, run.id()).await;
        assert_eq!(take_up(db.pool(), request).await, "done");
        assert_eq!(status(db, run.id()).await, "cancelled");
    })
    .await;
}

/// The round that missed its deadline was cancelled and reopened before a worker saw the request.
#[tokio::test]
async fn a_deadline_of_an_earlier_round_does_not_end_a_reopened_run() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let run = client.start(with_deadline("x")).await.unwrap();
        db.move_clock(Duration::from_secs(61)).await;
        let ask = sqlx::query("select pipeline.request_deadlines_v1(100)");
        ask.execute(db.pool()).await.unwrap();
        let request = is_requested(db, run.id()).await;
        run.cancel().await.unwrap();
        run.reopen().force().await.unwrap();
        assert_eq!(take_up(db.pool(), request).await, "done");
        assert_eq!(status(db, run.id()).await, "running");
    })
    .await;
}

#[tokio::test]
async fn a_client_that_chains_takes_up_its_own_request_and_no_other() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let other = client.start(one("x")).await.unwrap();
        let ended = client.start(one("y")).await.unwrap();
        ended.cancel().await.unwrap();
        cancel_later(db, &other).await;
        let chain = ended.then(one("z")).await.unwrap();
        assert_eq!(status(db, chain.id()).await, "skipped");
        assert_eq!(status(db, other.id()).await, "running");
        assert_eq!(requests(db).await, 1);
    })
    .await;
}

/// Each request takes a while, and there are many: they are under way when a job is asked to stop and a
/// deadline is kept.
#[tokio::test(flavor = "multi_thread")]
async fn many_requests_delay_neither_stops_nor_deadlines() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("x", What::Wait);
        it.script.tell("late", What::Wait);
        let run = it.client.start(one("x")).await.unwrap();
        let late = it.client.start(with_deadline("late")).await.unwrap();
        let ended = it.client.start(one("y")).await.unwrap();
        it.script.says("x").await;
        it.script.says("late").await;
        it.becomes(&ended, "succeeded").await;
        sqlx::raw_sql(
            "create function slow() returns trigger language plpgsql
             as $$ begin perform pg_sleep(0.1); return old; end $$;
             create trigger slow before delete on pipeline.requests for each row
             when (old.kind = 'cancel') execute function slow();",
        )
        .execute(db.pool())
        .await
        .unwrap();
        let mut tx = db.pool().begin().await.unwrap();
        for _ in 0..100 {
            ended.cancel_in(&mut tx).await.unwrap();
        }
        tx.commit().await.unwrap();
        eventually("they are under way", async || {
            (requests(db).await < 100).then_some(())
        })
        .await;
        run.cancel().await.unwrap();
        db.move_clock(Duration::from_secs(61)).await;
        it.script.says("x stopped").await;
        it.script.says("late stopped").await;
        assert!(requests(db).await > 0, "all requests came first");
        it.becomes(&late, "failed").await;
        sqlx::raw_sql("drop trigger slow on pipeline.requests")
            .execute(db.pool())
            .await
            .unwrap();
        eventually("all are taken up", async || {
            (requests(db).await == 0).then_some(())
        })
        .await;
        it.stop().await;
    })
    .await;
}

/// The whole fleet leaves it alone, longer each time; once the cause is repaired, it is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_the_database_refuses_is_put_off_and_not_lost() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let pipeline = Pipeline::configure("x", |p| p.step("a", act("x")).delay(Duration::from_secs(3_600)));
        let run = client.start(pipeline.unwrap()).await.unwrap();
        sqlx::raw_sql(
            "create function refuse() returns trigger language plpgsql
             as $$ begin raise exception 'not this one'; end $$;
             create trigger refuse before delete on pipeline.requests for each row
             execute function refuse();",
        )
        .execute(db.pool())
        .await
        .unwrap();
        cancel_later(db, &run).await;
        let put_off = async || -> Option<f64> {
            let put_off = "select extract(epoch from next_at - pipeline.now())::float8
                           from pipeline.requests where next_at > pipeline.now() and turn_until < now()";
            sqlx::query_scalar(put_off).fetch_optional(db.pool()).await.unwrap()
        };
        let workers = [Running::start(db), Running::start(db)];
        eventually("it is put off", &put_off).await;
        assert_eq!(status(db, run.id()).await, "running");
        db.move_clock(Duration::from_secs(100)).await;
        let wait = eventually("it is put off for longer", async || {
            put_off().await.filter(|wait| *wait > 30.0)
        });
        assert!(wait.await <= 600.0);
        sqlx::raw_sql("drop trigger refuse on pipeline.requests")
            .execute(db.pool())
            .await
            .unwrap();
        db.move_clock(Duration::from_secs(600)).await;
        workers[0].becomes(&run, "cancelled").await;
        for worker in workers {
            worker.stop().await;
        }
    })
    .await;
}
