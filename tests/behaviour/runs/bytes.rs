//! Rule 31: a start is bounded in bytes. Statements are cut into pages, and one call has a limit.

use jobs::extension::limits::Bytes;
use pipeline::{Client, Error, NewRun, Pipeline, RunStatus};
use tests::{Database, with_database};

use super::start::{client, count, says};
use super::support::{Running, act};

const PAGE: usize = 4_000;

fn small(db: &Database) -> Client {
    let (page, call) = (PAGE, 100_000);
    client(db).with_bytes(Bytes { page, call })
}

/// A table of how many bytes of params each statement has inserted.
async fn measure(db: &Database) {
    sqlx::raw_sql(
        "create table pages (bytes bigint);
         create function measure() returns trigger language plpgsql as $$
         begin
             insert into pages select sum(octet_length(params::text)) from inserted;
             return null;
         end $$;
         create trigger measure_runs after insert on pipeline.runs
             referencing new table as inserted for each statement execute function measure();
         create trigger measure_steps after insert on pipeline.steps
             referencing new table as inserted for each statement execute function measure()",
    )
    .execute(db.pool())
    .await
    .unwrap();
}

async fn largest(db: &Database) -> i64 {
    sqlx::query_scalar("select max(bytes) from pages")
        .fetch_one(db.pool())
        .await
        .unwrap()
}

/// A line of so many steps, with this much for each.
fn line(steps: usize, bytes: usize) -> Pipeline {
    let word = "x".repeat(bytes);
    let line = Pipeline::configure("line", |p| {
        let mut last = p.step("s0", act(&format!("0{word}")));
        for no in 1..steps {
            last = p
                .following(&last)
                .step(&format!("s{no}"), act(&format!("{no}{word}")));
        }
    });
    line.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_run_that_is_larger_than_a_statement_is_started_in_several() {
    with_database(async |db| {
        let it = Running::start(db);
        measure(db).await;
        let run = small(db)
            .start(line(30, 500))
            .then(line(20, 500))
            .await
            .unwrap();
        let chained = &run.chained().await.unwrap()[0];
        assert_eq!(chained.wait().await.unwrap(), RunStatus::Succeeded);
        let read: Vec<(i32, String)> = sqlx::query_as(
            "select no, (params #>> '{}') from pipeline.steps where run = $1 order by no",
        )
        .bind(run.id())
        .fetch_all(db.pool())
        .await
        .unwrap();
        assert_eq!(read.len(), 30);
        for (no, params) in read {
            assert_eq!(params, format!("{no}{}", "x".repeat(500)));
        }
        let largest = largest(db).await;
        assert!((500..=PAGE as i64).contains(&largest), "{largest}");
        // It is copied row by row.
        let again = it.client.run(run.id()).rerun().await.unwrap();
        assert_eq!(again.wait().await.unwrap(), RunStatus::Succeeded);
        it.stop().await;
    })
    .await;
}

#[tokio::test]
async fn many_runs_are_started_in_several_statements_all_or_none() {
    with_database(async |db| {
        measure(db).await;
        let client = small(db);
        let key = |no: usize| (no % 2 == 1).then(|| format!("k{}", 100 - no));
        let new = |no: usize| {
            let new = NewRun::new(says("video", &format!("{no}{}", "x".repeat(500))));
            match key(no) {
                Some(key) => new.key(key),
                None => new,
            }
        };
        let runs = client
            .start((0..40).map(new).collect::<Vec<_>>())
            .await
            .unwrap();
        let read: Vec<(pipeline::RunId, String, Option<String>)> = sqlx::query_as(
            "select s.run, rtrim(s.params #>> '{}', 'x'), r.key
             from pipeline.steps s join pipeline.runs r on r.id = s.run
             order by (rtrim(s.params #>> '{}', 'x'))::int",
        )
        .fetch_all(db.pool())
        .await
        .unwrap();
        let sent: Vec<_> = (0..40)
            .map(|no| (runs[no].id(), no.to_string(), key(no)))
            .collect();
        assert_eq!(read, sent);
        assert!(largest(db).await <= PAGE as i64);

        // A conflict of one in the last page takes back those of the others.
        let conflict = NewRun::new(says("video", "other")).key("k99");
        let more =
            (40..60).map(|no| NewRun::new(says("video", &format!("{no}{}", "x".repeat(500)))));
        let error = client
            .start(more.chain([conflict]).collect::<Vec<_>>())
            .await
            .unwrap_err();
        assert!(matches!(error, Error::KeyConflict { .. }), "{error}");
        assert_eq!(count(&client).await, 40);
    })
    .await;
}

#[tokio::test]
async fn one_call_has_a_limit_in_bytes() {
    with_database(async |db| {
        let client = small(db);
        let many: Vec<_> = (0..300).map(|_| says("video", &"x".repeat(500))).collect();
        let error = client.start(many).await.unwrap_err();
        assert!(matches!(error, Error::TooManyBytes { limit: 100_000, .. }), "{error}");
        let said = "bytes of params together, and 100000 is the limit: start them in several calls, or store";
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(count(&client).await, 0);
    })
    .await;
}

#[tokio::test]
async fn the_edges_of_a_chain_have_a_limit() {
    with_database(async |db| {
        let client = client(db);
        let one = says("video", "x");
        let stage = || vec![one.clone(); 1_001];
        let error = client.start(stage()).then(stage()).await.unwrap_err();
        let said = "1002001 edges between chained runs in one call, and 1000000 is the limit";
        assert!(error.to_string().starts_with(said), "{error}");
    })
    .await;
}
