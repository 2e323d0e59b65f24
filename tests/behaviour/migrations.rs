//! Migrating: from anywhere, any number of times, and never where it must not.

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use tests::{Database, with_database};

use crate::processes::helper;

/// Takes the schema away, so that there is everything to migrate.
async fn empty(db: &Database) {
    sqlx::raw_sql("drop schema pipeline cascade")
        .execute(db.pool())
        .await
        .unwrap();
}

async fn applied(db: &Database) -> i64 {
    sqlx::query_scalar("select count(*) from pipeline.migrations")
        .fetch_one(db.pool())
        .await
        .unwrap()
}

async fn schema_exists(db: &Database) -> bool {
    sqlx::query_scalar("select to_regnamespace('pipeline') is not null")
        .fetch_one(db.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn twenty_processes_at_once_migrate_an_empty_database_once() {
    with_database(async |db| {
        empty(db).await;
        let processes: Vec<_> = (0..20)
            .map(|_| helper(&["migrate", db.url()]).spawn().unwrap())
            .collect();
        for process in processes {
            let output = process.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "migrated\n");
        }
        assert_eq!(
            usize::try_from(applied(db).await).unwrap(),
            jobs::migrations().count()
        );
    })
    .await;
}

/// Another session holds the very lock, and the migrations table against every write.
#[tokio::test]
async fn an_up_to_date_database_is_left_without_a_lock() {
    with_database(async |db| {
        let mut blocker = db.pool().begin().await.unwrap();
        sqlx::raw_sql(
            "select pg_advisory_xact_lock(x'706970656c696e65'::bigint);
             lock table pipeline.migrations in exclusive mode",
        )
        .execute(&mut *blocker)
        .await
        .unwrap();
        jobs::migrate(db.pool()).await.unwrap();

        // And the lock is the one that migrating takes: with something missing, it waits.
        blocker.rollback().await.unwrap();
        empty(db).await;
        let mut blocker = db.pool().begin().await.unwrap();
        sqlx::query("select pg_advisory_xact_lock(x'706970656c696e65'::bigint)")
            .execute(&mut *blocker)
            .await
            .unwrap();
        let pool = db.pool().clone();
        let migrating = tokio::spawn(async move { jobs::migrate(&pool).await });
        let waiting = "select exists (select from pg_locks where locktype = 'advisory' and not granted
                       and database = (select oid from pg_database where datname = current_database()))";
        while !sqlx::query_scalar::<_, bool>(waiting).fetch_one(db.pool()).await.unwrap() {
            assert!(!migrating.is_finished(), "it did not wait for the lock");
        }
        blocker.rollback().await.unwrap();
        migrating.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_database_from_a_newer_version_is_refused_and_left_as_it_was() {
    with_database(async |db| {
        sqlx::query("insert into pipeline.migrations values (9999, 'from the future', '')")
            .execute(db.pool())
            .await
            .unwrap();
        let before = applied(db).await;
        let error = jobs::migrate(db.pool()).await.unwrap_err();
        assert!(matches!(
            error,
            jobs::Error::DatabaseNewer { applied: 9999, .. }
        ));
        let message = error.to_string();
        assert!(
            message.contains(db.name()) && message.contains("9999"),
            "{message}"
        );
        assert!(message.contains("newer version"), "{message}");
        assert_eq!(applied(db).await, before);
    })
    .await;
}

#[tokio::test]
async fn a_migration_edited_after_it_was_applied_is_refused() {
    with_database(async |db| {
        sqlx::query("update pipeline.migrations set checksum = 'other' where version = 1")
            .execute(db.pool())
            .await
            .unwrap();
        let error = jobs::migrate(db.pool()).await.unwrap_err();
        assert!(matches!(
            error,
            jobs::Error::MigrationChanged { version: 1, .. }
        ));
        assert!(error.to_string().contains("must never change"), "{error}");
    })
    .await;
}

/// A pool as a role that may connect, and nothing else.
async fn as_plain_role(db: &Database, role: &str) -> PgPool {
    let options: PgConnectOptions = db.url().parse().unwrap();
    PgPoolOptions::new()
        .max_connections(2)
        .connect_with(options.username(role).password("secret"))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_role_that_may_not_create_is_told_what_to_grant() {
    with_database(async |db| {
        empty(db).await;
        // Roles belong to the whole server: the database's name makes this one the test's own.
        let role = format!("{}_role", &db.name()[..50.min(db.name().len())]);
        run(
            db,
            format!("create role \"{role}\" login password 'secret'"),
        )
        .await;
        let plain = as_plain_role(db, &role).await;

        let error = jobs::migrate(&plain).await.unwrap_err();
        let jobs::Error::MayNotMigrate { grant, .. } = &error else {
            panic!("{error}");
        };
        assert!(error.to_string().contains(&role) && error.to_string().contains(db.name()));
        assert!(!schema_exists(db).await, "refused before any write");

        // What it says helps, to the letter.
        run(db, grant.clone()).await;
        jobs::migrate(&plain).await.unwrap();
        plain.close().await;

        // A schema that is there needs no right to create one; the right to fill it is another.
        empty(db).await;
        run(
            db,
            format!(
                "revoke create on database \"{}\" from \"{role}\"",
                db.name()
            ),
        )
        .await;
        run(db, "create schema pipeline".to_owned()).await;
        let plain = as_plain_role(db, &role).await;
        let error = jobs::migrate(&plain).await.unwrap_err();
        let jobs::Error::MayNotMigrate { grant, .. } = &error else {
            panic!("{error}");
        };
        run(db, grant.clone()).await;
        jobs::migrate(&plain).await.unwrap();
        plain.close().await;
        run(db, format!("drop owned by \"{role}\" cascade")).await;
        run(db, format!("drop role \"{role}\"")).await;
    })
    .await;
}

async fn run(db: &Database, statement: String) {
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(db.pool())
        .await
        .unwrap();
}
