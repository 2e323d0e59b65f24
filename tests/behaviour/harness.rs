//! The harness itself: what it promises to every other test.

use std::sync::Arc;

use local_postgres::{Claim, Server};
use sqlx::{Connection as _, PgConnection};
use tests::{Database, Failure, Keep, server, template, try_with_database, until, with_database};

use crate::processes::Staying;

async fn exists(name: &str) -> bool {
    let mut admin = server().await.admin().await.unwrap();
    sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
        .bind(name)
        .fetch_one(&mut admin)
        .await
        .unwrap()
}

#[tokio::test]
async fn each_test_has_a_fresh_database() {
    let write = async |db: &Database| {
        sqlx::raw_sql("create table leftover ()")
            .execute(db.pool())
            .await
            .unwrap();
    };
    with_database(write).await;
    with_database(write).await;
}

#[tokio::test]
async fn a_database_is_gone_after_its_test_whatever_came_of_it() {
    let mut passed = String::new();
    with_database(async |db| passed = db.name().to_owned()).await;
    assert!(!exists(&passed).await);

    let mut failed = String::new();
    let outcome = try_with_database(Keep::No, async |db| {
        failed = db.name().to_owned();
        panic!("on purpose");
    })
    .await;
    assert!(matches!(outcome, Err((Failure::Panicked(_), None))));
    assert!(!exists(&failed).await);
}

#[tokio::test]
async fn the_database_of_a_failed_test_is_kept_on_request() {
    let outcome = try_with_database(Keep::IfFailed, async |db| {
        sqlx::raw_sql("create table evidence as select 42 as answer")
            .execute(db.pool())
            .await
            .unwrap();
        panic!("on purpose");
    })
    .await;
    let Err((Failure::Panicked(_), Some(kept))) = outcome else {
        panic!("{outcome:?}");
    };
    let mut connection = PgConnection::connect_with(&server().await.options(&kept))
        .await
        .unwrap();
    let answer: i32 = sqlx::query_scalar("select answer from evidence")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(answer, 42);
    connection.close().await.unwrap();
    let mut admin = server().await.admin().await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(format!("drop database \"{kept}\"")))
        .execute(&mut admin)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_deadlock_fails_the_test_that_had_it() {
    let outcome = try_with_database(Keep::No, async |db| {
        sqlx::raw_sql("create table t (id int primary key); insert into t values (1), (2)")
            .execute(db.pool())
            .await
            .unwrap();
        let lock = "select from t where id = $1 for update";
        let mut one = db.pool().begin().await.unwrap();
        let mut two = db.pool().begin().await.unwrap();
        sqlx::query(lock).bind(1).execute(&mut *one).await.unwrap();
        sqlx::query(lock).bind(2).execute(&mut *two).await.unwrap();
        let (first, second) = tokio::join!(
            async move { sqlx::query(lock).bind(2).execute(&mut *one).await.is_err() },
            async move { sqlx::query(lock).bind(1).execute(&mut *two).await.is_err() },
        );
        assert!(
            first != second,
            "the server breaks a deadlock by failing one side"
        );
    })
    .await;
    let Err((Failure::Left(what), None)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(what.contains("1 deadlock"), "{what}");
}

#[tokio::test]
async fn a_row_that_must_not_be_fails_the_test_that_left_it() {
    let outcome = try_with_database(Keep::No, async |db| {
        sqlx::query(
            "insert into pipeline.batch_sets (id, created_at, total) values (7, pipeline.now(), 1)",
        )
        .execute(db.pool())
        .await
        .unwrap();
    })
    .await;
    let Err((Failure::Left(what), None)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(
        what.contains("batch 7 counts 1 live jobs and has 0"),
        "{what}"
    );
}

#[tokio::test]
async fn databases_of_a_killed_process_are_swept_up_and_those_of_a_living_one_are_not() {
    let prefix = "pipeline_test_sweep";
    let living = Staying::spawn(&["scratch", prefix, template().await]);
    let killed = Staying::spawn(&["scratch", prefix, template().await]);
    let (living_name, killed_name) = (living.said.clone(), killed.said.clone());
    assert!(exists(&living_name).await && exists(&killed_name).await);
    killed.kill();

    // The server lets go of a dead client's lock when it sees the connection close: claim until then.
    let server = Arc::new(
        tokio::task::spawn_blocking(Server::find)
            .await
            .unwrap()
            .unwrap(),
    );
    until(async || {
        Claim::new(Arc::clone(&server), prefix).await.unwrap();
        !exists(&killed_name).await
    })
    .await;
    assert!(exists(&living_name).await);

    living.kill();
    until(async || {
        Claim::new(Arc::clone(&server), prefix).await.unwrap();
        !exists(&living_name).await
    })
    .await;
}
