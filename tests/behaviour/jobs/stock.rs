//! The shortcomings of the stock apalis backend for Postgres, one test for each: this backend does not have them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use apalis_core::error::BoxDynError;
use apalis_core::layers::{Layer, Service};
use apalis_core::task::Task;
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::BoxFuture;
use jobs::testing::Moment;
use jobs::{Backoff, Envelope, JobFilter, JobStatus, NewJob, Output};
use sqlx::postgres::PgListener;
use tests::{Errand, with_database};

use super::support::{
    Do, Running, Watch, What, all_ended, ask, began, client, count_ended, ended, errands,
    eventually, job, sql, when,
};
use crate::logged::Captured;
use crate::processes::Staying;

/// A second worker's attempt, on a row that the first still believes to be its own.
const TAKE_OVER: &str = "
    update pipeline.jobs set lease_until = pipeline.now() - interval '1 s' where status = 'running';
    select pipeline.end_jobs_v1(
        array[row(id, token, 'lease_lost', attempt, null, 0, null, null, null, 0)::pipeline.attempt_end],
        true, 0
    )
    from pipeline.jobs where status = 'running';";

#[tokio::test]
async fn a_stale_end_does_not_complete_a_newer_attempt() {
    with_database(async |db| {
        let watch = Arc::new(Watch::default());
        let worker = Running::start(db, |worker| worker.queue("default", 2).probe(watch.clone()));
        let new = NewJob::new(&Do::new("a", What::AtGate)).lease(Duration::from_secs(3600));
        let id = client(db).enqueue(new).await.unwrap().id;
        worker.log.says("a 1").await;
        sql(db, TAKE_OVER).await;
        worker.log.says("a 2").await;
        let second: i64 = ask(db, "select token from pipeline.jobs").await;

        // The first attempt, which came to the gate first, says that it has succeeded.
        worker.gate.let_through(1);
        watch.committed(1).await;
        assert_eq!(worker.log.lines(), ["a 1", "a 2", "a through"]);
        assert_eq!(job(db, id).await.status, JobStatus::Running);
        assert_eq!(
            ask::<i64>(db, "select token from pipeline.jobs").await,
            second
        );

        worker.gate.let_through(1);
        let job = ended(db, id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 2));
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn an_orphan_counts_as_an_attempt_and_out_of_attempts_has_failed() {
    with_database(async |db| {
        Errand::prepare(db.pool()).await;
        let new = NewJob::new(&Errand::new("a")).max_attempts(2);
        let id = client(db).enqueue(new).await.unwrap().id;
        for attempt in 1..=2 {
            let process = Staying::worker(db.url(), "doomed", "default", 1);
            began(db, "a", attempt).await;
            process.kill();
        }
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let job = ended(db, id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Failed, 2));
        assert_eq!(job.error_class.as_deref(), Some("WorkerDied"));
        let attempts = client(db).job(id).attempts().await.unwrap();
        let outcomes: Vec<_> = attempts
            .iter()
            .map(|a| (a.outcome.as_str(), a.error_class.as_deref()))
            .collect();
        let died = Some("WorkerDied");
        assert_eq!(outcomes, [("retried", died), ("failed", died)]);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_backoff_is_stored_to_the_millisecond_and_the_job_not_fetched_before() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let backoff = Backoff::fixed(Duration::from_millis(60_123));
        let new = NewJob::new(&Do::new("a", What::Fail)).backoff(backoff);
        let id = client(db).enqueue(new).await.unwrap().id;
        let failed = when(db, id, |job| job.status == JobStatus::Scheduled).await;
        let ended_at = client(db).job(id).attempts().await.unwrap()[0].ended_at;
        assert_eq!(
            failed.run_at - ended_at,
            TimeDelta::milliseconds(60_123),
            "the wait is stored as it was said"
        );

        db.move_clock(Duration::from_secs(50)).await;
        let other = client(db).enqueue(Do::new("b", What::Succeed)).await;
        ended(db, other.unwrap().id).await;
        assert_eq!(worker.log.lines(), ["a 1", "b 1"]);
        assert_eq!(job(db, id).await.status, JobStatus::Scheduled);

        db.move_clock(Duration::from_secs(11)).await;
        worker.log.says("a 2").await;
        when(db, id, |job| job.status == JobStatus::Scheduled).await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_key_that_a_live_job_with_other_data_has_is_warned_of() {
    Captured::begin();
    with_database(async |db| {
        let client = client(db);
        let new = |name| NewJob::new(&Do::new(name, What::Succeed)).key("order-7");
        let first = client.enqueue(new("a")).await.unwrap();
        let same = client.enqueue(new("a")).await.unwrap();
        assert_eq!(
            (same.id, same.is_new(), same.has_other_data()),
            (first.id, false, false)
        );
        let warnings = || {
            let log = Captured::so_far();
            let of_it = |line: &&str| line.contains("key is taken by a live job with other data");
            log.lines()
                .filter(of_it)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(warnings(), [""; 0]);

        // One call may hold both, and other orders or spaces of the stored JSON make no difference.
        sqlx::query("update pipeline.jobs set args = (args::jsonb)::json")
            .execute(db.pool())
            .await
            .unwrap();
        let both = client.enqueue_many([new("a"), new("b")]).await.unwrap();
        assert_eq!(
            both.iter().map(|it| it.id).collect::<Vec<_>>(),
            [first.id; 2]
        );
        assert_eq!(
            both.iter()
                .map(|it| it.has_other_data())
                .collect::<Vec<_>>(),
            [false, true]
        );
        let warnings = warnings();
        let [line] = &warnings[..] else {
            panic!("{warnings:?}")
        };
        assert!(line.contains(&format!("job.id={}", first.id)), "{line}");
        assert!(line.contains("job.type=\"do\" key=\"order-7\""), "{line}");
    })
    .await;
}

#[tokio::test]
async fn the_same_unique_key_returns_the_live_job_and_aborts_no_transaction() {
    with_database(async |db| {
        let client = client(db);
        let new = |name| NewJob::new(&Do::new(name, What::Succeed)).key("order-7");
        let first = client.enqueue(new("a")).await.unwrap();
        assert!(first.is_new());

        let mut tx = db.pool().begin().await.unwrap();
        let second = client.enqueue_in(&mut tx, new("b")).await.unwrap();
        assert_eq!((second.id, second.is_new()), (first.id, false));
        let third = client.enqueue_in(&mut tx, Do::new("c", What::Succeed));
        let third = third.await.unwrap();
        tx.commit().await.unwrap();

        let worker = Running::start(db, |worker| worker.queue("default", 1));
        ended(db, first.id).await;
        ended(db, third.id).await;
        assert_eq!(worker.log.lines(), ["a 1", "c 1"]);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn an_ended_job_gives_its_unique_key_back() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let mut ids = BTreeSet::new();
        for what in [
            What::Succeed,
            What::Discard,
            What::FailTimes(1),
            What::Succeed,
        ] {
            let new = NewJob::new(&Do::new("a", what)).key("order-7");
            let enqueued = client(db).enqueue(new.max_attempts(1)).await.unwrap();
            assert!(enqueued.is_new());
            ids.insert(enqueued.id);
            ended(db, enqueued.id).await;
        }
        assert_eq!(ids.len(), 4);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn two_processes_of_one_name_are_two_workers() {
    with_database(async |db| {
        Errand::prepare(db.pool()).await;
        let one = Staying::worker(db.url(), "twin", "one", 1);
        let other = Staying::worker(db.url(), "twin", "other", 1);
        let mut ids = Vec::new();
        for queue in ["one", "other"] {
            let new = NewJob::new(&Errand::new(queue)).queue(queue);
            ids.push(client(db).enqueue(new).await.unwrap().id);
            began(db, queue, 1).await;
        }
        let workers = client(db).workers().await.unwrap();
        assert_eq!(workers.len(), 2);
        assert!(workers.iter().all(|w| w.name == "twin" && w.running == 1));
        assert_ne!(job(db, ids[0]).await.worker, job(db, ids[1]).await.worker);

        // What the one leaves behind is taken over by its twin's ticks, which keeps what is its own.
        one.kill();
        when(db, ids[0], |job| job.status == JobStatus::Ready).await;
        assert_eq!(job(db, ids[1]).await.status, JobStatus::Running);
        Errand::let_go(db.pool(), "other").await;
        let kept = ended(db, ids[1]).await;
        assert_eq!((kept.status, kept.attempt), (JobStatus::Succeeded, 1));
        other.kill();
    })
    .await;
}

/// Scenarios: H080
#[tokio::test]
async fn work_is_found_when_no_notification_arrives() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| {
            worker.queue("default", 4).poll(Duration::from_millis(30))
        });
        // The first may still be found by a worker that looks around as it starts.
        for name in ["a", "b", "c", "d"] {
            sqlx::query(
                "insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority,
                                            max_attempts, lease_ms, args)
                 values (nextval('pipeline.ids'), 'ready', pipeline.now(), pipeline.now(), 'do',
                         'default', 0, 3, 5000, jsonb_build_object('name', $1, 'what', 'Succeed'))",
            )
            .bind(name)
            .execute(db.pool())
            .await
            .unwrap();
            worker.log.says(&format!("{name} 1")).await;
        }
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn with_notifications_alone_a_chain_of_jobs_never_stalls() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| {
            worker.queue("default", 4).poll(Duration::from_secs(10))
        });
        let first = Do::new("a", What::Chain(100));
        client(db).enqueue(first).await.unwrap();
        all_ended(db, 101).await;
        assert_eq!(worker.log.lines(), vec!["a 1"; 101]);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_claim_takes_at_most_the_free_slots() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 2));
        let ten: Vec<Do> = (1..=10)
            .map(|n| Do::new(&format!("j{n}"), What::AtGate))
            .collect();
        client(db).enqueue_many(ten).await.unwrap();
        for started in 2..=9 {
            eventually("the free slots are used", async || {
                let lines = worker.log.lines();
                let begun = lines.iter().filter(|line| line.ends_with(" 1"));
                (begun.count() == started).then_some(())
            })
            .await;
            let running = "select count(*) from pipeline.jobs where status = 'running'";
            assert_eq!(ask::<i64>(db, running).await, 2);
            worker.gate.let_through(1);
        }
        worker.gate.let_through(2);
        all_ended(db, 10).await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn renewals_ends_and_claims_go_on_while_all_slots_of_a_queue_are_busy() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1).queue("other", 1));
        for name in ["a", "b", "c"] {
            let new = NewJob::new(&Do::new(name, What::AtGate)).lease(Duration::from_secs(2));
            client(db).enqueue(new).await.unwrap();
        }
        worker.log.says("a 1").await;
        let lease = "select lease_until from pipeline.jobs
                     where status = 'running' and queue = 'default'";
        let first: DateTime<Utc> = ask(db, lease).await;
        let mut renewed = 0;
        let mut last = first;
        while renewed < 2 {
            let new = NewJob::new(&Do::new("quick", What::Succeed)).queue("other");
            let quick = client(db).enqueue(new).await.unwrap().id;
            ended(db, quick).await;
            let now: DateTime<Utc> = ask(db, lease).await;
            renewed += i32::from(now > last);
            last = now;
        }
        assert!(!worker.log.lines().iter().any(|line| line == "b 1"));
        worker.gate.let_through(3);
        worker.log.says("c through").await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_dead_workers_job_is_taken_over_when_its_lease_has_run_out() {
    with_database(async |db| {
        Errand::prepare(db.pool()).await;
        let new = NewJob::new(&Errand::new("a")).lease(Duration::from_secs(200));
        let id = client(db).enqueue(new).await.unwrap().id;
        let process = Staying::worker(db.url(), "doomed", "default", 1);
        began(db, "a", 1).await;
        process.kill();

        let lost = "select coalesce(cardinality(lost_ids), 0)
                    from pipeline.tick_v1(0, true, null, null, '{}', '{}', '{}', '{}', '{}', '{}', '{}')";
        db.move_clock_without_leases(Duration::from_secs(100)).await;
        assert_eq!(ask::<i32>(db, lost).await, 0);
        db.move_clock_without_leases(Duration::from_secs(101)).await;
        assert_eq!(ask::<i32>(db, lost).await, 1);

        let worker = Running::start(db, |worker| errands(db, worker));
        began(db, "a", 2).await;
        Errand::let_go(db.pool(), "a").await;
        let job = ended(db, id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 2));
        worker.stop().await;
    })
    .await;
}

/// Does in a layer what the job's queue says.
#[derive(Debug, Clone, Copy)]
struct Meddling;

#[derive(Debug, Clone)]
struct Meddler<S>(S);

impl<S> Layer<S> for Meddling {
    type Service = Meddler<S>;

    fn layer(&self, inner: S) -> Meddler<S> {
        Meddler(inner)
    }
}

impl<S> Service<Task<Envelope>> for Meddler<S>
where
    S: Service<Task<Envelope>, Response = Output, Error = BoxDynError>,
    S::Future: Send + 'static,
{
    type Response = Output;
    type Error = BoxDynError;
    type Future = BoxFuture<'static, Result<Output, BoxDynError>>;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), BoxDynError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, task: Task<Envelope>) -> Self::Future {
        match task.args.queue() {
            "at_once" => panic!("a layer panics at once"),
            "later" => Box::pin(async { panic!("a layer panics later") }),
            "error" => Box::pin(async { Err("a layer refuses".into()) }),
            "never" => Box::pin(std::future::pending()),
            _ => Box::pin(self.0.call(task)),
        }
    }
}

#[tokio::test]
async fn a_timeout_or_a_panic_ends_the_attempt_in_whatever_layer() {
    with_database(async |db| {
        let worker = Running::start_as(
            db,
            db.pool().clone(),
            |worker| worker.queue("*", 4),
            async |worker, stopped| {
                let (builder, performer) = worker.into_parts()?;
                let worker = builder.layer(Meddling).build(performer);
                let stopped = async {
                    stopped.await;
                    Ok::<(), std::io::Error>(())
                };
                worker.run_until(stopped).await.unwrap();
                Ok(())
            },
        );
        for (queue, class, message) in [
            (
                "at_once",
                "Panic",
                "a layer panics at once at tests/behaviour/jobs/stock.rs:",
            ),
            (
                "later",
                "Panic",
                "a layer panics later at tests/behaviour/jobs/stock.rs:",
            ),
            ("error", "Error", "a layer refuses"),
            (
                "never",
                "Timeout",
                "the attempt took longer than 20ms: give `do` a longer timeout, or less to do",
            ),
        ] {
            let new = NewJob::new(&Do::new("a", What::Succeed))
                .queue(queue)
                .max_attempts(2)
                .timeout(Duration::from_millis(20));
            let id = client(db).enqueue(new).await.unwrap().id;
            let job = ended(db, id).await;
            assert_eq!((job.status, job.attempt), (JobStatus::Failed, 2), "{queue}");
            let found = job.error_message.unwrap();
            assert!(found.starts_with(message), "{queue}: {found}");
            assert!(job.error_class.unwrap().contains(class), "{queue}");
        }
        let well = client(db).enqueue(Do::new("b", What::Succeed)).await;
        let well = ended(db, well.unwrap().id).await;
        assert_eq!(well.status, JobStatus::Succeeded);
        assert_eq!(worker.log.lines(), ["b 1"]);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_row_that_cannot_be_decoded_fails_and_says_why_while_others_run_through() {
    with_database(async |db| {
        let twenty = (1..=20).map(|n| Do::new(&format!("j{n}"), What::Succeed));
        let jobs = client(db).enqueue_many(twenty).await.unwrap();
        let spoil = [
            (
                3,
                "args = '{\"name\": \"j4\", \"what\": {\"SnoozeTimes\": \"x\"}}'",
            ),
            (7, "args = '{\"what\": \"Succeed\"}'"),
            (9, "args = '[]'"),
            (12, "options = '{\"timeout_ms\": \"soon\"}'"),
            (15, "options = '{\"backoff\": {\"growth\": \"wild\"}}'"),
        ];
        for (at, what) in spoil {
            let id = jobs[at].id;
            let update = format!("update pipeline.jobs set {what} where id = {id}");
            let update = sqlx::raw_sql(sqlx::AssertSqlSafe(update));
            update.execute(db.pool()).await.unwrap();
        }

        let worker = Running::start(db, |worker| worker.queue("default", 4));
        all_ended(db, 20).await;
        for (at, job) in jobs.iter().enumerate() {
            let job = self::job(db, job.id).await;
            if spoil.iter().any(|(spoilt, _)| *spoilt == at) {
                assert_eq!((job.status, job.attempt), (JobStatus::Failed, 1));
                assert_eq!(job.error_class.as_deref(), Some("Undecodable"));
            } else {
                assert_eq!(job.status, JobStatus::Succeeded);
            }
        }
        for (at, path) in [
            (
                3,
                "the arguments of `do` cannot be decoded at `what.SnoozeTimes`: invalid type: string, \
                 expected u32 (line 1",
            ),
            (
                7,
                "the arguments of `do` cannot be decoded at `.`: missing field `name`",
            ),
            (
                9,
                "the arguments of `do` cannot be decoded at `.`: invalid length 0, expected",
            ),
            (
                12,
                "the options of `do` cannot be decoded at `timeout_ms`: invalid type: string, expected",
            ),
            (
                15,
                "the options of `do` cannot be decoded at `backoff.growth`: unknown variant, expected",
            ),
        ] {
            let said = job(db, jobs[at].id).await.error_message.unwrap();
            assert!(said.contains(path), "{said}");
        }
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn database_errors_under_load_harm_no_job() {
    with_database(async |db| {
        const JOBS: usize = 400;
        let worker = Running::start(db, |worker| worker.queue("default", 20));
        let sleep = What::Sleep(Duration::from_millis(2));
        let many = (0..JOBS).map(|n| Do::new(&format!("j{n}"), sleep.clone()));
        client(db).enqueue_many(many).await.unwrap();
        for round in 1..=10 {
            eventually("more jobs end", async || {
                (count_ended(db).await >= round * 35).then_some(())
            })
            .await;
            // After the last time it may not have come back yet.
            eventually("the engine has connections to lose", async || {
                let killed: i64 = ask(
                    db,
                    "select count(pg_terminate_backend(pid)) from pg_stat_activity
                     where datname = current_database() and application_name like 'pipeline %'",
                )
                .await;
                (killed > 0).then_some(())
            })
            .await;
        }
        all_ended(db, JOBS).await;
        let filter = JobFilter::new().limit(1000);
        for job in client(db).jobs(&filter).await.unwrap().items {
            assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
        }
        let lines = worker.log.lines();
        let different: BTreeSet<_> = lines.iter().collect();
        assert_eq!(
            (lines.len(), different.len()),
            (JOBS, JOBS),
            "each ran once"
        );
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn ends_notify_nobody_of_what_nobody_waits_for() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 4));
        let mut ears = PgListener::connect_with(db.pool()).await.unwrap();
        ears.listen("pipeline_jobs").await.unwrap();
        let ids = client(db)
            .enqueue_many([
                Do::new("succeeds", What::Succeed),
                Do::new("retries", What::FailTimes(2)),
                Do::new("fails", What::Fail),
                Do::new("discards", What::Discard),
                Do::new("snoozes", What::SnoozeTimes(3)),
            ])
            .await
            .unwrap();
        for enqueued in ids {
            ended(db, enqueued.id).await;
        }
        worker.stop().await;
        sql(db, "notify pipeline_jobs, 'the last'").await;
        // One for all of the enqueueing, inside the caller's transaction.
        assert!(ears.recv().await.unwrap().payload().starts_with("default "));
        assert_eq!(ears.recv().await.unwrap().payload(), "the last");
    })
    .await;
}

#[tokio::test]
async fn work_that_an_end_makes_ready_is_told_of_after_the_commit_and_not_inside_it() {
    with_database(async |db| {
        let watch = Arc::new(Watch::default());
        let worker = Running::start(db, |worker| {
            let worker = worker.grace(Duration::ZERO).probe(watch.clone());
            worker.queue("default", 1)
        });
        let new = Do::new("a", What::AtGate);
        let id = client(db).enqueue(new).await.unwrap().id;
        worker.log.says("a 1").await;
        let mut ears = PgListener::connect_with(db.pool()).await.unwrap();
        ears.listen("pipeline_jobs").await.unwrap();

        watch.hold(Moment::AfterCommit);
        worker.ask_to_stop();
        watch.held().await;
        assert_eq!(
            job(db, id).await.status,
            JobStatus::Ready,
            "it is committed"
        );
        sql(db, "notify pipeline_jobs, 'after the commit'").await;
        watch.let_go();
        worker.stop().await;
        assert_eq!(ears.recv().await.unwrap().payload(), "after the commit");
        assert!(ears.recv().await.unwrap().payload().starts_with("default "));
    })
    .await;
}
