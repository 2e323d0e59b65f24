//! The state, callbacks and times of cancelled steps; and client transactions that are refused.

use std::time::Duration;

use ::jobs::testing::Outcome;
use pipeline::{Client, Error, Pipeline, StepState, StepStatus};
use sqlx::types::Json;
use tests::with_database;

use super::hand::{Hand, callbacks, declare};
use crate::runs::support::{Running, act, take_up_all};

/// A step that may be tried three times.
fn tried_again() -> Pipeline {
    declare(|p| {
        p.deadline(Duration::from_secs(60));
        p.step("a", act("a")).max_attempts(3);
        p.step("b", act("b"));
        callbacks(p);
    })
}

/// What the callback for every end is given.
async fn told(it: &Hand<'_>, run: pipeline::RunId) -> serde_json::Value {
    let input = "select j.input from pipeline.dispatched_callbacks f
                 join pipeline.jobs j on j.id = f.job
                 where f.run = $1 and f.position = 0";
    let Json(input) = sqlx::query_scalar::<_, Json<serde_json::Value>>(input)
        .bind(run)
        .fetch_one(it.db.pool())
        .await
        .unwrap();
    input
}

fn error(step: &StepState) -> Option<(&str, &str)> {
    let error = step.error.as_ref()?;
    Some((error.class.as_str(), error.message.as_str()))
}

#[tokio::test]
async fn a_step_that_is_withdrawn_from_its_backoff_keeps_its_attempts_and_its_error() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        for is_deadline in [false, true] {
            let run = it.start(tried_again()).await;
            it.end(&run, "a", Outcome::Retry).await;
            it.succeed(&run, "b").await;
            if is_deadline {
                db.move_clock(Duration::from_secs(61)).await;
                let ask = sqlx::query("select pipeline.request_deadlines_v1(100)");
                ask.execute(db.pool()).await.unwrap();
                take_up_all(db.pool()).await;
            } else {
                run.cancel().await.unwrap();
            }
            let state = run.state().await.unwrap();
            let a = &state.steps[0];
            assert_eq!((a.status, a.attempt), (StepStatus::Cancelled, 1));
            assert_eq!(error(a), Some(("Retry", "once more")));
            let told = told(&it, run.id()).await;
            assert_eq!(told["failed"], serde_json::json!([]));
            let cancelled = serde_json::json!([
                {"step": "a", "class": "Retry", "message": "once more"}
            ]);
            assert_eq!(told["cancelled"], cancelled);
            run.reopen().force().await.unwrap();
            let state = run.state().await.unwrap();
            let a = &state.steps[0];
            assert_eq!(
                (a.attempt, error(a)),
                (0, None),
                "the next round begins anew"
            );
            it.drain(&[]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_step_that_was_stopped_keeps_the_error_of_the_attempt_before() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(tried_again()).await;
        it.end(&run, "a", Outcome::Retry).await;
        it.succeed(&run, "b").await;
        it.taken(&run, "a").await;
        run.cancel().await.unwrap();
        it.end(&run, "a", Outcome::Stop).await;
        let state = run.state().await.unwrap();
        let a = &state.steps[0];
        assert_eq!((a.status, a.attempt), (StepStatus::Cancelled, 2));
        assert_eq!(error(a), Some(("Retry", "once more")));
        assert_eq!(told(&it, run.id()).await["cancelled"][0]["step"], "a");
    })
    .await;
}

/// The advance that enqueues the second step takes a while before it does: the process counts from before
/// that, and a step has not started then.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_never_starts_before_it_was_enqueued_or_before_the_step_before_it_ended() {
    with_database(async |db| {
        sqlx::raw_sql(
            "create function slow() returns trigger language plpgsql
             as $$ begin perform pg_sleep(0.1); return old; end $$;
             create trigger slow before delete on pipeline.jobs for each row
             when (old.id % 262144 = 0) execute function slow();",
        )
        .execute(db.pool())
        .await
        .unwrap();
        let it = Running::start(db);
        let pipeline = Pipeline::configure("x", |p| {
            let a = p.step("a", act("a"));
            p.following(&a).step("b", act("b"))
        });
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        it.becomes(&run, "succeeded").await;
        let state = run.state().await.unwrap();
        let [a, b] = [&state.steps[0], &state.steps[1]];
        assert!(b.started_at.unwrap() >= b.enqueued_at.unwrap());
        assert!(b.started_at.unwrap() >= a.ended_at.unwrap());
        it.stop().await;
    })
    .await;
}

/// The runtime of the client is not driven any more once the call has returned: what it left to be done
/// later is not done.
#[tokio::test(flavor = "multi_thread")]
async fn a_reopening_that_is_refused_has_let_go_of_the_run_when_it_returns() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(tried_again()).await;
        it.drain(&[]).await;
        let (id, options) = (run.id(), (*db.pool().connect_options()).clone());
        let (done, stopped) = std::sync::mpsc::channel::<()>();
        let (refused, returned) = tokio::sync::oneshot::channel();
        let client = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let pool = runtime.block_on(async {
                let pool = sqlx::PgPool::connect_with(options).await.unwrap();
                let client = pipeline::Client::new(pool.clone());
                let error = client.run(id).reopen().await.unwrap_err();
                refused.send(error).unwrap();
                pool
            });
            stopped.recv().unwrap();
            runtime.block_on(pool.close());
        });
        let error = returned.await.unwrap();
        assert!(matches!(error, Error::NotReopenable { .. }), "{error}");
        let locked: bool =
            sqlx::query_scalar("select locked from pipeline.lock_runs_v1(array[$1])")
                .bind(id)
                .fetch_one(db.pool())
                .await
                .unwrap();
        done.send(()).unwrap();
        client.join().unwrap();
        assert!(locked, "the transaction is open");
    })
    .await;
}

/// A client whose process is frozen while it holds a run: the server ends its transaction.
#[tokio::test]
async fn a_client_transaction_that_holds_a_run_has_limits_of_its_own() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(tried_again()).await;
        it.fail(&run, "a").await;
        it.succeed(&run, "b").await;
        sqlx::raw_sql(
            "create table limits (name text, value text);
             create function note() returns trigger language plpgsql as $$
             begin
                 insert into limits select n, current_setting(n) from unnest(array[
                     'idle_in_transaction_session_timeout', 'lock_timeout', 'statement_timeout']) as n;
                 return new;
             end $$;
             create trigger note after update on pipeline.runs for each row
             when (old.round < new.round) execute function note();",
        )
        .execute(db.pool())
        .await
        .unwrap();
        run.reopen().force().await.unwrap();
        let limits: Vec<(String, String)> = sqlx::query_as("select name, value from limits")
            .fetch_all(db.pool())
            .await
            .unwrap();
        let limits: Vec<(&str, &str)> = limits.iter().map(|(n, v)| (&**n, &**v)).collect();
        assert_eq!(
            limits,
            [
                ("idle_in_transaction_session_timeout", "10s"),
                ("lock_timeout", "1s"),
                ("statement_timeout", "30s")
            ]
        );
        it.drain(&[]).await;
    })
    .await;
}

/// No attempt follows in a run that is being cancelled, and none is announced.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_whose_worker_died_in_a_cancelling_run_was_not_retried() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let pipeline = Pipeline::configure("x", |p| p.step("a", act("a")).max_attempts(3));
        let run = client.start(pipeline.unwrap()).await.unwrap();
        sqlx::query(
            "update pipeline.jobs set status = 'running', token = id, worker = 99, attempt = 1,
                    claimed_at = pipeline.now() - interval '2 hours',
                    lease_until = pipeline.now() - interval '1 hour'",
        )
        .execute(db.pool())
        .await
        .unwrap();
        run.cancel().await.unwrap();
        let it = Running::start(db);
        it.becomes(&run, "cancelled").await;
        let attempts = run.attempts("a").await.unwrap();
        assert_eq!(attempts.len(), 1);
        assert_eq!(attempts[0].outcome.as_str(), "cancelled");
        assert_eq!(attempts[0].error_class.as_deref(), Some("WorkerDied"));
        it.stop().await;
    })
    .await;
}
