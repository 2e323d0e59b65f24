//! Keys: one key has one run and one chain, however often and by whomever it is started.

use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Client, Error, NewRun, Pipeline, Run, RunFilter};
use serde::{Deserialize, Serialize};
use tests::with_database;

use super::start::{client, count, rows, says};
use super::support::{Running, eventually};

fn one(name: &str) -> Pipeline<String> {
    says(name, name)
}

#[tokio::test]
async fn a_key_leads_to_one_run() {
    with_database(async |db| {
        let client = client(db);
        let first = client.start(says("video", "x")).key("k").await.unwrap();
        assert!(first.is_new());
        let again = client.start(says("video", "x")).key("k").await.unwrap();
        assert_eq!((again.id(), again.is_new()), (first.id(), false));
        // Of this pipeline: another has its own.
        let other = client.start(says("audio", "x")).key("k").await.unwrap();
        assert!(other.is_new() && other.id() != first.id());
        // It can be found by it.
        let found = async |pipeline: &str, key: &str| {
            let found = client.run_by_key(pipeline, key).await.unwrap();
            found.map(|run| (run.id(), run.is_new()))
        };
        assert_eq!(found("video", "k").await, Some((first.id(), false)));
        assert_eq!(found("audio", "k").await, Some((other.id(), false)));
        assert_eq!(found("video", "l").await, None);
        assert_eq!(found("text", "k").await, None);
        // Whatever became of the run.
        first.cancel().await.unwrap();
        let again = client.start(says("video", "x")).key("k").await.unwrap();
        assert_eq!((again.id(), again.is_new()), (first.id(), false));

        let error = client.start(says("video", "y")).key("k").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "run {} of `video` was started with the key `k` and other params, with another shape of its graph, or with other runs \
                 chained to it: use another key, or the same params and chain",
                first.id()
            )
        );
        assert_eq!(count(&client).await, 2);
    })
    .await;
}

#[tokio::test]
async fn the_order_of_a_params_fields_does_not_matter() {
    with_database(async |db| {
        /// Written in two ways.
        #[derive(Debug, Serialize, Deserialize, Job)]
        #[job(name = "fields")]
        struct OneWay {
            a: u8,
            b: u8,
        }
        #[derive(Debug, Serialize, Deserialize, Job)]
        #[job(name = "fields")]
        struct OtherWay {
            b: u8,
            a: u8,
        }
        macro_rules! quiet {
            ($($job:ident)*) => {$(
                impl Perform for $job {
                    type Input = ();
                    type Output = ();
                    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
                        Ok(())
                    }
                }
            )*};
        }
        quiet!(OneWay OtherWay);
        let client = client(db);
        let one = Pipeline::configure("f", |p| p.step("s", OneWay { a: 1, b: 2 })).unwrap();
        let other = Pipeline::configure("f", |p| p.step("s", OtherWay { b: 2, a: 1 })).unwrap();
        let one = client.start(one).key("k").await.unwrap();
        let other = client.start(other).key("k").await.unwrap();
        assert_eq!((one.id(), other.is_new()), (other.id(), false));
    })
    .await;
}

#[tokio::test]
async fn in_one_call_a_key_leads_to_one_run_too() {
    with_database(async |db| {
        let client = client(db);
        let new = |word: &str, key: &str| NewRun::new(says("video", word)).key(key);
        let runs = [new("x", "b"), new("x", "a"), new("x", "b")];
        let runs = client.start(runs).await.unwrap();
        assert_eq!(runs[0].id(), runs[2].id());
        let fresh: Vec<bool> = runs.iter().map(Run::is_new).collect();
        assert_eq!(fresh, [true, true, false]);
        // All of them or none.
        let error = client
            .start([new("x", "c"), new("y", "c")])
            .await
            .unwrap_err();
        assert!(
            matches!(error, Error::KeyConflict { ref key, .. } if key == "c"),
            "{error}"
        );
        assert_eq!(count(&client).await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_conflict_of_keys_leaves_nothing_in_your_transaction() {
    with_database(async |db| {
        let client = client(db);
        let new = |name: &str, word: &str| NewRun::new(says(name, word)).key("k");
        client.start(new("video", "x")).await.unwrap();
        // Their graphs are stored, as they may be outside of the transaction, too.
        client.start(says("audio", "z")).await.unwrap();
        client.start(says("text", "z")).await.unwrap();
        let before = rows(db).await;
        let mut tx = db.pool().begin().await.unwrap();
        // The other is of another graph: it has been written when the conflict is found.
        let both = [new("audio", "x"), new("video", "y")];
        let error = client.start_in(&mut tx, both).await.unwrap_err();
        assert!(matches!(error, Error::KeyConflict { .. }), "{error}");
        let kept = client.start_in(&mut tx, says("text", "x")).await.unwrap();
        tx.commit().await.unwrap();
        assert!(kept.status().await.is_ok());
        assert_eq!(count(&client).await, 4);
        // Of `text`: a run, a step, a job and an event.
        assert_eq!(rows(db).await, before + 4);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_with_one_key_start_one_run() {
    with_database(async |db| {
        let client = client(db);
        let starts = (0..40).map(|n| {
            let client = client.clone();
            // Some in bulk, with keys in either order.
            tokio::spawn(async move {
                let new = |key: &str| NewRun::new(says("video", "x")).key(key);
                match n % 3 {
                    0 => vec![client.start(new("k1")).await.unwrap()],
                    1 => client.start([new("k1"), new("k2")]).await.unwrap(),
                    _ => client.start([new("k2"), new("k1")]).await.unwrap(),
                }
            })
        });
        let starts: Vec<_> = starts.collect();
        let mut fresh = 0;
        for start in starts {
            let runs = start.await.unwrap();
            fresh += runs.iter().filter(|run| run.is_new()).count();
        }
        assert_eq!((fresh, count(&client).await), (2, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_an_open_transaction_is_waited_for() {
    with_database(async |db| {
        let client = client(db);
        // The graph is there: it is the key that is waited for.
        client.start(says("video", "x")).await.unwrap();
        for rolls_back in [true, false] {
            let key = if rolls_back { "back" } else { "forth" };
            let mut tx = db.pool().begin().await.unwrap();
            let first = client
                .start_in(&mut tx, says("video", "x"))
                .key(key)
                .await
                .unwrap();
            let second = tokio::spawn({
                let client = client.clone();
                async move { client.start(says("video", "x")).key(key).await.unwrap() }
            });
            eventually("the second waits for the first", async || {
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
            if rolls_back {
                tx.rollback().await.unwrap();
            } else {
                tx.commit().await.unwrap();
            }
            let second = second.await.unwrap();
            assert_eq!(second.is_new(), rolls_back);
            assert_eq!(second.id() != first.id(), rolls_back);
        }
    })
    .await;
}

#[tokio::test]
async fn a_key_stands_for_this_chain_and_no_other() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let start = || client.start(one("one")).key("k");
        // Taken ahead of the others, so that its ids are smaller.
        let other = Client::new(db.pool().clone());
        other.start(one("zero")).await.unwrap();
        let run = start().then(one("two")).await.unwrap();
        let late = other.start(one("late")).after([&run]).await.unwrap();
        assert!(late.id() < run.id());
        let again = start().then(one("two")).await.unwrap();
        let ids = async |run: &pipeline::Run<String>| -> Vec<pipeline::RunId> {
            tests::chain_of(run).await.iter().map(Run::id).collect()
        };
        assert_eq!((again.id(), ids(&again).await), (run.id(), ids(&run).await));

        let chains = [
            start(),
            start().then(one("three")),
            start().then((one("two"), one("two"))),
            start().then(one("two")).then(one("three")),
        ];
        for chain in chains {
            let error = chain.await.unwrap_err();
            assert!(
                matches!(error, Error::KeyConflict { run: there, .. } if there == run.id()),
                "{error}"
            );
        }
        // A part of what starts together is there, and the other part is not.
        let keyed = |name| NewRun::new(one(name)).key("k");
        let error = client
            .start((keyed("one"), keyed("five")))
            .then(one("two"))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::KeyConflict { .. }), "{error}");
        let error = client
            .start((keyed("six"), one("seven")))
            .then(one("two"))
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "runs of `six` and `seven` start a chain together, and only that of `six` has a key, `k`: \
             give a key to each of them, or to none"
        );
        let runs = client.runs(&RunFilter::new()).await.unwrap().items;
        assert_eq!(runs.len(), 4, "{runs:?}");
        // Nothing chained is no chain, and changes nothing about one that is there.
        let nothing = Vec::<Pipeline<String>>::new;
        let alone = client.start(one("eight")).key("k").then(nothing());
        let alone = alone.await.unwrap();
        let again = client.start(one("eight")).key("k").await.unwrap();
        assert_eq!((again.id(), again.is_new()), (alone.id(), false));
        let mut connection = db.pool().acquire().await.unwrap();
        let error = client.start_in(&mut connection, one("one")).key("k");
        let error = error.then(nothing()).await.unwrap_err();
        assert!(matches!(error, Error::KeyConflict { .. }), "{error}");
        drop(connection);
        let again = start().then(one("two")).await.unwrap();
        assert_eq!((again.id(), ids(&again).await), (run.id(), ids(&run).await));
        // Several with a key each.
        let all = || {
            client
                .start((keyed("six"), keyed("seven")))
                .then(one("two"))
        };
        let of_all = async || {
            let (six, seven) = all().await.unwrap();
            (six.id(), seven.id(), ids(&six).await)
        };
        assert_eq!(of_all().await, of_all().await);
        // Each key is of a chain like this one, and no chain has both.
        let pair = |one: &str, other: &str| {
            let new = |key: &str| NewRun::new(says("nine", "x")).key(key);
            client
                .start((new(one), new(other)))
                .then(says("ten", "x"))
        };
        pair("1", "2").await.unwrap();
        pair("3", "4").await.unwrap();
        let error = pair("1", "3").await.unwrap_err();
        assert!(matches!(error, Error::KeyConflict { .. }), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stands_for_the_whole_chain() {
    with_database(async |db| {
        let it = Running::start(db);
        let start = || {
            let first = it.client.start(one("one")).key("video-7");
            first.then((one("two"), one("three"))).then(one("four"))
        };
        let run = start().await.unwrap();
        let ids = async |run: &pipeline::Run<String>| -> Vec<pipeline::RunId> {
            tests::chain_of(run).await.iter().map(Run::id).collect()
        };
        it.becomes(&tests::chain_of(&run).await[2], "succeeded")
            .await;
        let again = start().await.unwrap();
        assert_eq!(again.id(), run.id());
        assert_eq!(ids(&again).await, ids(&run).await);
        assert!(!again.is_new() && run.is_new());
        let runs: i64 = sqlx::query_scalar("select count(*) from pipeline.runs")
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(runs, 4);
        it.stop().await;
    })
    .await;
}
