//! Waiting for the end of a run: immediate with a notification, certain without one, and one connection for all
//! waiters.

use std::future::IntoFuture as _;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{join_all, ready};
use pipeline::Error;
use pipeline::prelude::*;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use tests::{Database, with_database};

use super::support::{Running, What, act, eventually};
use crate::logged::Captured;

fn one_step() -> Pipeline<String> {
    Pipeline::configure("one_step", |p| p.step("a", act("a"))).unwrap()
}

fn client(db: &Database) -> Client {
    Client::new(db.pool().clone())
}

/// The processes of the server that serve connections of ours which are not of the application's pool.
async fn listeners(db: &Database) -> Vec<i32> {
    sqlx::query_scalar(
        "select pid from pg_stat_activity
         where datname = current_database() and application_name = 'pipeline'",
    )
    .fetch_all(db.pool())
    .await
    .unwrap()
}

async fn listener(db: &Database) -> i32 {
    eventually("somebody listens", async || {
        listeners(db).await.first().copied()
    })
    .await
}

/// Ends a run and tells nobody.
async fn end_in_silence<O>(db: &Database, run: &Run<O>) {
    sqlx::query("select pipeline.cancel_run_v1($1, 'cancel')")
        .bind(run.id())
        .execute(db.pool())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_learns_how_the_run_ended() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("a", What::Wait);
        let run = it.client.start(one_step()).await.unwrap();
        let waiting = tokio::spawn(run.wait().into_future());
        it.script.let_through("a");
        assert_eq!(waiting.await.unwrap().unwrap(), RunStatus::Succeeded);

        it.script.tell("a", What::Fail);
        let run = it.client.start(one_step()).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Halted);
        it.script.tell("a", What::Succeed);
        run.reopen().await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        it.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_run_that_has_ended_is_not_waited_for() {
    with_database(async |db| {
        let run = client(db).start(one_step()).await.unwrap();
        run.cancel().await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Cancelled);
        // By a client that has never waited, too.
        let run = client(db).run(run.id());
        assert_eq!(run.wait().await.unwrap(), RunStatus::Cancelled);
    })
    .await;
}

#[tokio::test]
async fn a_run_that_is_not_there_is_said_to_be_so() {
    with_database(async |db| {
        let run = client(db).run(12_345.into());
        let error = run.wait().await.unwrap_err();
        assert!(
            matches!(error, Error::NoRun(run) if run.get() == 12_345),
            "{error}"
        );
        // Nor is one whose transaction is open.
        let client = client(db);
        let mut tx = db.pool().begin().await.unwrap();
        let run = client.start_in(&mut tx, one_step()).await.unwrap();
        let error = run.wait().await.unwrap_err();
        assert!(matches!(error, Error::NoRun(_)), "{error}");
        tx.commit().await.unwrap();
        run.cancel().await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Cancelled);
    })
    .await;
}

#[tokio::test]
async fn a_timeout_says_where_the_run_stands() {
    with_database(async |db| {
        let run = client(db).start(one_step()).await.unwrap();
        let limit = Duration::from_millis(20);
        let error = run.wait().timeout(limit).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "run {} has not ended within 20ms: it is running; wait longer, or look at its steps with `run.state()`",
                run.id()
            )
        );
        run.cancel().await.unwrap();
        let status = run.wait().timeout(Duration::from_secs(60)).await.unwrap();
        assert_eq!(status, RunStatus::Cancelled);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_waiters_share_one_connection_which_goes_after_them() {
    with_database(async |db| {
        let client = client(db);
        let runs = client.start(vec![one_step(); 5_000]).await.unwrap();
        // Two for each run, through clones of the client.
        let waits = runs.iter().chain(&runs).map(|run| run.clone().wait());
        let mut all = pin!(join_all(waits.map(|wait| wait.into_future())));
        tokio::select! {
            biased;
            _ = &mut all => panic!("nothing has run"),
            () = ready(()) => {}
        }
        listener(db).await;
        assert_eq!(listeners(db).await.len(), 1);

        let it = Running::start(db);
        for status in all.await {
            assert_eq!(status.unwrap(), RunStatus::Succeeded);
        }
        it.stop().await;
        eventually("the listener goes", async || {
            listeners(db).await.is_empty().then_some(())
        })
        .await;
        // The next one to wait has another.
        assert_eq!(runs[0].wait().await.unwrap(), RunStatus::Succeeded);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_nobody_tells_of_is_found() {
    with_database(async |db| {
        let run = client(db).start(one_step()).await.unwrap();
        let waiting = tokio::spawn(run.wait().into_future());
        listener(db).await;
        end_in_silence(db, &run).await;
        assert_eq!(waiting.await.unwrap().unwrap(), RunStatus::Cancelled);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_is_killed_comes_back() {
    with_database(async |db| {
        let client = client(db);
        let runs = client.start(vec![one_step(); 6]).await.unwrap();
        let waiting: Vec<_> = runs
            .iter()
            .map(|run| tokio::spawn(run.wait().into_future()))
            .collect();
        let (last, others) = runs.split_last().unwrap();
        for run in others {
            let killed = listener(db).await;
            sqlx::query("select pg_terminate_backend($1)")
                .bind(killed)
                .execute(db.pool())
                .await
                .unwrap();
            end_in_silence(db, run).await;
            eventually("another listens", async || {
                let now = listeners(db).await;
                (!now.is_empty() && !now.contains(&killed)).then_some(())
            })
            .await;
        }
        last.cancel().await.unwrap();
        for one in waiting {
            assert_eq!(one.await.unwrap().unwrap(), RunStatus::Cancelled);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_needs_no_connection_of_the_pool() {
    with_database(async |db| {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .connect_with((*db.pool().connect_options()).clone())
            .await
            .unwrap();
        let client = Client::new(pool.clone());
        let run = client.start(one_step()).await.unwrap();
        let held = pool.acquire().await.unwrap();
        let waiting = tokio::spawn(run.wait().into_future());
        listener(db).await;
        end_in_silence(db, &run).await;
        assert_eq!(waiting.await.unwrap().unwrap(), RunStatus::Cancelled);
        drop(held);
        pool.close().await;
    })
    .await;
}

#[tokio::test]
async fn waiters_that_give_up_leave_nothing_behind() {
    with_database(async |db| {
        let client = client(db);
        let run = client.start(one_step()).await.unwrap();
        let given_up = join_all((0..1_000).map(|_| run.wait().into_future()));
        let given_up = tokio::time::timeout(Duration::from_millis(1), given_up).await;
        assert!(given_up.is_err());
        listener(db).await;
        eventually("the listener goes", async || {
            listeners(db).await.is_empty().then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pool_ends_the_waiting() {
    with_database(async |db| {
        let pool = PgPoolOptions::new()
            .connect_with((*db.pool().connect_options()).clone())
            .await
            .unwrap();
        let run = Client::new(pool.clone()).start(one_step()).await.unwrap();
        let waiting = tokio::spawn(run.wait().into_future());
        listener(db).await;
        pool.close().await;
        let error = waiting.await.unwrap().unwrap_err();
        assert!(
            matches!(error, Error::Database(sqlx::Error::PoolClosed)),
            "{error}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_goes_on_when_the_runtime_of_the_first_waiter_ends() {
    with_database(async |db| {
        let run = client(db).start(one_step()).await.unwrap();
        let other = tokio::runtime::Runtime::new().unwrap();
        other.spawn(run.wait().into_future());
        let first = listener(db).await;
        let waiting = tokio::spawn(run.wait().into_future());
        other.shutdown_background();
        eventually("another listens", async || {
            let now = listeners(db).await;
            (!now.is_empty() && !now.contains(&first)).then_some(())
        })
        .await;
        end_in_silence(db, &run).await;
        assert_eq!(waiting.await.unwrap().unwrap(), RunStatus::Cancelled);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_where_the_database_does_not_answer() {
    with_database(async |db| {
        // A pool whose only connection is taken, and that is patient.
        let options = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(Duration::from_secs(600));
        let pool = options.connect_with((*db.pool().connect_options()).clone());
        let pool = pool.await.unwrap();
        let client = Client::new(pool.clone());
        let run = client.start(one_step()).await.unwrap();
        let taken = pool.acquire().await.unwrap();
        let limit = Duration::from_millis(20);
        let error = run.wait().timeout(limit).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "run {} has not ended within 20ms: the database did not return its status in time; wait \
                 longer, or look at its steps with `run.state()`",
                run.id()
            )
        );
        drop(taken);
        pool.close().await;
    })
    .await;
}

/// Starts a run of the same queue and waits for it.
#[derive(Debug, Serialize, Deserialize, Job)]
struct WaitsForRun;

impl Perform for WaitsForRun {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        let run = cx.data::<Client>()?.start(one_step()).await?;
        run.wait().await?;
        Ok(())
    }
}

/// On one thread: the test's own.
#[tokio::test]
async fn a_job_that_waits_for_a_run_on_the_last_slot_of_its_queue_is_named_in_one_warning() {
    Captured::begin();
    with_database(async |db| {
        let client = client(db);
        let job = client.enqueue(WaitsForRun).await.unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let worker = Worker::new(db.pool().clone())
            .register::<(WaitsForRun, super::support::Act)>()
            .queue("default", 1)
            .data(client.clone())
            .grace(Duration::from_millis(100));
        let worker = tokio::spawn(worker.run_until(async {
            stopped.await.unwrap();
        }));
        let said = "job waits for a run while it holds the last slot of its queue";
        let warned = eventually("the warning", async || {
            let log = Captured::so_far();
            log.lines()
                .find(|line| line.contains(said))
                .map(str::to_owned)
        });
        let warned = warned.await;
        let runs = client.runs(&RunFilter::new()).await.unwrap().items;
        for part in [
            " WARN ".to_owned(),
            format!("run.id={}", runs[0].id),
            format!("job.id={}", job.id),
            "job.type=\"waits_for_run\"".to_owned(),
            "queue=\"default\"".to_owned(),
        ] {
            assert!(warned.contains(&part), "{part}: {warned}");
        }
        stop.send(()).unwrap();
        worker.await.unwrap().unwrap();
        assert_eq!(Captured::text().matches(said).count(), 1);
    })
    .await;
}
