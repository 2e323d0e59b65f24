//! Starts of one client that wait for a connection are sent together; each caller gets its own run, or its own error.

use std::collections::HashSet;
use std::sync::Arc;

use pipeline::{Client, Error, Pipeline, Run, RunStatus};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tests::{Database, with_database};
use tokio::task::JoinHandle;

use super::start::says;
use super::support::{Running, act, eventually};

/// A client on a pool of one connection.
fn client(db: &Database) -> (Client, PgPool) {
    let options = (*db.pool().connect_options()).clone();
    let pool = PgPoolOptions::new().max_connections(1);
    let pool = pool.connect_lazy_with(options);
    (Client::new(pool.clone()), pool)
}

/// Starts a run on behalf of an actor, in a task of its own.
fn start(client: &Client, actor: &str) -> JoinHandle<pipeline::Result<Run<String>>> {
    let (client, actor) = (client.clone(), actor.to_owned());
    tokio::spawn(async move { client.start(says("video", &actor)).actor(actor).await })
}

/// Lets every task that was spawned before run until it waits. The tests that use it have a runtime of one thread, and a
/// start does not wait for anything before it has joined the others.
async fn all_wait() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

async fn actors(db: &Database) -> Vec<String> {
    let query = "select actor from pipeline.runs where actor is not null order by actor";
    sqlx::query_scalar(query)
        .fetch_all(db.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn starts_that_wait_for_a_connection_are_sent_together() {
    with_database(async |db| {
        let it = Running::start(db);
        let (client, pool) = client(db);
        client.start(says("video", "first")).await.unwrap();
        let only = pool.acquire().await.unwrap();
        let starts: Vec<_> = (0..20).map(|no| start(&client, &no.to_string())).collect();
        all_wait().await;
        drop(only);
        let mut ids = HashSet::new();
        for (no, start) in starts.into_iter().enumerate() {
            let run = start.await.unwrap().unwrap();
            ids.insert(run.id());
            assert_eq!(run.result().await.unwrap(), no.to_string(), "its own run");
        }
        assert_eq!(ids.len(), 20);
        let statements: i64 = sqlx::query_scalar(
            "select count(distinct created_at) from pipeline.runs where actor is not null",
        )
        .fetch_one(db.pool())
        .await
        .unwrap();
        assert_eq!(statements, 2, "one start, and the 19 that waited for it");
        it.stop().await;
        pool.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_start_that_fails_by_its_data_does_not_fail_the_others() {
    with_database(async |db| {
        sqlx::raw_sql(
            "create function refuse() returns trigger language plpgsql as $$ begin
                 if new.actor = 'bad' then raise 'refused' using errcode = '22000'; end if;
                 return new;
             end $$;
             create trigger refuse before insert on pipeline.runs for each row execute function refuse()",
        )
        .execute(db.pool())
        .await
        .unwrap();
        let (client, pool) = client(db);
        client.start(says("video", "first")).await.unwrap();
        let only = pool.acquire().await.unwrap();
        let names = ["a", "b", "bad", "c"];
        let starts = names.map(|actor| start(&client, actor));
        all_wait().await;
        drop(only);
        for (actor, start) in names.into_iter().zip(starts) {
            match start.await.unwrap() {
                Ok(run) => assert_eq!(run.state().await.unwrap().run.actor.as_deref(), Some(actor)),
                Err(Error::Database(error)) => {
                    assert_eq!(actor, "bad");
                    assert!(error.to_string().contains("refused"), "{error}");
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(actors(db).await, ["a", "b", "c"], "each once");
        pool.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_nobody_waits_for_is_not_sent() {
    with_database(async |db| {
        let (client, pool) = client(db);
        client.start(says("video", "first")).await.unwrap();
        let only = pool.acquire().await.unwrap();
        let starts = ["a", "b", "dropped", "c"].map(|actor| start(&client, actor));
        starts[2].abort();
        let [a, b, dropped, c] = starts;
        assert!(dropped.await.is_err());
        drop(only);
        for start in [a, b, c] {
            start.await.unwrap().unwrap();
        }
        assert_eq!(actors(db).await, ["a", "b", "c"]);
        pool.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_starts_of_several_graphs_all_return_their_own_output() {
    with_database(async |db| {
        let it = Running::start(db);
        let client = Arc::new(it.client.clone());
        let tasks: Vec<_> = (0..120)
            .map(|no: usize| {
                let client = Arc::clone(&client);
                tokio::spawn(async move {
                    let chain = Pipeline::configure(&format!("chain{}", no % 3), |p| {
                        let first = p.step("a", act(&format!("a{no}")));
                        let last = p.following(&first).step("b", act(&format!("b{no}")));
                        (first, last)
                    });
                    let run = client.start(chain.unwrap()).await.unwrap();
                    let outputs = run.result().await.unwrap();
                    assert_eq!(outputs, (format!("a{no}"), format!("b{no}")));
                    run
                })
            })
            .collect();
        for task in tasks {
            let run = task.await.unwrap();
            assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        }
        eventually("the queue is empty", async || {
            let query = "select not exists (select from pipeline.jobs)";
            let empty: bool = sqlx::query_scalar(query)
                .fetch_one(db.pool())
                .await
                .unwrap();
            empty.then_some(())
        })
        .await;
        it.stop().await;
    })
    .await;
}
