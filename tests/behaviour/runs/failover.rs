//! Rule 32: what a client remembers of the database is a hint. A failover to a replica that lags, or a
//! restore, is played by setting the sequence back: the database then gives out ids once more.

use pipeline::{Client, NewRun, Pipeline, Run, RunStatus};
use tests::{Database, with_database};

use super::start::{count, says};
use super::support::{Running, act};
use crate::jobs::proxy::Proxy;
use crate::jobs::support::impatient;

/// A client whose statements do not run for ever.
fn client(db: &Database) -> Client {
    Client::new(impatient(db, 5))
}

/// Sets the sequence of run ids back to where it was before the last `ids`.
async fn restore(db: &Database, ids: i64) {
    sqlx::query("select setval('pipeline.run_ids', last_value - $1) from pipeline.run_ids")
        .bind(ids)
        .execute(db.pool())
        .await
        .unwrap();
}

/// Two clients: the first remembers 64 ids, and the database gives the same ones to the second.
async fn two_clients(db: &Database) -> (Client, Client) {
    let (one, two) = (client(db), client(db));
    one.start(says("before", "x")).await.unwrap();
    restore(db, 64).await;
    (one, two)
}

async fn name_of<O>(db: &Database, run: &Run<O>) -> String {
    sqlx::query_scalar("select pipeline from pipeline.runs where id = $1")
        .bind(run.id())
        .fetch_one(db.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_start_whose_id_is_another_runs_is_a_run_of_its_own() {
    with_database(async |db| {
        let (one, two) = two_clients(db).await;
        let theirs = two.start(says("of_two", "x")).await.unwrap();
        let ours = one.start(says("of_one", "x")).await.unwrap();
        assert_ne!(ours.id(), theirs.id());
        assert!(ours.is_new());
        assert_eq!(name_of(db, &ours).await, "of_one");
        assert_eq!(name_of(db, &theirs).await, "of_two");
        // The ids that it remembered are gone with it: the next start meets no other run.
        let next = one.start(says("of_one", "x")).await.unwrap();
        assert_eq!(name_of(db, &next).await, "of_one");
        assert_eq!(count(&one).await, 4);
    })
    .await;
}

#[tokio::test]
async fn a_start_with_a_key_ends_though_its_id_is_another_runs() {
    with_database(async |db| {
        let (one, two) = two_clients(db).await;
        two.start(says("of_two", "x")).await.unwrap();
        let ours = one.start(says("of_one", "x")).key("k").await.unwrap();
        assert!(ours.is_new());
        assert_eq!(name_of(db, &ours).await, "of_one");
        let again = one.start(says("of_one", "x")).key("k").await.unwrap();
        assert_eq!((again.id(), again.is_new()), (ours.id(), false));
    })
    .await;
}

#[tokio::test]
async fn many_runs_of_several_graphs_are_started_around_the_ids_of_others() {
    with_database(async |db| {
        let (one, two) = two_clients(db).await;
        for _ in 0..3 {
            two.start(says("of_two", "x")).await.unwrap();
        }
        let runs = ["a", "b", "a", "c", "b"].map(|name| says(name, "x"));
        let keyed = NewRun::new(says("a", "y")).key("k");
        let runs = runs
            .map(NewRun::new)
            .into_iter()
            .chain([keyed])
            .collect::<Vec<_>>();
        let started = one.start(runs).await.unwrap();
        let mut names = Vec::new();
        for run in &started {
            names.push(name_of(db, run).await);
        }
        assert_eq!(names, ["a", "b", "a", "c", "b", "a"]);
        assert_eq!(count(&one).await, 10);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_is_started_around_the_ids_of_others() {
    with_database(async |db| {
        let it = Running::start(db);
        let (one, two) = two_clients(db).await;
        for _ in 0..3 {
            two.start(says("of_two", "x")).await.unwrap();
        }
        let first = one
            .start(says("first", "x"))
            .then(says("second", "x"))
            .then(says("third", "x"));
        let first = first.key("k").await.unwrap();
        let chained = tests::chain_of(&first).await;
        assert_eq!(name_of(db, &chained[0]).await, "second");
        assert_eq!(name_of(db, &chained[1]).await, "third");
        assert_eq!(chained[1].wait().await.unwrap(), RunStatus::Succeeded);
        let edges: Vec<(pipeline::RunId, pipeline::RunId)> =
            sqlx::query_as("select upstream, downstream from pipeline.chains order by upstream")
                .fetch_all(db.pool())
                .await
                .unwrap();
        let (second, third) = (chained[0].id(), chained[1].id());
        assert_eq!(edges, [(first.id(), second), (second, third)]);
        it.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_start_in_the_callers_transaction_takes_other_ids_and_leaves_no_half() {
    with_database(async |db| {
        let (one, two) = two_clients(db).await;
        two.start(says("of_two", "x")).await.unwrap();
        two.start(says("of_two", "x")).await.unwrap();
        let mut tx = one.pool().begin().await.unwrap();
        let ours = one.start_in(&mut tx, says("of_one", "x")).await.unwrap();
        let chain = one.start_in(&mut tx, says("a", "x")).then(says("b", "x"));
        let chain = chain.key("k").await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(name_of(db, &ours).await, "of_one");
        assert_eq!(name_of(db, &chain).await, "a");
        assert_eq!(name_of(db, &chain.chained().await.unwrap()[0]).await, "b");
        assert_eq!(count(&one).await, 6);
    })
    .await;
}

#[tokio::test]
async fn a_rerun_whose_id_is_another_runs_is_a_run_of_its_own() {
    with_database(async |db| {
        let one = client(db);
        let again = Pipeline::configure("again", |p| {
            let a = p.step("a", act("x"));
            p.following(&a).step("b", act("y"));
        });
        let first = one.start(again.unwrap()).await.unwrap();
        restore(db, 64).await;
        let theirs = client(db).start(says("of_two", "x")).await.unwrap();
        let rerun = first.rerun().await.unwrap();
        assert_ne!(rerun.id(), theirs.id());
        assert_eq!(name_of(db, &rerun).await, "again");
        let params: Vec<(i32, String, String)> = sqlx::query_as(
            "select no, status::text, params::text from pipeline.steps where run = $1 order by no",
        )
        .bind(rerun.id())
        .fetch_all(db.pool())
        .await
        .unwrap();
        let step = |no, status: &str, params: &str| (no, status.to_owned(), params.to_owned());
        assert_eq!(
            params,
            [step(0, "enqueued", "\"x\""), step(1, "pending", "\"y\"")]
        );
    })
    .await;
}

/// Others have used the ids that they remembered, so that runs lie before the sequence.
#[tokio::test]
async fn a_sequence_that_stands_far_behind_the_runs_is_caught_up_with() {
    with_database(async |db| {
        let one = client(db);
        let many: Vec<_> = (0..300).map(|_| says("before", "x")).collect();
        one.start(many).await.unwrap();
        sqlx::query("select setval('pipeline.run_ids', 1)")
            .execute(db.pool())
            .await
            .unwrap();
        let two = client(db);
        let run = two.start(says("after", "x")).await.unwrap();
        assert_eq!(name_of(db, &run).await, "after");
        let runs: i64 = sqlx::query_scalar("select count(*) from pipeline.runs")
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(runs, 301);
    })
    .await;
}

#[tokio::test]
async fn a_graph_whose_id_is_another_graphs_is_stored_again() {
    with_database(async |db| {
        let one = client(db);
        one.start(says("of_one", "x")).await.unwrap();
        // What the client remembers as the graph of `of_one` is that of `of_two`.
        sqlx::raw_sql(
            "delete from pipeline.jobs; delete from pipeline.steps; delete from pipeline.events;
             delete from pipeline.runs; delete from pipeline.graphs;
             select setval('pipeline.ids', 1, false)",
        )
        .execute(db.pool())
        .await
        .unwrap();
        let two = Pipeline::configure("of_two", |p| {
            let a = p.step("a", act("x"));
            p.following(&a).step("b", act("y"));
        });
        let theirs = client(db).start(two.unwrap()).await.unwrap();
        let ours = one.start(says("of_one", "x")).await.unwrap();
        assert_eq!(name_of(db, &ours).await, "of_one");
        let graphs: Vec<i64> =
            sqlx::query_scalar("select graph from pipeline.runs where id = any ($1) order by id")
                .bind([theirs.id(), ours.id()])
                .fetch_all(db.pool())
                .await
                .unwrap();
        assert_ne!(graphs[0], graphs[1]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_taken_ahead_are_dropped_with_a_lost_connection() {
    with_database(async |db| {
        let proxy = Proxy::start(db);
        let pool = proxy.pool();
        let client = Client::new(pool.clone());
        let run = client.start(says("video", "x")).await.unwrap();
        let lost = client.start(says("video", "lost"));
        proxy.lose_the_next_answer_to("lost");
        let lost = lost.await.unwrap();
        assert!(proxy.has_lost_it() && lost.is_new());
        // The connection was lost, and with it the ids that were taken ahead.
        let next = run.rerun().await.unwrap();
        assert!(
            next.id().get() > lost.id().get() + 60,
            "{} after {}",
            next.id(),
            lost.id()
        );
        assert_eq!(count(&client).await, 3);
        pool.close().await;
    })
    .await;
}
