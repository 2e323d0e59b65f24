//! Migrating: by many processes at once, repeatedly, and refused where it must not run.

use jobs::Worker;
use pipeline::{Pipeline, RunFilter};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use tests::{Database, with_database};
use tokio_util::sync::CancellationToken;

use crate::jobs::support::{Do, Log, What, client, ended, eventually, until};
use crate::logged::Captured;
use crate::processes::helper;
use crate::runs::support::{Act, act};

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

/// Scenarios: T091
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
///
/// Scenarios: T091
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
        until(async || {
            assert!(!migrating.is_finished(), "it did not wait for the lock");
            sqlx::query_scalar(waiting).fetch_one(db.pool()).await.unwrap()
        })
        .await;
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
        sqlx::query("update pipeline.migrations set checksum = 'other' where version = 101")
            .execute(db.pool())
            .await
            .unwrap();
        let error = jobs::migrate(db.pool()).await.unwrap_err();
        assert!(matches!(
            error,
            jobs::Error::MigrationChanged { version: 101, .. }
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

const REMEDY: &str =
    "call `client.migrate()`, or `jobs::migrate(&pool)`, at the start of the program";

#[tokio::test]
async fn who_forgot_to_migrate_is_told_so_whatever_they_asked() {
    with_database(async |db| {
        empty(db).await;
        let jobs = client(db);
        let job = || Do::new("a", What::Succeed);
        let errors = [
            jobs.enqueue(job()).await.unwrap_err(),
            jobs.batch().jobs([job()]).await.unwrap_err(),
            jobs.job(1.into()).info().await.unwrap_err(),
            jobs.job(1.into()).retry().await.unwrap_err(),
            jobs.pause("default").await.unwrap_err(),
            jobs.workers().await.unwrap_err(),
        ];
        for error in errors {
            let said = error.to_string();
            assert!(
                matches!(error, jobs::Error::NotMigrated { .. }),
                "{error:?}"
            );
            assert!(
                said.starts_with("the schema `pipeline` is missing or out of date: ")
                    && said.contains("does not exist")
                    && said.ends_with(REMEDY),
                "{said}"
            );
        }
        let runs = pipeline::Client::new(db.pool().clone());
        let pipeline = Pipeline::configure("p", |p| p.step("a", act("a")));
        let run = runs.run(1.into());
        let errors = [
            runs.start(pipeline.unwrap()).await.unwrap_err(),
            runs.runs(&RunFilter::new()).await.unwrap_err(),
            runs.reconciler_stats().await.unwrap_err(),
            runs.enqueue(job()).await.unwrap_err().into(),
            run.state().await.unwrap_err(),
            run.cancel().await.unwrap_err(),
            run.wait().await.unwrap_err(),
        ];
        for error in errors {
            let said = error.to_string();
            assert!(
                matches!(error, pipeline::Error::NotMigrated { .. }),
                "{error:?}"
            );
            assert!(said.ends_with(REMEDY), "{said}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_else_is_missing_is_none_of_our_migrations() {
    with_database(async |db| {
        for statement in ["select from orders", "select shop.pipeline()"] {
            let refused = sqlx::query(statement).execute(db.pool()).await;
            let error = jobs::Error::from(refused.unwrap_err());
            assert!(matches!(error, jobs::Error::Database(_)), "{error}");
        }
    })
    .await;
}

fn worker(pool: &PgPool) -> Worker {
    Worker::new(pool.clone())
        .register::<Do>()
        .data(Log::default())
        .keep_succeeded(true)
        .queue("default", 1)
}

#[tokio::test]
async fn a_worker_does_not_run_where_a_migration_is_missing() {
    with_database(async |db| {
        let (last, _, _) = jobs::migrations().last().unwrap();
        sqlx::query("delete from pipeline.migrations where version = $1")
            .bind(last)
            .execute(db.pool())
            .await
            .unwrap();
        let older = worker(db.pool()).run().await.unwrap_err();
        let said = format!("database `{}`", db.name());
        let text = older.to_string();
        assert!(matches!(older, jobs::Error::NotMigrated { .. }), "{text}");
        assert!(
            text.contains(&format!(": migration {last} ("))
                && text.contains(&format!("has not been applied to {said}; {REMEDY}")),
            "{text}"
        );

        empty(db).await;
        let none = worker(db.pool()).run().await.unwrap_err().to_string();
        let wanted = format!(": {said} has no table `pipeline.migrations`; {REMEDY}");
        assert!(none.ends_with(&wanted), "{none}");
        let pipelines = pipeline::Worker::new(db.pool().clone())
            .register::<Act>()
            .queue("default", 1);
        let none = pipelines.run().await.unwrap_err();
        assert!(
            matches!(none, pipeline::Error::NotMigrated { .. }),
            "{none}"
        );
    })
    .await;
}

/// On one thread: the test's own.
#[tokio::test]
async fn a_worker_that_others_run_says_once_that_nobody_has_migrated_and_goes_on_when_somebody_has()
{
    Captured::begin();
    with_database(async |db| {
        empty(db).await;
        let (builder, performer) = worker(db.pool()).into_parts().unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let worker = tokio::spawn(builder.build(performer).run_until(async move {
            stopped.await;
            Ok::<(), std::io::Error>(())
        }));
        eventually("it says so", async || {
            Captured::so_far().contains(REMEDY).then_some(())
        })
        .await;
        // The worker has tried again since, without another such line.
        let tries = || Captured::so_far().matches("'server_version_num'").count();
        let first = tries();
        until(async || tries() > first).await;
        jobs::migrate(db.pool()).await.unwrap();
        let job = client(db).enqueue(Do::new("a", What::Succeed)).await;
        ended(db, job.unwrap().id).await;
        stop.cancel();
        worker.await.unwrap().unwrap();
        let log = Captured::text();
        assert_eq!(log.matches(REMEDY).count(), 1, "{log}");
    })
    .await;
}

#[tokio::test]
async fn a_worker_runs_where_a_newer_version_has_migrated_and_where_it_may_not_look() {
    with_database(async |db| {
        run(
            db,
            "insert into pipeline.migrations values (9999, 'from the future', '')".to_owned(),
        )
        .await;
        let role = format!("{}_look", &db.name()[..50.min(db.name().len())]);
        for statement in [
            format!("create role \"{role}\" login password 'secret'"),
            format!("grant usage on schema pipeline, pipeline_test to \"{role}\""),
            format!("grant all on all tables in schema pipeline, pipeline_test to \"{role}\""),
            format!("grant all on all sequences in schema pipeline to \"{role}\""),
            format!("revoke all on pipeline.migrations from \"{role}\""),
        ] {
            run(db, statement).await;
        }
        let plain = as_plain_role(db, &role).await;
        for pool in [db.pool(), &plain] {
            let stop = CancellationToken::new();
            let running = worker(pool).run_until(stop.clone().cancelled_owned());
            let running = tokio::spawn(running);
            let job = client(db).enqueue(Do::new("a", What::Succeed)).await;
            ended(db, job.unwrap().id).await;
            stop.cancel();
            running.await.unwrap().unwrap();
        }
        plain.close().await;
        run(db, format!("drop owned by \"{role}\" cascade")).await;
        run(db, format!("drop role \"{role}\"")).await;
    })
    .await;
}
