//! Ends are committed in groups, and a bad end of a group does not affect the others.
//!
//! These tests run on one thread: a job that passes the gate reports its end before another task runs, so that a
//! job that has logged that it is through has also reported.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::extension::{ClaimHook, Claimed};
use jobs::testing::Moment;
use jobs::{JobFilter, JobStatus, NewJob};
use sqlx::PgConnection;
use tests::{Database, with_database};

use super::proxy::Proxy;
use super::support::{
    Do, Running, Watch, What, all_ended, ask, client, ended, eventually, job, sql, when,
};

/// Jobs that wait at the gate, and a worker that has them all.
async fn at_the_gate(
    db: &Database,
    watch: &Arc<Watch>,
    count: usize,
) -> (Running, Vec<jobs::JobId>) {
    let slots = u32::try_from(count).unwrap();
    let worker = Running::start(db, |worker| {
        worker.queue("default", slots).probe(watch.clone())
    });
    let ids = enqueue(db, count).await;
    begun(&worker, count).await;
    (worker, ids)
}

async fn enqueue(db: &Database, count: usize) -> Vec<jobs::JobId> {
    let jobs = (0..count).map(|n| Do::new(&format!("j{n}"), What::AtGate));
    let enqueued = client(db).enqueue_many(jobs).await.unwrap();
    enqueued.iter().map(|job| job.id).collect()
}

async fn begun(worker: &Running, count: usize) {
    says(worker, count, " 1").await;
}

async fn says(worker: &Running, count: usize, end: &str) {
    eventually("so many lines", async || {
        let lines = worker.log.lines();
        (lines.iter().filter(|line| line.ends_with(end)).count() == count).then_some(())
    })
    .await;
}

/// Holds a commit of one end until all others of these have gathered behind it.
async fn gather(worker: &Running, watch: &Watch, count: usize) {
    watch.hold(Moment::BeforeCommit);
    worker.gate.let_through(1);
    watch.held().await;
    worker.gate.let_through(count - 1);
    says(worker, count, " through").await;
}

async fn all_succeeded_at_once(db: &Database, count: usize) {
    let jobs = client(db)
        .jobs(&JobFilter::new().limit(1000))
        .await
        .unwrap()
        .items;
    assert_eq!(jobs.len(), count);
    for job in jobs {
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
    }
}

#[tokio::test]
async fn what_ends_while_a_commit_is_held_is_ended_by_one_transaction() {
    with_database(async |db| {
        let watch = Arc::new(Watch::default());
        let (worker, _) = at_the_gate(db, &watch, 51).await;
        gather(&worker, &watch, 51).await;
        assert_eq!(watch.counts(Moment::BeforeCommit), [1]);
        watch.let_go();
        all_ended(db, 51).await;
        assert_eq!(watch.counts(Moment::BeforeCommit), [1, 50]);
        let groups: Vec<i64> = ask(
            db,
            "select array_agg(count order by count)
             from (select count(*) from pipeline.jobs group by xmin::text) as transactions",
        )
        .await;
        assert_eq!(groups, [1, 50], "as the rows themselves say");
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn an_end_that_the_database_refuses_fails_alone() {
    with_database(async |db| {
        let watch = Arc::new(Watch::default());
        let (worker, ids) = at_the_gate(db, &watch, 20).await;
        sql(
            db,
            "create function refuse() returns trigger language plpgsql
             as $$ begin raise exception 'not this one'; end $$;
             create trigger refuse before update on pipeline.jobs for each row
             when (new.status = 'succeeded' and new.args ->> 'name' = 'j7')
             execute function refuse();",
        )
        .await;
        gather(&worker, &watch, 20).await;
        watch.let_go();
        all_ended(db, 20).await;
        for (at, id) in ids.into_iter().enumerate() {
            let job = job(db, id).await;
            if at == 7 {
                assert_eq!((job.status, job.attempt), (JobStatus::Failed, 1));
                assert_eq!(job.error_class.as_deref(), Some("EndRefused"));
                let said = job.error_message.unwrap();
                assert!(said.contains("not this one"), "{said}");
            } else {
                assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
            }
        }
        worker.stop().await;
    })
    .await;
}

/// Rule 8: a time-out is nobody's fault. It is tried with less, and alone with more time.
#[tokio::test]
async fn a_group_that_takes_too_long_is_split_and_one_alone_gets_more_time() {
    with_database(async |db| {
        let watch = Arc::new(Watch::default());
        let (worker, ids) = at_the_gate(db, &watch, 20).await;
        sql(
            db,
            "create function too_many() returns trigger language plpgsql as $$ begin
                 if (select count(*) from ended where status = 'succeeded') > 3 then
                     raise exception using errcode = 'query_canceled', message = 'too many';
                 end if;
                 return null;
             end $$;
             create trigger too_many after update on pipeline.jobs
             referencing new table as ended for each statement execute function too_many();
             create function too_long() returns trigger language plpgsql as $$ begin
                 if current_setting('statement_timeout') = '30s' then
                     raise exception using errcode = 'query_canceled', message = 'too long';
                 end if;
                 return new;
             end $$;
             create trigger too_long before update on pipeline.jobs for each row
             when (new.status = 'succeeded' and new.args ->> 'name' = 'j7')
             execute function too_long();",
        )
        .await;
        gather(&worker, &watch, 20).await;
        watch.let_go();
        all_ended(db, 20).await;
        for id in ids {
            let job = job(db, id).await;
            assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
        }
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn an_end_that_cannot_be_written_at_all_holds_nobody_up_and_is_made_up_for_later() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 4));
        sql(
            db,
            "create sequence refusals;
             create function refuse() returns trigger language plpgsql
             as $$ begin perform nextval('refusals'); raise exception 'not this one'; end $$;
             create trigger refuse before update on pipeline.jobs for each row
             when (old.status = 'running' and new.status <> 'running'
                   and new.args ->> 'name' = 'bad')
             execute function refuse();",
        )
        .await;
        let new = NewJob::new(&Do::new("bad", What::Succeed)).lease(Duration::from_secs(1));
        let bad = client(db).enqueue(new).await.unwrap().id;
        worker.log.says("bad 1").await;
        for n in 0..10 {
            let new = Do::new(&format!("j{n}"), What::Succeed);
            let good = client(db).enqueue(new).await.unwrap().id;
            assert_eq!(ended(db, good).await.status, JobStatus::Succeeded);
        }
        // Also taking it over is refused, again and again.
        let refusals = "select last_value from refusals";
        let lost = "select exists (select from pipeline.jobs
                                   where status = 'running' and lease_until < pipeline.now())";
        eventually("its lease runs out", async || {
            ask::<bool>(db, lost).await.then_some(())
        })
        .await;
        let before: i64 = ask(db, refusals).await;
        eventually("taking it over is tried repeatedly", async || {
            (ask::<i64>(db, refusals).await >= before + 4).then_some(())
        })
        .await;
        assert_eq!(job(db, bad).await.status, JobStatus::Running);

        // Not what a refusal of this moment is followed by, that it has failed: only the next attempt to
        // take it over.
        sql(
            db,
            "drop trigger refuse on pipeline.jobs;
             create trigger refuse before update on pipeline.jobs for each row
             when (old.status = 'running' and new.status = 'failed' and new.args ->> 'name' = 'bad')
             execute function refuse();",
        )
        .await;
        let job = ended(db, bad).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 2));
        worker.stop().await;
    })
    .await;
}

/// Fails every claim that has a job called `bad`.
#[derive(Debug)]
struct Refusing;

impl ClaimHook for Refusing {
    fn load<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        claimed: &'a mut Vec<Claimed>,
    ) -> BoxFuture<'a, Result<(), sqlx::Error>> {
        Box::pin(async move {
            if claimed.iter().any(|job| job.args.contains("\"bad\"")) {
                sqlx::query("select 1 / 0").execute(connection).await?;
            }
            Ok(())
        })
    }
}

#[tokio::test]
async fn a_claim_that_is_refused_harms_no_end_and_the_culprit_fails_alone() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| {
            worker.queue("default", 8).claim_hook(Arc::new(Refusing))
        });
        let first = client(db).enqueue(Do::new("a", What::AtGate)).await;
        worker.log.says("a 1").await;
        let jobs = ["b", "c", "bad", "d", "e"].map(|name| Do::new(name, What::Succeed));
        let jobs = client(db).enqueue_many(jobs).await.unwrap();
        worker.gate.let_through(1);
        let first = ended(db, first.unwrap().id).await;
        assert_eq!(first.status, JobStatus::Succeeded);
        for (at, enqueued) in jobs.iter().enumerate() {
            let job = ended(db, enqueued.id).await;
            if at == 2 {
                assert_eq!(job.error_class.as_deref(), Some("InputRefused"));
                let said = job.error_message.unwrap();
                assert!(
                    said.contains("division by zero") && said.contains("retry"),
                    "{said}"
                );
            } else {
                assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
            }
        }
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn ends_whose_connection_is_lost_around_the_commit_are_written_once() {
    for moment in [Moment::BeforeCommit, Moment::AfterCommit] {
        with_database(async |db| {
            let watch = Arc::new(Watch::default());
            let (worker, _) = at_the_gate(db, &watch, 10).await;
            watch.hold(moment);
            worker.gate.let_through(10);
            watch.held().await;
            let engine = "select count(pg_terminate_backend(pid, 60000)) from pg_stat_activity
                          where datname = current_database() and application_name like 'pipeline %'";
            assert!(ask::<i64>(db, engine).await > 0);
            watch.let_go();
            all_ended(db, 10).await;
            all_succeeded_at_once(db, 10).await;
            begun(&worker, 10).await;
            worker.stop().await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_neither_repeated_nor_forgotten() {
    with_database(async |db| {
        let proxy = Proxy::start(db);
        let watch = Arc::new(Watch::default());
        let worker = Running::start_with(db, proxy.pool(), |worker| {
            worker.queue("default", 10).probe(watch.clone())
        });
        enqueue(db, 20).await;
        begun(&worker, 10).await;
        gather(&worker, &watch, 10).await;
        watch.hold(Moment::BeforeCommit);
        watch.let_go();

        // Nine ends, and a claim of as many that rides with them.
        watch.held().await;
        proxy.lose_the_next_answer_to_a_commit();
        watch.let_go();
        begun(&worker, 20).await;
        assert!(proxy.has_lost_it());
        worker.gate.let_through(10);
        all_ended(db, 20).await;
        all_succeeded_at_once(db, 20).await;
        begun(&worker, 20).await;
        assert_eq!(watch.counts(Moment::BeforeCommit)[..2], [1, 9]);
        let ends: usize = watch.counts(Moment::BeforeCommit).iter().sum();
        assert_eq!(
            ends, 29,
            "the nine were sent again, and the fence let none through twice"
        );
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_test_database_refuses_a_row_that_no_claim_could_take() {
    with_database(async |db| {
        let new = Do::new("a", What::Succeed);
        let id = client(db).enqueue(new).await.unwrap().id;
        for spoil in [
            "update pipeline.jobs set attempt = max_attempts",
            "update pipeline.jobs set attempt = 32767",
            "update pipeline.jobs set run_at = '-infinity'",
            "update pipeline.jobs set run_at = 'infinity', status = 'scheduled'",
        ] {
            let refused = sqlx::query(spoil).execute(db.pool()).await.unwrap_err();
            let refused = refused.into_database_error().unwrap();
            assert!(refused.is_check_violation(), "{spoil}");
        }
        when(db, id, |job| job.status == JobStatus::Ready).await;
    })
    .await;
}
