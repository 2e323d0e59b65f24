//! An advance is one call over a group of ends: what may go wrong inside that one call.

use ::jobs::extension::Claimed;
use ::jobs::testing::{ManualEngine, Outcome, Slots};
use pipeline::{Client, Pipeline, Run, Worker};
use tests::{Database, with_database};

use super::support::{Act, act};
use crate::jobs::support::eventually;

/// `a` and `b`, and `c` after both.
fn join() -> Pipeline {
    let join = Pipeline::configure("join", |p| {
        let (a, b) = (p.step("a", act("a")), p.step("b", act("b")));
        p.following((&a, &b)).step("c", act("c"));
    });
    join.unwrap()
}

async fn engine(db: &Database) -> (Client, ManualEngine) {
    let worker = Worker::new(db.pool().clone())
        .register::<Act>()
        .queue("*", 10);
    let engine = worker.into_jobs().manual().await.unwrap();
    (Client::new(db.pool().clone()), engine)
}

async fn claim(engine: &mut ManualEngine) -> Vec<Claimed> {
    let slots = Slots {
        free: 10,
        claim: true,
    };
    engine.turn(Vec::new(), slots, true).await.unwrap().claimed
}

async fn steps<O>(db: &Database, run: &Run<O>) -> Vec<String> {
    let steps = "select step || ' ' || status from pipeline.run_steps where run = $1 order by no";
    sqlx::query_scalar(steps)
        .bind(run.id())
        .fetch_all(db.pool())
        .await
        .unwrap()
}

/// The statement that calls the advance of `b` takes its snapshot, `a` ends in another session and is committed, and
/// only then the advance begins: it sees the end of `a`, because its own statements have snapshots of their own.
#[tokio::test(flavor = "multi_thread")]
async fn an_advance_sees_what_was_committed_after_its_statement_began() {
    with_database(async |db| {
        let (client, mut engine) = engine(db).await;
        let run = client.start(join()).await.unwrap();
        let claimed = claim(&mut engine).await;
        let job = |no: i64| {
            let id = (run.id().get() << 18) + 2 * no;
            claimed.iter().find(|job| job.id == id).unwrap()
        };
        let mut gate = db.pool().begin().await.unwrap();
        sqlx::query("select pg_advisory_xact_lock(7)")
            .execute(&mut *gate)
            .await
            .unwrap();
        let late = {
            let (pool, job, run) = (db.pool().clone(), job(1).clone(), run.id());
            tokio::spawn(async move {
                sqlx::query(
                    "select m.* from (select pg_advisory_xact_lock(7) offset 0) as gate
                     cross join lateral pipeline.advance_v1(
                         array[$1], array[row($2, $3, 'succeeded', 1, 1, 0, '\"b\"', null, null, 0)
                                          ::pipeline.attempt_end],
                         1, '{}', '{}', 60000, 1000000, 1000000, false) as m
                     where gate is not null",
                )
                .bind(run)
                .bind(job.id)
                .bind(job.token)
                .execute(&pool)
                .await
                .unwrap();
            })
        };
        eventually("the statement waits", async || {
            let waits =
                "select exists (select from pg_locks where locktype = 'advisory' and not granted
                                        and database = (select oid from pg_database
                                                        where datname = current_database()))";
            let waits: bool = sqlx::query_scalar(waits)
                .fetch_one(db.pool())
                .await
                .unwrap();
            waits.then_some(())
        })
        .await;
        let end = ManualEngine::end(job(0), &Outcome::Success("\"a\"".into()));
        engine
            .turn(vec![end], Slots::default(), true)
            .await
            .unwrap();
        gate.rollback().await.unwrap();
        late.await.unwrap();
        assert_eq!(
            steps(db, &run).await,
            ["a succeeded", "b succeeded", "c enqueued"]
        );
    })
    .await;
}

/// Of three ends in one call, one bears the token of an earlier attempt, and one belongs to a row that is gone: they
/// are reported, change nothing, and do not keep the third from its end.
#[tokio::test]
async fn stale_ends_do_not_keep_the_others_of_their_group_from_their_ends() {
    with_database(async |db| {
        let (client, mut engine) = engine(db).await;
        let mut runs = Vec::new();
        for _ in 0..3 {
            let one = Pipeline::configure("two", |p| {
                let a = p.step("a", act("a"));
                p.following(&a).step("b", act("b"));
            });
            runs.push(client.start(one.unwrap()).await.unwrap());
        }
        let claimed = claim(&mut engine).await;
        let end = |run: &Run<()>| {
            let job = claimed
                .iter()
                .find(|job| job.id == run.id().get() << 18)
                .unwrap();
            ManualEngine::end(job, &Outcome::Success("\"a\"".into()))
        };
        let ends: Vec<_> = runs.iter().map(end).collect();
        for (statement, run) in [
            (
                "update pipeline.jobs set token = token - 1 where id = $1",
                &runs[0],
            ),
            ("delete from pipeline.jobs where id = $1", &runs[1]),
        ] {
            let changed = sqlx::query(statement).bind(run.id().get() << 18);
            changed.execute(db.pool()).await.unwrap();
        }
        let turn = engine.turn(ends, Slots::default(), true).await.unwrap();
        assert_eq!((turn.stale.len(), turn.held.len()), (2, 0));
        for (run, found) in runs.iter().zip([
            ["a enqueued", "b pending"],
            ["a enqueued", "b pending"],
            ["a succeeded", "b enqueued"],
        ]) {
            assert_eq!(steps(db, run).await, found);
        }
        // The rows are set right again, so that no test finds them.
        let restore = "update pipeline.jobs set token = token + 1 where id = $1";
        let restored = sqlx::query(restore).bind(runs[0].id().get() << 18);
        restored.execute(db.pool()).await.unwrap();
        sqlx::query("delete from pipeline.runs where id = $1")
            .bind(runs[1].id())
            .execute(db.pool())
            .await
            .unwrap();
        sqlx::query("delete from pipeline.steps where run = $1")
            .bind(runs[1].id())
            .execute(db.pool())
            .await
            .unwrap();
    })
    .await;
}

/// In one call, an attempt ends in a run that is being cancelled, and an attempt ends in a run that goes on: nothing
/// follows in the first, and the next step follows in the second.
#[tokio::test]
async fn a_run_that_is_being_cancelled_and_one_that_goes_on_advance_in_one_call() {
    with_database(async |db| {
        let (client, mut engine) = engine(db).await;
        let (cancelled, other) = (
            client.start(join()).await.unwrap(),
            client.start(join()).await.unwrap(),
        );
        let claimed = claim(&mut engine).await;
        cancelled.cancel().await.unwrap();
        let ends = |outcome: &Outcome| -> Vec<_> {
            let ends = claimed.iter().map(|job| ManualEngine::end(job, outcome));
            ends.collect()
        };
        let turn = engine
            .turn(
                ends(&Outcome::Success("\"x\"".into())),
                Slots::default(),
                true,
            )
            .await
            .unwrap();
        assert!(turn.stale.is_empty() && turn.held.is_empty());
        assert_eq!(
            steps(db, &cancelled).await,
            ["a succeeded", "b succeeded", "c cancelled"]
        );
        assert_eq!(cancelled.status().await.unwrap().to_string(), "cancelled");
        assert_eq!(
            steps(db, &other).await,
            ["a succeeded", "b succeeded", "c enqueued"]
        );
    })
    .await;
}

/// A run is chained to two runs, of which one was deleted while it was pending (pruning does so behind a run that was
/// reopened). When the other one succeeds, the chained run is skipped, and nothing else.
#[tokio::test]
async fn a_run_that_is_chained_to_a_deleted_run_is_skipped_and_not_started() {
    with_database(async |db| {
        let (client, mut engine) = engine(db).await;
        let one = || Pipeline::configure("one", |p| p.step("a", act("a"))).unwrap();
        let first = client.start([one(), one()]).await.unwrap();
        let (deleted, other) = (&first[0], &first[1]);
        let chained = client.start(one()).after([deleted, other]).await.unwrap();
        let claimed = claim(&mut engine).await;
        for table in [
            "delete from pipeline.runs where id = $1",
            "delete from pipeline.steps where run = $1",
            "delete from pipeline.jobs where id = $1 << 18",
            "delete from pipeline.events where run = $1",
        ] {
            let statement = sqlx::query(table).bind(deleted.id());
            statement.execute(db.pool()).await.unwrap();
        }
        let job = claimed.iter().find(|job| job.id == other.id().get() << 18);
        let end = ManualEngine::end(job.unwrap(), &Outcome::Success("\"a\"".into()));
        engine
            .turn(vec![end], Slots::default(), true)
            .await
            .unwrap();
        assert_eq!(chained.status().await.unwrap().to_string(), "skipped");
        assert_eq!(steps(db, &chained).await, ["a skipped"]);
        let events: Vec<String> = sqlx::query_scalar(
            "select status from pipeline.events where run = $1 and step is null order by no",
        )
        .bind(chained.id())
        .fetch_all(db.pool())
        .await
        .unwrap();
        assert_eq!(events.last().map(String::as_str), Some("skipped"));
        assert!(!events.contains(&"succeeded".to_owned()), "{events:?}");
    })
    .await;
}

/// A step was enqueued longer ago than an integer counts milliseconds, and its end does not say how long it ran: its
/// worker was lost.
#[tokio::test]
async fn a_step_that_was_enqueued_a_month_ago_ends_without_a_running_time() {
    with_database(async |db| {
        let (client, mut engine) = engine(db).await;
        let one = Pipeline::configure("one", |p| p.step("a", act("a")).max_attempts(1)).unwrap();
        let run = client.start(one).await.unwrap();
        claim(&mut engine).await;
        for statement in [
            "update pipeline.steps set enqueued_at = enqueued_at - interval '30 days'",
            "update pipeline.jobs set lease_until = pipeline.now() - interval '1 s'",
        ] {
            sqlx::query(statement).execute(db.pool()).await.unwrap();
        }
        let lost = engine.tick().await.unwrap();
        assert_eq!(lost.len(), 1);
        engine.turn(lost, Slots::default(), true).await.unwrap();
        assert_eq!(steps(db, &run).await, ["a failed"]);
        let ran: Option<i32> = sqlx::query_scalar("select ran_ms from pipeline.steps")
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(ran, None);
    })
    .await;
}

/// A run whose steps are being deleted is not copied in part.
#[tokio::test]
async fn a_run_without_all_its_steps_is_not_rerun() {
    with_database(async |db| {
        let (client, _) = engine(db).await;
        let run = client.start(join()).await.unwrap();
        let mut tx = db.pool().begin().await.unwrap();
        sqlx::query("delete from pipeline.steps where run = $1 and no = 2")
            .bind(run.id())
            .execute(&mut *tx)
            .await
            .unwrap();
        let rerun = sqlx::query("select * from pipeline.start_rerun_v1($1, 1000, 1)")
            .bind(run.id())
            .execute(&mut *tx)
            .await;
        let error = rerun.unwrap_err().to_string();
        assert!(error.contains("has 2 steps"), "{error}");
        tx.rollback().await.unwrap();
    })
    .await;
}

/// The cancel of a client waits for a run that is held; the run ends, and is reopened: the cancel was meant for the
/// round that has ended.
#[tokio::test]
async fn the_cancel_of_a_client_does_not_cancel_a_later_round() {
    with_database(async |db| {
        let (client, mut engine) = engine(db).await;
        let run = client.start(join()).await.unwrap();
        let request: i64 = sqlx::query_scalar(
            "insert into pipeline.requests (id, run, created_at, round, kind)
             values (nextval('pipeline.ids'), $1, pipeline.now(), 1, 'cancel') returning id",
        )
        .bind(run.id())
        .fetch_one(db.pool())
        .await
        .unwrap();
        let claimed = claim(&mut engine).await;
        let fail = Outcome::Fail("Bad".into(), "no".into());
        let ends = claimed.iter().map(|job| ManualEngine::end(job, &fail));
        let ends = ends.collect();
        engine.turn(ends, Slots::default(), true).await.unwrap();
        run.reopen().force().await.unwrap();
        let (state, refused): (String, Option<String>) =
            sqlx::query_as("select state, refused from pipeline.process_request_v1($1, true)")
                .bind(request)
                .fetch_one(db.pool())
                .await
                .unwrap();
        assert_eq!(
            (state.as_str(), refused.as_deref()),
            ("done", Some("reopened"))
        );
        assert_eq!(run.status().await.unwrap().to_string(), "running");
    })
    .await;
}

/// A turn that ends too far in the future was given before the clock was set back: the run advances.
#[tokio::test]
async fn a_turn_from_before_the_clock_was_set_back_holds_up_nothing() {
    with_database(async |db| {
        let (client, mut engine) = engine(db).await;
        let run = client.start(join()).await.unwrap();
        let claimed = claim(&mut engine).await;
        sqlx::query(
            "insert into pipeline.requests (id, run, created_at, next_at, turn_until, round, kind)
             select nextval('pipeline.ids'), $1, pipeline.now(), pipeline.now() + interval '1 h',
                    pipeline.now() + interval '1 h', 1, 'cancel'",
        )
        .bind(run.id())
        .execute(db.pool())
        .await
        .unwrap();
        let ends = claimed
            .iter()
            .map(|job| ManualEngine::end(job, &Outcome::Success("\"x\"".into())));
        let ends = ends.collect();
        let turn = engine.turn(ends, Slots::default(), false).await.unwrap();
        assert!(turn.held.is_empty());
        assert_eq!(
            steps(db, &run).await,
            ["a succeeded", "b succeeded", "c enqueued"]
        );
        sqlx::query("delete from pipeline.requests")
            .execute(db.pool())
            .await
            .unwrap();
    })
    .await;
}
