//! Rule 11: all times are the database's, and a test can move them.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgPool;
use tests::with_database;

async fn now(pool: &PgPool) -> DateTime<Utc> {
    sqlx::query_scalar("select pipeline.now()")
        .fetch_one(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_test_moves_the_clock_of_its_own_database_alone() {
    with_database(async |moved| {
        with_database(async |other| {
            moved.move_clock(Duration::from_secs(3600)).await;
            let ahead = now(moved.pool()).await - now(other.pool()).await;
            assert!(ahead > TimeDelta::minutes(59), "only {ahead} ahead");
            moved.move_clock(Duration::from_secs(3600)).await;
            let ahead = now(moved.pool()).await - now(other.pool()).await;
            assert!(ahead > TimeDelta::minutes(119), "only {ahead} ahead");
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn without_a_test_the_clock_is_the_time_of_the_statement() {
    with_database(async |db| {
        // The template's clock is the movable one; a database of its own has the migrations' alone.
        sqlx::raw_sql("drop schema pipeline cascade; drop schema pipeline_test cascade")
            .execute(db.pool())
            .await
            .unwrap();
        jobs::migrate(db.pool()).await.unwrap();
        let (same, volatility): (bool, String) = sqlx::query_as(
            "select pipeline.now() = statement_timestamp(),
                    (select provolatile::text from pg_proc
                     where oid = 'pipeline.now()'::regprocedure)",
        )
        .fetch_one(db.pool())
        .await
        .unwrap();
        assert!(same);
        assert_eq!(
            volatility, "s",
            "STABLE, so that an index can be used with it"
        );
    })
    .await;
}
