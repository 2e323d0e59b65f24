//! A client that waits in the process of the worker is told directly how a run ended, and what it returned.

use std::time::Duration;

use pipeline::{Client, Error, Pipeline, RunStatus};
use sqlx::postgres::PgPoolOptions;
use tests::{Database, with_database};

use super::start::says;
use super::support::{Running, What, act, eventually};

/// The waiter's own poll may find the end before the worker tells of it, and then the output is read on a connection of
/// the pool: so a run counts only if the worker was first.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_needs_no_connection_of_the_clients_pool() {
    with_database(async |db| {
        let it = Running::start(db);
        let options = (*db.pool().connect_options()).clone();
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(Duration::from_secs(3));
        let pool = pool.connect_lazy_with(options);
        let client = Client::new(pool.clone());
        let mut tries = 0;
        loop {
            tries += 1;
            match result_without_the_pool(&it, db, &client, &format!("b{tries}")).await {
                Ok(()) => break,
                Err(error) => assert!(tries < 10, "{error}"),
            }
        }
        it.stop().await;
        pool.close().await;
    })
    .await;
}

/// Waits for a run while the only connection of the pool is taken.
async fn result_without_the_pool(
    it: &Running,
    db: &Database,
    client: &Client,
    last: &str,
) -> pipeline::Result<()> {
    let chain = Pipeline::configure("chain", |p| {
        let first = p.step("a", act("a"));
        let last = p.following(&first).step("b", act(last));
        (first, last)
    });
    it.script.tell(last, What::Wait);
    let run = client.start(chain.unwrap()).await.unwrap();
    it.script.says(last).await;
    let only = client.pool().acquire().await.unwrap();
    let result = tokio::spawn({
        let run = run.clone();
        async move { run.result().await }
    });
    // The client waits, and knows its database, once its listener has looked at the run.
    eventually("the client listens", async || {
        let listens: bool = sqlx::query_scalar(
            "select exists (select from pg_stat_activity where datname = current_database()
                            and application_name = 'pipeline' and state = 'idle'
                            and query like '%from pipeline.runs%')",
        )
        .fetch_one(db.pool())
        .await
        .unwrap();
        listens.then_some(())
    })
    .await;
    it.script.let_through(last);
    let result = result.await.unwrap()?;
    assert_eq!(result, ("a".to_owned(), last.to_owned()));
    drop(only);
    assert_eq!(run.result().await.unwrap(), result, "asked again");
    assert_eq!(run.output().await.unwrap(), result);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_large_or_missing_is_what_the_output_is() {
    with_database(async |db| {
        let it = Running::start(db);
        let large = "x".repeat(100_000);
        let run = it.client.start(says("large", &large)).await.unwrap();
        assert_eq!(run.result().await.unwrap(), large);
        it.script.tell("f", What::Fail);
        let run = it.client.start(says("fails", "f")).await.unwrap();
        let error = run.result().await.unwrap_err();
        assert!(matches!(error, Error::NoOutput { .. }), "{error}");
        let error = it.client.run((1 << 40).into()).result().await.unwrap_err();
        assert!(matches!(error, Error::NoRun(_)), "{error}");
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_hears_nothing_of_the_same_run_in_another_database() {
    with_database(async |one| {
        with_database(async |two| {
            let it = Running::start(one);
            it.script.tell("x", What::Wait);
            let here = it.client.start(says("video", "x")).await.unwrap();
            let client = Client::new(two.pool().clone());
            let there = loop {
                let there = client.start(says("video", "x")).await.unwrap();
                if there.id() >= here.id() {
                    break there;
                }
            };
            assert_eq!(there.id(), here.id(), "both databases are new");
            let waiter = tokio::spawn({
                let there = there.clone();
                async move { there.wait().await }
            });
            let mine = tokio::spawn({
                let here = here.clone();
                async move { here.wait().await }
            });
            it.script.says("x").await;
            it.script.let_through("x");
            assert_eq!(mine.await.unwrap().unwrap(), RunStatus::Succeeded);
            there.cancel().await.unwrap();
            let worker = Running::start(two);
            assert_eq!(waiter.await.unwrap().unwrap(), RunStatus::Cancelled);
            worker.stop().await;
            it.stop().await;
        })
        .await;
    })
    .await;
}
