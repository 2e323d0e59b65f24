//! A start on a connection of the caller is all or nothing, whether the caller has begun a transaction or
//! not, and however.

use pipeline::{Error, NewRun};
use sqlx::{Connection as _, PgConnection};
use tests::{Database, with_database};

use super::start::{client, count, says};

/// A connection that is in no pool.
async fn bare(db: &Database) -> PgConnection {
    let options = db.pool().connect_options();
    PgConnection::connect_with(&options).await.unwrap()
}

async fn execute(connection: &mut PgConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(connection).await.unwrap();
}

/// The last statement of a chain is refused.
async fn refuse_chains(db: &Database) {
    sqlx::raw_sql(
        "create function refuse() returns trigger language plpgsql as $$
         begin raise 'refused'; end $$;
         create trigger refuse before insert on pipeline.chains execute function refuse()",
    )
    .execute(db.pool())
    .await
    .unwrap();
}

#[tokio::test]
async fn a_chain_on_a_connection_without_a_transaction_is_started_as_a_whole() {
    with_database(async |db| {
        let client = client(db);
        let mut connection = bare(db).await;
        let chain = client
            .start_in(&mut connection, says("a", "x"))
            .then(says("b", "x"));
        let run = chain.await.unwrap();
        assert_eq!(
            (run.chained().await.unwrap().len(), count(&client).await),
            (1, 2)
        );
        refuse_chains(db).await;
        let chain = client
            .start_in(&mut connection, says("a", "x"))
            .then(says("b", "x"));
        let error = chain.await.unwrap_err();
        assert!(error.to_string().contains("refused"), "{error}");
        assert_eq!(count(&client).await, 2, "nothing of it stays");
        assert!(!connection.is_in_transaction());
        connection.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_transaction_that_was_begun_by_hand_stays_the_callers() {
    with_database(async |db| {
        let client = client(db);
        let mut connection = bare(db).await;
        execute(&mut connection, "create table orders (id int)").await;
        execute(&mut connection, "begin; insert into orders values (1)").await;
        let chain = client
            .start_in(&mut connection, says("a", "x"))
            .then(says("b", "x"));
        chain.key("k").await.unwrap();
        assert_eq!(count(&client).await, 0, "the caller has not committed");
        // A conflict is undone, and the transaction goes on.
        let other = client
            .start_in(&mut connection, says("a", "y"))
            .key("k")
            .await;
        assert!(matches!(other.unwrap_err(), Error::KeyConflict { .. }));
        execute(&mut connection, "rollback").await;
        assert_eq!(count(&client).await, 0);

        execute(&mut connection, "begin; insert into orders values (2)").await;
        let runs = [
            NewRun::new(says("a", "x")),
            NewRun::new(says("b", "x")).key("k"),
        ];
        client.start_in(&mut connection, runs).await.unwrap();
        let runs = [
            NewRun::new(says("c", "x")),
            NewRun::new(says("b", "y")).key("k"),
        ];
        let conflict = client.start_in(&mut connection, runs).await;
        assert!(matches!(conflict.unwrap_err(), Error::KeyConflict { .. }));
        execute(&mut connection, "commit").await;
        assert_eq!(count(&client).await, 2);
        let orders: Vec<i32> = sqlx::query_scalar("select id from orders")
            .fetch_all(&mut connection)
            .await
            .unwrap();
        assert_eq!(orders, [2]);
        connection.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_start_that_is_refused_leaves_the_callers_transaction_as_it_was() {
    with_database(async |db| {
        let client = client(db);
        refuse_chains(db).await;
        let mut tx = db.pool().begin().await.unwrap();
        client.start_in(&mut tx, says("kept", "x")).await.unwrap();
        let chain = client
            .start_in(&mut tx, says("a", "x"))
            .then(says("b", "x"));
        chain.await.unwrap_err();
        tx.commit().await.unwrap();
        assert_eq!(count(&client).await, 1);
    })
    .await;
}
