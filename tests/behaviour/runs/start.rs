//! Starting: alone, in the caller's transaction, in bulk.

use pipeline::{Client, EventLevel, NewRun, Pipeline, RunFilter, RunStatus};
use tests::{Database, with_database};

use super::support::{Running, Told, act, eventually};
use crate::jobs::proxy::Proxy;
use crate::logged::Captured;

pub(super) fn says(name: &str, word: &str) -> Pipeline<String> {
    Pipeline::configure(name, |p| p.step("a", act(word))).unwrap()
}

pub(super) fn client(db: &Database) -> Client {
    Client::new(db.pool().clone())
}

/// How many rows a start has left behind, of any kind.
pub(super) async fn rows(db: &Database) -> i64 {
    sqlx::query_scalar(
        "select (select count(*) from pipeline.runs) + (select count(*) from pipeline.steps)
              + (select count(*) from pipeline.jobs) + (select count(*) from pipeline.events)
              + (select count(*) from pipeline.graphs) + (select count(*) from pipeline.nodes)",
    )
    .fetch_one(db.pool())
    .await
    .unwrap()
}

pub(super) async fn count(client: &Client) -> usize {
    client.runs(&RunFilter::new()).await.unwrap().items.len()
}

#[tokio::test]
async fn what_a_lost_transaction_was_to_start_is_started_by_the_next() {
    with_database(async |db| {
        let client = client(db);
        sqlx::raw_sql("create table stock (pieces int); insert into stock values (9)")
            .execute(db.pool())
            .await
            .unwrap();
        let new = NewRun::new(says("video", "x")).key("k").tag("t");
        let mut started = None;
        for other_sells in [true, false] {
            let mut tx = db.pool().begin().await.unwrap();
            sqlx::query("set transaction isolation level repeatable read")
                .execute(&mut *tx)
                .await
                .unwrap();
            let run = client.start_in(&mut tx, new.clone()).await.unwrap();
            let sell = "update stock set pieces = pieces - 1";
            if other_sells {
                sqlx::query(sell).execute(db.pool()).await.unwrap();
            }
            match sqlx::query(sell).execute(&mut *tx).await {
                Ok(_) => {
                    tx.commit().await.unwrap();
                    started = Some(run);
                }
                Err(error) => {
                    let error = error.into_database_error().unwrap();
                    assert_eq!(error.code().as_deref(), Some("40001"));
                }
            }
        }
        let runs = client.runs(&RunFilter::new().tag("t")).await.unwrap().items;
        let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
        assert_eq!(ids, [started.unwrap().id()]);
    })
    .await;
}

#[tokio::test]
async fn what_is_said_of_a_chain_is_said_of_the_runs_that_come_first() {
    with_database(async |db| {
        let client = client(db);
        let runs = client
            .start([says("a", "x"), says("b", "x")])
            .then([says("c", "x")])
            .tag("t")
            .actor("ada")
            .event_level(EventLevel::None)
            .await
            .unwrap();
        for (run, said) in [
            (runs[0].clone(), true),
            (runs[1].clone(), true),
            (runs[0].chained().await.unwrap()[0].returning(), false),
        ] {
            let state = run.state().await.unwrap();
            assert_eq!(state.tags == ["t"], said);
            assert_eq!(state.actor.as_deref(), said.then_some("ada"));
        }
        assert_eq!(runs[0].events().await.unwrap(), []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_rolled_back_never_was() {
    with_database(async |db| {
        let client = client(db);
        let mut tx = db.pool().begin().await.unwrap();
        client
            .start_in(&mut tx, says("video", "x"))
            .key("k")
            .await
            .unwrap();
        let more = vec![says("audio", "x"); 3];
        client.start_in(&mut tx, more).await.unwrap();
        tx.rollback().await.unwrap();
        let left: Vec<i64> = sqlx::query_scalar(
            "select count(*) from pipeline.runs union all select count(*) from pipeline.steps
             union all select count(*) from pipeline.jobs union all select count(*) from pipeline.events",
        )
        .fetch_all(db.pool())
        .await
        .unwrap();
        assert_eq!(left, [0, 0, 0, 0]);

        let it = Running::start(db);
        let run = client.start(says("video", "x")).key("k").await.unwrap();
        assert!(run.is_new());
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        let mut tx = db.pool().begin().await.unwrap();
        let run = client.start_in(&mut tx, says("audio", "x")).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_several_pipelines_start_together_in_the_order_they_were_named() {
    with_database(async |db| {
        let it = Running::start(db);
        let words: Vec<(String, String)> = (0..30)
            .map(|n| (format!("p{}", n % 3), format!("word {n}")))
            .collect();
        let new = words.iter().map(|(name, word)| says(name, word));
        let runs = it.client.start(new.collect::<Vec<_>>()).await.unwrap();
        for (run, (name, word)) in runs.iter().zip(&words) {
            assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
            assert_eq!(&run.output().await.unwrap(), word);
            assert_eq!(&run.state().await.unwrap().pipeline, name);
        }
        assert_eq!(
            it.client.start(Vec::<Pipeline>::new()).await.unwrap().len(),
            0
        );
        it.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_mistake_is_said_before_anything_is_written() {
    with_database(async |db| {
        let client = client(db);
        let new = || NewRun::new(says("video", "x"));
        let tagged = |count: usize| (0..count).fold(new(), |new, n| new.tag(format!("t{n}")));
        let wrong = [
            (new().key(""), "the key of a run of `video` is empty"),
            (
                new().key("k".repeat(10_000)),
                "kkk…` of a run of `video` has 10000 bytes, and 512 is the limit: shorten it",
            ),
            (
                new().key("a\0"),
                "the key of `video` contains a NUL character",
            ),
            (new().actor(""), "the actor of a run of `video` is empty"),
            (
                new().actor("a".repeat(257)),
                "aaa…` of a run of `video` has 257 bytes, and 256 is the limit: shorten it",
            ),
            (
                new().actor("\0"),
                "the actor of `video` contains a NUL character",
            ),
            (new().tag(""), "the tag of a run of `video` is empty"),
            (new().tag("ä".repeat(65)), "the tag `äää"),
            (
                new().tag("ä".repeat(65)),
                "äää…` of a run of `video` has 65 characters, and 64 is the limit: shorten it",
            ),
            (
                new().tag("\0"),
                "the tag of `video` contains a NUL character",
            ),
            (
                tagged(17),
                "17 tags for a run of `video`, and 16 is the limit",
            ),
            (
                NewRun::new(says("video", &"x".repeat(2 << 20))),
                "2097154 bytes of params for `a`, and",
            ),
            (
                NewRun::new(says("video", "\0")),
                "the params of `a` cannot be stored: at `.` there is a NUL character",
            ),
        ];
        for (wrong, message) in wrong {
            // One that is right does not go alone.
            let error = client.start([new(), wrong]).await.unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
            assert_eq!(rows(db).await, 0, "{error}");
        }
        client
            .start(tagged(16).actor("a".repeat(256)))
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_tag_that_a_pipeline_may_have_its_runs_may_have_too() {
    with_database(async |db| {
        let client = client(db);
        let longest = || "ä".repeat(64);
        let tagged = Pipeline::configure("tagged", |p| {
            p.tag(longest());
            p.step("a", act("x"));
        });
        let run = client.start(tagged.unwrap()).await.unwrap();
        assert_eq!(run.state().await.unwrap().tags, [longest()]);
        let run = NewRun::new(says("video", "x")).tag(longest());
        let run = client.start(run).await.unwrap();
        assert_eq!(run.state().await.unwrap().tags, [longest()]);
        let too_long = Pipeline::configure("tagged", |p| {
            p.tag("ä".repeat(65));
            p.step("a", act("x"));
        });
        let error = too_long.unwrap_err().to_string();
        let said = format!("the tag `{}…` has 65 characters, more than 64", longest());
        assert!(error.contains(&said), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_whose_answer_is_lost_is_not_done_twice() {
    with_database(async |db| {
        let proxy = Proxy::start(db);
        let pool = proxy.pool();
        let client = Client::new(pool.clone());
        client.start(says("video", "x")).await.unwrap();
        for key in [None, Some("k")] {
            let new = NewRun::new(says("video", "lost"));
            let new = match key {
                Some(key) => new.key(key),
                None => new,
            };
            let before = count(&client).await;
            proxy.lose_the_next_answer_to("lost");
            let run = client.start(new).await.unwrap();
            assert!(proxy.has_lost_it() && run.is_new(), "{key:?}");
            assert_eq!(count(&client).await, before + 1);
            let state = client.run(run.id()).state().await.unwrap();
            assert_eq!(state.steps.len(), 1);
        }
        // A chain too: its edges are there once.
        proxy.lose_the_next_answer_to_a_commit();
        let run = client
            .start(says("one", "x"))
            .then(says("two", "x"))
            .await
            .unwrap();
        assert!(proxy.has_lost_it());
        assert_eq!(run.chained().await.unwrap().len(), 1);
        assert_eq!(count(&client).await, 5);
        pool.close().await;
    })
    .await;
}

/// On one thread: the test's own.
#[tokio::test]
async fn who_starts_what_nobody_knows_is_warned_of_each_type_once() {
    Captured::begin();
    with_database(async |db| {
        let client = client(db);
        let pipeline = || {
            Pipeline::configure("lonely", |p| {
                let a = p.step("a", act("a"));
                p.following(&a).step("b", act("b"));
                p.on_complete(Told("complete".into()));
            })
        };
        let mut tx = db.pool().begin().await.unwrap();
        client.start_in(&mut tx, pipeline().unwrap()).await.unwrap();
        tx.commit().await.unwrap();
        let warned = || {
            let log = Captured::so_far();
            let warnings = log
                .lines()
                .filter(|line| line.contains("no live worker knows"));
            let mut kinds: Vec<String> = warnings
                .filter_map(|line| {
                    Some(
                        line.split("job.type=\"")
                            .nth(1)?
                            .split('"')
                            .next()?
                            .to_owned(),
                    )
                })
                .collect();
            kinds.sort();
            kinds
        };
        eventually("two warnings", async || (warned().len() == 2).then_some(())).await;
        client.start(pipeline().unwrap()).await.unwrap();
        assert_eq!(warned(), ["act", "told"]);

        // A worker that knows them, and takes no steps: callbacks it does.
        let stop = tokio_util::sync::CancellationToken::new();
        let worker = pipeline::jobs::Worker::new(db.pool().clone())
            .register::<(super::support::Act, Told)>()
            .queue("*", 1);
        let worker = tokio::spawn(worker.run_until(stop.clone().cancelled_owned()));
        let other = Client::new(db.pool().clone());
        eventually("it is there", async || {
            let workers = "select count(*) from pipeline.workers";
            let workers: i64 = sqlx::query_scalar(workers)
                .fetch_one(db.pool())
                .await
                .unwrap();
            (workers == 1).then_some(())
        })
        .await;
        other.start(pipeline().unwrap()).await.unwrap();
        let in_vain = || {
            let log = Captured::so_far();
            let of_it = |line: &&str| line.contains("take no steps of runs");
            log.lines()
                .filter(of_it)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        eventually("a warning", async || (!in_vain().is_empty()).then_some(())).await;
        let in_vain = in_vain();
        assert!(
            in_vain.len() == 1 && in_vain[0].contains("job.type=\"act\""),
            "{in_vain:?}"
        );
        stop.cancel();
        worker.await.unwrap().unwrap();
        Captured::text();
    })
    .await;
}
