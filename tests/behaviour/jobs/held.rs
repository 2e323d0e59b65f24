//! A row that another session holds never stops a worker: the end of that row is deferred, and other work goes on.

use std::sync::Arc;
use std::time::Duration;

use jobs::testing::Moment;
use jobs::{JobStatus, NewJob};
use sqlx::{PgConnection, Postgres, Transaction};
use tests::{Database, with_database};

use super::support::{Do, Running, Watch, What, ask, client, ended, eventually, job, sql, when};

/// Locks one row in a transaction that stays open until it is dropped.
async fn hold(
    db: &Database,
    statement: &'static str,
    id: jobs::JobId,
) -> Transaction<'static, Postgres> {
    let mut tx = db.pool().begin().await.unwrap();
    let locked = sqlx::query(statement).bind(id).fetch_all(&mut *tx).await;
    assert_eq!(locked.unwrap().len(), 1, "the row is there");
    tx
}

const BATCH: &str = "select id from pipeline.batch_sets where id = $1 for update";
const JOB: &str = "select id from pipeline.jobs where id = $1 for update";

async fn deferred(watch: &Watch) {
    eventually("an end is deferred", async || {
        (!watch.counts(Moment::Deferred).is_empty()).then_some(())
    })
    .await;
}

/// Jobs that have nothing to do with the held row are claimed, performed and ended.
async fn others_go_on(db: &Database, count: usize) {
    let jobs = (0..count).map(|n| Do::new(&format!("other{n}"), What::Succeed));
    for enqueued in client(db).enqueue_many(jobs).await.unwrap() {
        assert_eq!(ended(db, enqueued.id).await.status, JobStatus::Succeeded);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_queue_row_defers_one_end_and_others_go_on() {
    with_database(async |db| {
        let watch = Arc::new(Watch::default());
        let worker = Running::start(db, |worker| worker.queue("default", 4).probe(watch.clone()));
        let id = client(db)
            .enqueue(Do::new("a", What::AtGate))
            .await
            .unwrap()
            .id;
        worker.log.says("a 1").await;
        let held = hold(db, JOB, id).await;
        worker.gate.let_through(1);
        deferred(&watch).await;
        others_go_on(db, 20).await;
        assert_eq!(job(db, id).await.status, JobStatus::Running);
        held.rollback().await.unwrap();
        let job = ended(db, id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
        worker.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_batch_defers_the_ends_of_its_jobs_and_others_go_on() {
    with_database(async |db| {
        let watch = Arc::new(Watch::default());
        let worker = Running::start(db, |worker| worker.queue("default", 4).probe(watch.clone()));
        let batch = client(db).batch().open().await.unwrap();
        let jobs = [Do::new("a", What::AtGate), Do::new("b", What::AtGate)];
        let ids = batch.add(jobs).await.unwrap();
        worker.log.says("a 1").await;
        worker.log.says("b 1").await;
        let held = hold(db, BATCH, batch.id().get().into()).await;
        worker.gate.let_through(2);
        deferred(&watch).await;
        others_go_on(db, 20).await;
        held.rollback().await.unwrap();
        for enqueued in ids {
            assert_eq!(ended(db, enqueued.id).await.attempt, 1);
        }
        assert_eq!(batch.state().await.unwrap().ended, 2);
        worker.stop().await;
    })
    .await;
}

/// Finished work whose row is held keeps its lease, so nobody takes it over and nothing runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn finished_work_keeps_its_lease_until_its_end_is_committed() {
    with_database(async |db| {
        let watch = Arc::new(Watch::default());
        let first = Running::start(db, |worker| worker.queue("default", 1).probe(watch.clone()));
        let batch = client(db).batch().open().await.unwrap();
        let new = NewJob::new(&Do::new("a", What::AtGate)).max_attempts(1);
        let new = new.lease(Duration::from_secs(1));
        let id = batch.add([new]).await.unwrap()[0].id;
        first.log.says("a 1").await;
        let held = hold(db, BATCH, batch.id().get().into()).await;
        first.gate.let_through(1);
        deferred(&watch).await;
        let second = Running::start(db, |worker| worker.queue("default", 1));
        // Renewed more often than it could have been before the end was deferred.
        let lease = async || -> chrono::DateTime<chrono::Utc> {
            sqlx::query_scalar("select lease_until from pipeline.jobs where id = $1")
                .bind(id)
                .fetch_one(db.pool())
                .await
                .unwrap()
        };
        let mut last = lease().await;
        for _ in 0..5 {
            last = eventually("the lease is renewed", async || {
                let now = lease().await;
                (now > last).then_some(now)
            })
            .await;
        }
        held.rollback().await.unwrap();
        let job = ended(db, id).await;
        assert_eq!(
            (job.status, job.attempt, job.error_class),
            (JobStatus::Succeeded, 1, None)
        );
        assert!(second.log.lines().is_empty(), "nobody else has run it");
        second.stop().await;
        first.stop().await;
    })
    .await;
}

/// The lease of a job whose batch is held runs out, and every worker sees it: none of them stands still.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_whose_row_is_held_stops_no_worker() {
    with_database(async |db| {
        let batch = client(db).batch().open().await.unwrap();
        let id = batch.add([Do::new("a", What::Succeed)]).await.unwrap()[0].id;
        // A worker that died: the row says it runs, and its lease is over.
        sqlx::query(
            "update pipeline.jobs set status = 'running', token = 7, worker = 99, attempt = 1,
                    claimed_at = pipeline.now() - interval '2 hours',
                    lease_until = pipeline.now() - interval '1 hour' where id = $1",
        )
        .bind(id)
        .execute(db.pool())
        .await
        .unwrap();
        let held = hold(db, BATCH, batch.id().get().into()).await;
        let watches: Vec<_> = (0..3).map(|_| Arc::new(Watch::default())).collect();
        let workers: Vec<Running> = watches
            .iter()
            .map(|watch| {
                Running::start(db, |worker| worker.queue("default", 2).probe(watch.clone()))
            })
            .collect();
        for watch in &watches {
            deferred(watch).await;
        }
        others_go_on(db, 20).await;
        held.rollback().await.unwrap();
        let job = ended(db, id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 2));
        for worker in workers {
            worker.stop().await;
        }
    })
    .await;
}

/// A stop does not wait for the row: what cannot be written in time is left to the lease.
/// A lease cannot be renewed while somebody holds the row. When the row is let go, its worker, which is alive, comes
/// before those that would take the job over, however often they look.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_held_for_longer_than_its_lease_stays_with_its_worker() {
    with_database(async |db| {
        let first = Running::start(db, |worker| worker.queue("default", 8));
        let new = |n: usize| {
            NewJob::new(&Do::new(&format!("a{n}"), What::AtGate)).lease(Duration::from_secs(1))
        };
        let jobs = client(db).enqueue_many((0..8).map(new)).await.unwrap();
        for n in 0..8 {
            first.log.says(&format!("a{n} 1")).await;
        }
        let mut held = db.pool().begin().await.unwrap();
        sqlx::query("select from pipeline.jobs for update")
            .execute(&mut *held)
            .await
            .unwrap();
        first.gate.let_through(8);
        let second = Running::start(db, |worker| {
            worker.queue("other", 1).poll(Duration::from_millis(10))
        });
        eventually("all leases expire", async || {
            let expired =
                "select count(*) = 8 from pipeline.jobs where lease_until < pipeline.now()";
            ask::<bool>(db, expired).await.then_some(())
        })
        .await;
        held.rollback().await.unwrap();
        for enqueued in jobs {
            let job = ended(db, enqueued.id).await;
            assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
        }
        let lost: i64 = ask(db, "select count(*) from pipeline.attempts").await;
        assert_eq!(lost, 0);
        first.stop().await;
        second.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_though_a_row_is_held() {
    with_database(async |db| {
        let watch = Arc::new(Watch::default());
        let worker = Running::start(db, |worker| worker.queue("default", 2).probe(watch.clone()));
        let new = NewJob::new(&Do::new("a", What::AtGate)).lease(Duration::from_secs(1));
        let id = client(db).enqueue(new).await.unwrap().id;
        worker.log.says("a 1").await;
        let held = hold(db, JOB, id).await;
        worker.gate.let_through(1);
        deferred(&watch).await;
        worker.stop().await;
        assert_eq!(job(db, id).await.status, JobStatus::Running);
        held.rollback().await.unwrap();
        let other = Running::start(db, |worker| worker.queue("default", 1));
        other.gate.let_through(1);
        assert_eq!(ended(db, id).await.attempt, 2);
        other.stop().await;
    })
    .await;
}

/// A group that the database refuses is taken apart beside the committer, which goes on meanwhile: here until
/// the test lets the isolated end go.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_group_is_taken_apart_and_the_committer_goes_on() {
    with_database(async |db| {
        sql(
            db,
            "create function refuse() returns trigger language plpgsql
             as $$ begin
                if current_setting('application_name') like 'pipeline isolation %' then
                    perform pg_advisory_xact_lock_shared(77);
                end if;
                if new.error_class is distinct from 'EndRefused' then
                    raise exception 'not this one';
                end if;
                return new;
             end $$;
             create trigger refuse before update on pipeline.jobs for each row
             when (new.status in ('succeeded', 'failed') and new.args ->> 'name' = 'bad')
             execute function refuse();",
        )
        .await;
        let mut held = db.pool().begin().await.unwrap();
        sqlx::query("select pg_advisory_xact_lock(77)")
            .execute(&mut *held)
            .await
            .unwrap();
        let worker = Running::start(db, |worker| worker.queue("default", 4));
        let bad = client(db)
            .enqueue(Do::new("bad", What::Succeed))
            .await
            .unwrap()
            .id;
        eventually("the isolated end is being written", async || {
            let waiting = "select exists (select from pg_locks where locktype = 'advisory'
                           and database = (select oid from pg_database where datname = current_database())
                           and not granted)";
            ask::<bool>(db, waiting).await.then_some(())
        })
        .await;
        others_go_on(db, 10).await;
        assert_eq!(job(db, bad).await.status, JobStatus::Running);
        held.rollback().await.unwrap();
        let job = ended(db, bad).await;
        assert_eq!(job.error_class.as_deref(), Some("EndRefused"));
        worker.stop().await;
    })
    .await;
}

/// A statement of the isolated end that hangs keeps nobody else from being committed.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_hangs_in_the_database_stops_nobody_else_for_long() {
    with_database(async |db| {
        // Its statement is cancelled at once, as by a time limit: that is no fault of the data.
        sql(
            db,
            "create function slow() returns trigger language plpgsql
             as $$ begin
                raise exception 'canceling statement due to statement timeout' using errcode = '57014';
             end $$;
             create trigger slow before update on pipeline.jobs for each row
             when (new.status = 'succeeded' and new.args ->> 'name' = 'slow')
             execute function slow();",
        )
        .await;
        let worker = Running::start(db, |worker| worker.queue("default", 4));
        let slow = client(db).enqueue(Do::new("slow", What::Succeed)).await.unwrap().id;
        worker.log.says("slow 1").await;
        others_go_on(db, 20).await;
        assert_eq!(job(db, slow).await.status, JobStatus::Running, "it is tried again and again");
        sql(db, "drop trigger slow on pipeline.jobs").await;
        assert_eq!(ended(db, slow).await.status, JobStatus::Succeeded);
        worker.stop().await;
    })
    .await;
}

/// Statements of the committer do not wait: seen from the server, none of the engine's sessions waits for a
/// lock while a row is held.
#[tokio::test(flavor = "multi_thread")]
async fn no_statement_of_the_engine_waits_for_a_lock() {
    with_database(async |db| {
        let watch = Arc::new(Watch::default());
        let worker = Running::start(db, |worker| worker.queue("default", 2).probe(watch.clone()));
        let id = client(db)
            .enqueue(Do::new("a", What::AtGate))
            .await
            .unwrap()
            .id;
        worker.log.says("a 1").await;
        let mut held = hold(db, JOB, id).await;
        worker.gate.let_through(1);
        let tries = async || watch.counts(Moment::Deferred).len();
        let before = tries().await;
        eventually("the end is tried again and again", async || {
            assert_eq!(waiting(&mut db.pool().acquire().await.unwrap()).await, 0);
            (tries().await >= before + 5).then_some(())
        })
        .await;
        sqlx::query("select 1").execute(&mut *held).await.unwrap();
        held.rollback().await.unwrap();
        when(db, id, |job| job.ended_at.is_some()).await;
        worker.stop().await;
    })
    .await;
}

async fn waiting(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar(
        "select count(*) from pg_stat_activity
         where application_name like 'pipeline %' and datname = current_database()
           and wait_event_type = 'Lock'",
    )
    .fetch_one(connection)
    .await
    .unwrap()
}

/// An end that the database answers with an error of no class that we know keeps nobody from being claimed,
/// also where it is the only one.
#[tokio::test(flavor = "multi_thread")]
async fn a_lone_end_that_always_fails_stops_no_claim() {
    with_database(async |db| {
        sql(
            db,
            "create function corrupt() returns trigger language plpgsql
             as $$ begin raise exception 'no such page' using errcode = 'XX001'; end $$;
             create trigger corrupt before update on pipeline.jobs for each row
             when (new.status = 'succeeded' and new.args ->> 'name' = 'bad')
             execute function corrupt();",
        )
        .await;
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let bad = client(db)
            .enqueue(Do::new("bad", What::Succeed))
            .await
            .unwrap()
            .id;
        worker.log.says("bad 1").await;
        others_go_on(db, 3).await;
        sql(db, "drop trigger corrupt on pipeline.jobs").await;
        assert_eq!(ended(db, bad).await.attempt, 1);
        worker.stop().await;
    })
    .await;
}

/// A worker that is alone takes its own lapsed attempt over when the lease has run out, not only when it has
/// forgotten the attempt, 20 leases later: the test waits for less than that.
#[tokio::test(flavor = "multi_thread")]
async fn a_lone_worker_takes_its_own_lapsed_attempt_over() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let new = NewJob::new(&Do::new("a", What::AtGate)).lease(Duration::from_secs(8));
        let id = client(db).enqueue(new).await.unwrap().id;
        worker.log.says("a 1").await;
        let held = hold(db, JOB, id).await;
        // Nobody can renew the lease of a row that is locked: the job is stopped in time.
        worker.log.says("a dropped").await;
        held.rollback().await.unwrap();
        worker.log.says("a 2").await;
        worker.gate.let_through(1);
        assert_eq!(ended(db, id).await.attempt, 2);
        worker.stop().await;
    })
    .await;
}

/// A row that somebody spoiled by hand ends no worker.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_never_ends_ends_no_worker() {
    with_database(async |db| {
        let id = client(db)
            .enqueue(Do::new("a", What::Succeed))
            .await
            .unwrap()
            .id;
        sqlx::query(
            "update pipeline.jobs set status = 'running', token = 7, worker = 99, attempt = 1,
                    claimed_at = pipeline.now(), lease_until = 'infinity' where id = $1",
        )
        .bind(id)
        .execute(db.pool())
        .await
        .unwrap();
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        others_go_on(db, 3).await;
        worker.stop().await;
    })
    .await;
}
