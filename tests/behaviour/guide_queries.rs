//! The queries of the guide on operating, run as they are printed there.

use jobs::{Context, Job, JobError, Perform};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, PgPool, Row as _};
use tests::with_database;

use crate::jobs::support::{Do, Running, What, client, ended};

/// The statements of the guide that only read.
fn queries() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guides/operating.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let blocks = guide.split("```sql\n").skip(1);
    let statements = blocks.flat_map(|block| block.split("```").next().unwrap_or("").split(';'));
    let read = statements
        .map(str::trim)
        .filter(|it| it.starts_with("select"));
    read.map(str::to_owned).collect()
}

/// The guide's query with this text.
fn query(text: &str) -> String {
    let mut found = queries().into_iter().filter(|query| query.contains(text));
    let query = found.next().expect("the guide has it");
    assert!(found.next().is_none(), "two queries have `{text}`");
    query
}

async fn rows(pool: &PgPool, query: String) -> Vec<sqlx::postgres::PgRow> {
    let outcome = sqlx::raw_sql(AssertSqlSafe(query.clone()))
        .fetch_all(pool)
        .await;
    outcome.unwrap_or_else(|error| panic!("{error}: {query}"))
}

#[tokio::test]
async fn every_query_of_the_guide_runs() {
    with_database(async |db| {
        let queries = queries();
        assert!(queries.len() > 15, "{} queries", queries.len());
        for query in queries {
            rows(db.pool(), query).await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_session_that_holds_a_row_is_found() {
    with_database(async |db| {
        let new = Do::new("a", What::Succeed);
        client(db).enqueue(new).await.unwrap();
        let mut held = db.pool().begin().await.unwrap();
        let pid: i32 =
            sqlx::query_scalar("select pg_backend_pid() from pipeline.jobs for no key update")
                .fetch_one(&mut *held)
                .await
                .unwrap();
        let found = rows(db.pool(), query("from pg_locks")).await;
        let pids: Vec<i32> = found.iter().map(|row| row.get("pid")).collect();
        assert!(pids.contains(&pid), "{pid} is not among {pids:?}");
        held.rollback().await.unwrap();
    })
    .await;
}

/// A newer version than the live worker knows.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "do", version = 2)]
struct DoMore;

impl Perform for DoMore {
    type Input = ();
    type Output = ();
    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_job_of_a_newer_version_is_among_those_that_no_live_worker_knows() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let new = Do::new("a", What::Succeed);
        let known = client(db).enqueue(new).await.unwrap().id;
        ended(db, known).await;
        let new = Do::new("gate", What::AtGate);
        client(db).enqueue(new).await.unwrap();
        worker.log.says("gate 1").await;
        client(db).enqueue(DoMore).await.unwrap();
        let found = rows(db.pool(), query("as unknown_since")).await;
        let found: Vec<(String, i32, i64)> = found
            .iter()
            .map(|row| (row.get("job_type"), row.get("version"), row.get("count")))
            .collect();
        assert_eq!(found, [("do".to_owned(), 2, 1)]);
        let needed = rows(db.pool(), query("needed_as")).await;
        let versions: Vec<i32> = needed.iter().map(|row| row.get("version")).collect();
        assert_eq!(versions, [1, 2]);
        worker.gate.let_through(1);
        worker.stop().await;
    })
    .await;
}
