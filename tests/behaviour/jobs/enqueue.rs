//! Rule 24: alone, in the caller's transaction, in bulk; from the same types in each case. Higher
//! priority runs first; a key that is live returns the job that has it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::{Backoff, Context, Enqueued, Job, JobError, JobStatus, NewJob, Perform};
use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use tests::{Database, with_database};

use super::support::{Do, Running, What, client, count, ended, until};

/// A job of another type, with everything declared.
#[derive(Serialize, Deserialize, Job)]
#[job(
    name = "reports.monthly",
    queue = "reports",
    priority = 3,
    max_attempts = 7,
    timeout = "1h",
    lease = "40s"
)]
struct Report {
    month: u8,
}

impl Perform for Report {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

fn succeed(name: &str) -> Do {
    Do::new(name, What::Succeed)
}

fn new(name: &str) -> NewJob {
    NewJob::new(&succeed(name))
}

/// One slot, so that the log is the order of claims.
fn one_at_a_time(db: &Database) -> Running {
    Running::start(db, |worker| {
        worker.queue("default", 1).poll(Duration::from_millis(20))
    })
}

async fn column<T>(db: &Database, job: Enqueued, column: &str) -> T
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    sqlx::query("select *, status::text as state, run_at - created_at as wait from pipeline.jobs where id = $1")
        .bind(job.id)
        .fetch_one(db.pool())
        .await
        .unwrap()
        .get(column)
}

#[tokio::test]
async fn a_job_enqueued_alone_has_the_options_of_its_type() {
    with_database(async |db| {
        let job = client(db).enqueue(Report { month: 5 }).await.unwrap();
        assert!(job.is_new());
        let stored = client(db).job(job.id).info().await.unwrap().unwrap();
        assert_eq!(stored.job_type, "reports.monthly");
        assert_eq!(stored.queue, "reports");
        assert_eq!(stored.args, serde_json::json!({ "month": 5 }));
        assert_eq!((stored.priority, stored.max_attempts), (3, 7));
        assert_eq!((stored.attempt, stored.status), (0, JobStatus::Ready));
        assert_eq!(column::<i32>(db, job, "lease_ms").await, 40_000);
    })
    .await;
}

#[tokio::test]
async fn every_option_can_be_said_for_one_enqueueing() {
    with_database(async |db| {
        let backoff = Backoff::linear(Duration::from_secs(2), Duration::from_secs(9)).jitter(0.5);
        let job = client(db)
            .enqueue(Report { month: 5 })
            .queue("urgent")
            .priority(-4)
            .max_attempts(2)
            .backoff(backoff)
            .timeout(Duration::from_millis(1_500))
            .lease(Duration::from_secs(77))
            .delay(Duration::from_millis(90_500))
            .key("may")
            .await
            .unwrap();
        let stored = client(db).job(job.id).info().await.unwrap().unwrap();
        assert_eq!(stored.queue, "urgent");
        assert_eq!((stored.priority, stored.max_attempts), (-4, 2));
        assert_eq!(stored.status, JobStatus::Scheduled);
        assert_eq!(
            (stored.run_at - stored.created_at).num_milliseconds(),
            90_500
        );
        assert_eq!(column::<i32>(db, job, "lease_ms").await, 77_000);
        assert_eq!(column::<String>(db, job, "key").await, "may");
        let options: serde_json::Value = column(db, job, "options").await;
        assert_eq!(options["timeout_ms"], 1_500);
        assert_eq!(options["backoff"], serde_json::to_value(backoff).unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_workers_attempts_go_by_the_options_of_the_enqueueing() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 4).queue("other", 4));
        let client = client(db);
        let twice = client
            .enqueue(Do::new("twice", What::Fail))
            .queue("other")
            .max_attempts(2)
            .await
            .unwrap();
        let long = client
            .enqueue(Do::new("long", What::Fail))
            .backoff(Backoff::fixed(Duration::from_secs(3_000)))
            .await
            .unwrap();
        let timed = client
            .enqueue(Do::new("timed", What::Sleep(Duration::from_secs(600))))
            .timeout(Duration::from_millis(1))
            .max_attempts(1)
            .await
            .unwrap();
        assert_eq!(ended(db, twice.id).await.attempt, 2);
        let timed = ended(db, timed.id).await;
        assert_eq!(timed.error_class.as_deref(), Some("Timeout"));
        until(async || column::<String>(db, long, "state").await == "scheduled").await;
        let job = client.job(long.id).info().await.unwrap().unwrap();
        let failed_at = client.job(long.id).attempts().await.unwrap()[0].ended_at;
        assert_eq!((job.run_at - failed_at).num_seconds(), 3_000);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_enqueued_in_a_transaction_is_there_with_its_commit() {
    with_database(async |db| {
        let worker = one_at_a_time(db);
        let client = client(db);
        sqlx::query("create table orders (id int)")
            .execute(db.pool())
            .await
            .unwrap();
        let mut tx = db.pool().begin().await.unwrap();
        sqlx::query("insert into orders values (1)")
            .execute(&mut *tx)
            .await
            .unwrap();
        let one = client.enqueue_in(&mut tx, succeed("one")).await.unwrap();
        let many = client
            .enqueue_many_in(&mut tx, [succeed("two"), succeed("three")])
            .await
            .unwrap();
        assert!(
            client.job(one.id).info().await.unwrap().is_none(),
            "not yet"
        );
        tx.commit().await.unwrap();
        for job in [one, many[0], many[1]] {
            assert_eq!(ended(db, job.id).await.status, JobStatus::Succeeded);
        }
        assert_eq!(worker.log.lines(), ["one 1", "two 1", "three 1"]);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_enqueued_in_a_transaction_that_is_rolled_back_never_was() {
    with_database(async |db| {
        let worker = one_at_a_time(db);
        let client = client(db);
        let mut tx = db.pool().begin().await.unwrap();
        let keyed = || new("never").key("k");
        client.enqueue_in(&mut tx, keyed()).await.unwrap();
        let many = [keyed(), new("never")];
        client.enqueue_many_in(&mut tx, many).await.unwrap();
        tx.rollback().await.unwrap();
        // What comes later has run, and what never was has not; its key is free.
        let later = client.enqueue(new("later").key("k")).await.unwrap();
        assert!(later.is_new());
        ended(db, later.id).await;
        assert_eq!(worker.log.lines(), ["later 1"]);
        assert_eq!(count(db, "do").await, 1);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_mistake_in_the_callers_transaction_leaves_it_usable() {
    with_database(async |db| {
        let mut tx = db.pool().begin().await.unwrap();
        let refused = client(db)
            .enqueue_in(&mut tx, succeed("a"))
            .max_attempts(0)
            .await;
        assert!(refused.is_err());
        client(db).enqueue_in(&mut tx, succeed("b")).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(count(db, "do").await, 1);
    })
    .await;
}

#[tokio::test]
async fn ten_thousand_jobs_go_in_by_one_statement_with_ids_in_order() {
    with_database(async |db| {
        // Each statement would fire it.
        sqlx::raw_sql(
            "create table statements (n int);
             create function count_statement() returns trigger language plpgsql as
                 $$ begin insert into statements values (1); return null; end $$;
             create trigger counts after insert on pipeline.jobs
                 for each statement execute function count_statement();",
        )
        .execute(db.pool())
        .await
        .unwrap();
        let names: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
        let all = names.iter().map(|name| succeed(name));
        let jobs = client(db).enqueue_many(all).await.unwrap();
        assert_eq!(jobs.len(), 10_000);
        assert!(jobs.iter().all(|job| job.is_new()));
        assert!(jobs.is_sorted_by(|a, b| a.id < b.id));
        let stored: Vec<(jobs::JobId, String)> =
            sqlx::query_as("select id, args ->> 'name' from pipeline.jobs order by id")
                .fetch_all(db.pool())
                .await
                .unwrap();
        let given: Vec<_> = jobs.iter().map(|job| job.id).zip(names).collect();
        assert_eq!(stored, given);
        let statements: i64 = sqlx::query_scalar("select count(*) from statements")
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(statements, 1);
    })
    .await;
}

#[tokio::test]
async fn jobs_of_several_types_and_options_go_into_one_bulk() {
    with_database(async |db| {
        let jobs = client(db)
            .enqueue_many([
                new("a").priority(9),
                NewJob::new(&Report { month: 1 }).key("jan"),
                new("b").queue("other").delay(Duration::from_secs(60)),
                NewJob::new(&Report { month: 2 }),
            ])
            .await
            .unwrap();
        let stored: Vec<(jobs::JobId, String, String, i16, String)> = sqlx::query_as(
            "select id, job_type, queue, priority, status::text from pipeline.jobs order by id",
        )
        .fetch_all(db.pool())
        .await
        .unwrap();
        let find = |job: &Enqueued| {
            let (_, kind, queue, priority, status) =
                stored.iter().find(|row| row.0 == job.id).unwrap();
            (kind.as_str(), queue.as_str(), *priority, status.as_str())
        };
        let found: Vec<_> = jobs.iter().map(find).collect();
        assert_eq!(
            found,
            [
                ("do", "default", 9, "ready"),
                ("reports.monthly", "reports", 3, "ready"),
                ("do", "other", 0, "scheduled"),
                ("reports.monthly", "reports", 3, "ready"),
            ]
        );
    })
    .await;
}

#[tokio::test]
async fn no_job_at_all_is_fine() {
    with_database(async |db| {
        let none = client(db).enqueue_many(Vec::<Do>::new()).await.unwrap();
        assert!(none.is_empty());
    })
    .await;
}

#[tokio::test]
async fn higher_priority_runs_first_and_equals_in_the_order_they_came() {
    with_database(async |db| {
        let of = |name: &str, priority| new(name).priority(priority);
        client(db)
            .enqueue_many([
                of("d", 0),
                of("b", 5),
                of("e", -5),
                of("a", 100),
                of("c", 5),
            ])
            .await
            .unwrap();
        let worker = one_at_a_time(db);
        until(async || worker.log.lines().len() == 5).await;
        assert_eq!(worker.log.lines(), ["a 1", "b 1", "c 1", "d 1", "e 1"]);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_delayed_job_runs_when_its_time_has_come() {
    with_database(async |db| {
        let worker = one_at_a_time(db);
        let client = client(db);
        let now: DateTime<Utc> = sqlx::query_scalar("select pipeline.now()")
            .fetch_one(db.pool())
            .await
            .unwrap();
        let delay = client.enqueue(succeed("delay"));
        let delay = delay.delay(Duration::from_secs(3_600)).await.unwrap();
        let at = client.enqueue(succeed("at"));
        let at = at.at(now + Duration::from_secs(7_200)).await.unwrap();
        let past = client.enqueue(succeed("past"));
        let past = past.at(now - Duration::from_secs(60)).await.unwrap();
        ended(db, past.id).await;
        assert_eq!(worker.log.lines(), ["past 1"]);
        db.move_clock(Duration::from_secs(3_601)).await;
        ended(db, delay.id).await;
        assert_eq!(worker.log.lines(), ["past 1", "delay 1"]);
        db.move_clock(Duration::from_secs(3_600)).await;
        ended(db, at.id).await;
        assert_eq!(worker.log.lines(), ["past 1", "delay 1", "at 1"]);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_moment_may_be_as_far_away_as_there_are_dates() {
    with_database(async |db| {
        let at = |moment| new("a").at(moment);
        let times = [DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC];
        let jobs = client(db).enqueue_many(times.map(at)).await.unwrap();
        assert_eq!(column::<String>(db, jobs[0], "state").await, "ready");
        assert_eq!(column::<String>(db, jobs[1], "state").await, "scheduled");
        let worker = one_at_a_time(db);
        ended(db, jobs[0].id).await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_live_key_returns_the_job_that_has_it_and_an_ended_one_gives_it_back() {
    with_database(async |db| {
        let client = client(db);
        let enqueue = async |what: What| {
            let job = client.enqueue(Do::new("a", what)).key("k").await;
            job.unwrap()
        };
        let first = enqueue(What::Fail).await;
        let second = enqueue(What::Succeed).await;
        assert!(first.is_new());
        assert_eq!((second.id, second.is_new()), (first.id, false));
        let other_type = client.enqueue(Report { month: 1 }).key("k").await;
        assert!(other_type.unwrap().is_new(), "a key is its type's");

        let worker = one_at_a_time(db);
        assert_eq!(ended(db, first.id).await.status, JobStatus::Failed);
        let third = enqueue(What::Succeed).await;
        assert!(third.is_new(), "what has failed is not live");
        assert_eq!(ended(db, third.id).await.status, JobStatus::Succeeded);
        assert!(
            enqueue(What::Succeed).await.is_new(),
            "what is kept is not live"
        );
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn equal_keys_in_one_bulk_are_one_job() {
    with_database(async |db| {
        let there = client(db).enqueue(new("0").key("b")).await.unwrap();
        let keyed = |key: &str| new(key).key(key);
        let jobs = client(db)
            .enqueue_many([keyed("c"), new("x"), keyed("b"), keyed("c"), keyed("a")])
            .await
            .unwrap();
        let fresh: Vec<bool> = jobs.iter().map(|job| job.is_new()).collect();
        assert_eq!(fresh, [true, true, false, false, true]);
        assert_eq!(jobs[2].id, there.id);
        assert_eq!(jobs[3].id, jobs[0].id, "the first of the two");
        let names = [(0, "c"), (1, "x"), (4, "a")];
        for (at, name) in names {
            let job = client(db).job(jobs[at].id).info().await.unwrap().unwrap();
            assert_eq!(job.args["name"], name);
        }
        assert_eq!(count(db, "do").await, 4);
    })
    .await;
}

/// How many sessions of this database wait for a lock.
async fn waiting(db: &Database) -> i64 {
    sqlx::query_scalar(
        "select count(*) from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock'",
    )
    .fetch_one(db.pool())
    .await
    .unwrap()
}

#[tokio::test]
async fn a_key_in_another_open_transaction_is_waited_for() {
    with_database(async |db| {
        for commits in [true, false] {
            let key = format!("commits {commits}");
            let mut tx = db.pool().begin().await.unwrap();
            let first = client(db)
                .enqueue_in(&mut tx, succeed("a"))
                .key(&key)
                .await
                .unwrap();
            let (client, other) = (client(db), new("b").key(&key));
            let second = tokio::spawn(async move { client.enqueue(other).await });
            until(async || waiting(db).await == 1).await;
            assert!(!second.is_finished());
            if commits {
                tx.commit().await.unwrap();
            } else {
                tx.rollback().await.unwrap();
            }
            let second = second.await.unwrap().unwrap();
            assert_eq!(second.is_new(), !commits);
            assert_eq!(second.id == first.id, commits);
        }
    })
    .await;
}

/// The harness fails this test where the server has seen a deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bulks_with_the_same_keys_in_any_order_do_not_deadlock() {
    with_database(async |db| {
        let keys: Vec<String> = (0..200).map(|n| format!("{n:04}")).collect();
        for round in 0..10 {
            let bulk = |reversed: bool| {
                let mut jobs: Vec<NewJob> = keys
                    .iter()
                    .map(|key| new(key).key(format!("{round} {key}")))
                    .collect();
                if reversed {
                    jobs.reverse();
                }
                let client = client(db);
                tokio::spawn(async move { client.enqueue_many(jobs).await.unwrap() })
            };
            let bulks = [bulk(false), bulk(true), bulk(false), bulk(true)];
            let mut fresh = 0;
            for bulk in bulks {
                fresh += bulk
                    .await
                    .unwrap()
                    .iter()
                    .filter(|job| job.is_new())
                    .count();
            }
            assert_eq!(fresh, keys.len());
        }
        assert_eq!(count(db, "do").await, 2_000);
    })
    .await;
}
