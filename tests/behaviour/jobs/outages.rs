//! A database that refuses connections, or answers late: workers retry, log it, and go on.
//!
//! These tests run on one thread each, on which the log is captured.

use std::sync::Arc;
use std::time::Duration;

use jobs::testing::Moment;
use jobs::{JobStatus, NewJob};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};
use tests::{Database, with_database};

use super::proxy::Proxy;
use super::support::{Do, Running, Watch, What, ask, client, ended, eventually};
use crate::logged::Captured;

/// A connection to another database of the same server: it stays while the test's database refuses others.
async fn outside(db: &Database) -> PgConnection {
    let options = PgConnectOptions::clone(&db.pool().connect_options());
    PgConnection::connect_with(&options.database("postgres"))
        .await
        .unwrap()
}

async fn execute(connection: &mut PgConnection, statement: String) {
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(connection)
        .await
        .unwrap();
}

/// Ends every session of a worker.
async fn disconnect_workers(db: &Database, connection: &mut PgConnection) {
    let statement = "select pg_terminate_backend(pid) from pg_stat_activity
                     where application_name like 'pipeline %' and datname = $1";
    sqlx::query(statement)
        .bind(db.name())
        .execute(connection)
        .await
        .unwrap();
}

/// A role with the rights of the test's own, to which limits apply: they do not apply to a superuser.
struct Role {
    name: String,
    admin: PgConnection,
}

impl Role {
    async fn create(db: &Database) -> Self {
        let mut admin = outside(db).await;
        let name = format!("limited_{}", db.name());
        let owner: String = ask(db, "select quote_ident(session_user)").await;
        execute(
            &mut admin,
            format!("create role {name} login in role {owner}"),
        )
        .await;
        Self { name, admin }
    }

    async fn limit_connections(&mut self, count: i32) {
        let name = &self.name;
        let statement = format!("alter role {name} connection limit {count}");
        execute(&mut self.admin, statement).await;
    }

    /// A pool that connects as this role.
    fn pool(&self, db: &Database) -> PgPool {
        let options = PgConnectOptions::clone(&db.pool().connect_options());
        PgPoolOptions::new().connect_lazy_with(options.username(&self.name))
    }

    async fn drop(mut self) {
        execute(&mut self.admin, format!("drop role {}", self.name)).await;
        self.admin.close().await.unwrap();
    }
}

/// The captured lines with all of these texts.
fn lines_with(texts: &[&str]) -> Vec<String> {
    let log = Captured::so_far();
    let has_all = |line: &&str| texts.iter().all(|text| line.contains(text));
    log.lines().filter(has_all).map(str::to_owned).collect()
}

async fn logged(texts: &[&str], count: usize) {
    eventually(&format!("{texts:?} is logged"), async || {
        (lines_with(texts).len() >= count).then_some(())
    })
    .await;
}

/// Postgres refuses connections with SQLSTATE 53300: when the worker starts, and when it reconnects.
#[tokio::test]
async fn a_worker_goes_on_when_it_is_given_the_connections_that_it_was_refused() {
    Captured::begin();
    with_database(async |db| {
        let mut role = Role::create(db).await;
        role.limit_connections(0).await;
        let id = client(db)
            .enqueue(Do::new("a", What::AtGate))
            .await
            .unwrap()
            .id;
        let pool = role.pool(db);
        let worker = Running::start_with(db, pool.clone(), |worker| worker.queue("default", 1));
        let refused = |connection| {
            [
                connection,
                "database unreachable",
                "too many connections for role",
            ]
        };
        logged(&refused("connection=\"tick\""), 1).await;
        role.limit_connections(-1).await;
        worker.log.says("a 1").await;
        logged(&["connection=\"tick\"", "database connection restored"], 1).await;

        role.limit_connections(0).await;
        disconnect_workers(db, &mut role.admin).await;
        worker.gate.let_through(1);
        let still = [
            "connection=\"commit\"",
            "database still unreachable",
            "too many connections for role",
        ];
        logged(&still, 2).await;
        role.limit_connections(-1).await;
        let job = ended(db, id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
        logged(
            &["connection=\"commit\"", "database connection restored"],
            1,
        )
        .await;
        let other = client(db).enqueue(Do::new("b", What::Succeed)).await;
        assert_eq!(ended(db, other.unwrap().id).await.attempt, 1);
        worker.stop().await;
        pool.close().await;
        role.drop().await;
    })
    .await;
    Captured::text();
}

/// Every connection of a worker that needs the database logs once that it is gone, and once that it is back.
#[tokio::test]
async fn an_outage_is_one_line_at_its_beginning_and_one_at_its_end() {
    Captured::begin();
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let id = client(db)
            .enqueue(Do::new("a", What::AtGate))
            .await
            .unwrap()
            .id;
        worker.log.says("a 1").await;
        let mut outside = outside(db).await;
        let name = db.name();
        execute(
            &mut outside,
            format!("alter database {name} allow_connections false"),
        )
        .await;
        disconnect_workers(db, &mut outside).await;
        worker.gate.let_through(1);
        let connections = ["tick", "commit", "leases", "notifications"];
        let connections = connections.map(|name| format!("connection=\"{name}\""));
        for connection in &connections {
            logged(&[connection, "database still unreachable"], 2).await;
        }
        execute(
            &mut outside,
            format!("alter database {name} allow_connections true"),
        )
        .await;
        let job = ended(db, id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
        for connection in &connections {
            logged(&[connection, "database connection restored"], 1).await;
        }
        worker.stop().await;
        outside.close().await.unwrap();
        for connection in &connections {
            let gone = lines_with(&[
                connection,
                "WARN",
                "database unreachable; retrying until it is back",
            ]);
            let back = lines_with(&[connection, "INFO", "database connection restored"]);
            assert_eq!((gone.len(), back.len()), (1, 1), "{gone:#?} {back:#?}");
        }
        let others = lines_with(&["database call failed"]);
        assert!(others.is_empty(), "an outage is named as such: {others:#?}");
    })
    .await;
    Captured::text();
}

/// The answer to a claim is lost, and the worker learns of the claim only when half of the lease is over: it
/// gives the job back, because it might have to stop the job before it could renew the lease.
#[tokio::test]
async fn a_claim_that_is_confirmed_late_is_given_back_and_not_performed() {
    with_database(async |db| {
        let proxy = Proxy::start(db);
        let watch = Arc::new(Watch::default());
        let worker = Running::start_with(db, proxy.pool(), |worker| {
            worker.queue("default", 1).probe(watch.clone())
        });
        let first = Do::new("first", What::AtGate);
        client(db).enqueue(first).await.unwrap();
        worker.log.says("first 1").await;
        let new = NewJob::new(&Do::new("late", What::AtGate)).lease(Duration::from_secs(6));
        let id = client(db).enqueue(new).await.unwrap().id;
        // The transaction that ends the first job claims the second one.
        watch.hold(Moment::BeforeCommit);
        worker.gate.let_through(1);
        watch.held().await;
        proxy.hold_new_connections();
        proxy.lose_the_next_answer_to_a_commit();
        watch.let_go();
        let late: i64 = eventually("half of the lease is over", async || {
            let token = "select token from pipeline.jobs
                         where id = $1 and status = 'running'
                           and lease_until < pipeline.now() + interval '3 s'";
            let token = sqlx::query_scalar(token).bind(id);
            token.fetch_optional(db.pool()).await.unwrap()
        })
        .await;
        assert!(proxy.has_lost_it());
        assert_eq!(worker.log.lines(), ["first 1", "first through"]);
        proxy.let_connections_through();
        eventually("the job is performed", async || {
            let lines = worker.log.lines();
            lines
                .iter()
                .any(|line| line.starts_with("late"))
                .then_some(())
        })
        .await;
        let token: i64 = sqlx::query_scalar("select token from pipeline.jobs where id = $1")
            .bind(id)
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_ne!(
            token, late,
            "performed under the claim that was confirmed late"
        );
        worker.gate.let_through(1);
        assert_eq!(ended(db, id).await.status, JobStatus::Succeeded);
        worker.stop().await;
    })
    .await;
}

/// A pool alone would try again for 30 seconds, and then report a timeout.
#[tokio::test]
async fn a_client_that_cannot_connect_reports_the_reason() {
    let url = "postgres://nobody@127.0.0.1:1/nothing";
    let error = jobs::Client::connect(url).await.unwrap_err();
    let reason = sqlx::Error::Io(std::io::ErrorKind::ConnectionRefused.into());
    assert!(
        matches!(&error, jobs::Error::Database(sqlx::Error::Io(_))),
        "{error} instead of {reason}"
    );
    let error = pipeline::Client::connect(url).await.unwrap_err();
    assert!(
        matches!(&error, pipeline::Error::Database(sqlx::Error::Io(_))),
        "{error} instead of {reason}"
    );
}
