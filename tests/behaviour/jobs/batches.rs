//! Rule 27: a batch is open until sealed, and finishes once: when it is sealed and its last job has
//! ended. The callbacks here write down what they were told; how often each was enqueued is also read
//! in the queue, where jobs that have succeeded are kept.

use std::time::Duration;

use jobs::{Batch, BatchEnded, Client, Context, Error, Job, JobError, JobStatus, NewJob, Perform};
use serde::{Deserialize, Serialize};
use tests::{Database, with_database};

use super::support::{Do, Log, Running, What, client, count, ended, sql, until};
use crate::processes::Staying;

/// Takes what the batch has to say.
#[derive(Serialize, Deserialize, Job)]
#[job(queue = "callbacks")]
struct Finished {
    name: String,
}

impl Perform for Finished {
    type Input = BatchEnded;
    type Output = ();

    async fn perform(self, ended: BatchEnded, cx: &Context) -> Result<(), JobError> {
        let (name, total, failed) = (self.name, ended.total, ended.failed);
        cx.data::<Log>()?
            .write(format!("{name} finished: {failed} of {total} failed"));
        Ok(())
    }
}

/// Takes nothing.
#[derive(Serialize, Deserialize, Job)]
#[job(queue = "callbacks", priority = 7, max_attempts = 2, lease = "9s")]
struct Over;

impl Perform for Over {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        cx.data::<Log>()?.write("over");
        Ok(())
    }
}

/// The helper's `hold` never ends those that are to be held; here they are like any other.
#[derive(Serialize, Deserialize, Job)]
#[job(queue = "items", lease = "5s")]
struct Item {
    held: bool,
}

impl Perform for Item {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

fn worker(db: &Database, log: &Log, slots: u32) -> Running {
    let log = log.clone();
    Running::start(db, |worker| {
        worker
            .register::<(Finished, Over, Item)>()
            .data(log)
            .poll(Duration::from_millis(20))
            .queue("default", slots)
            .queue("callbacks", 4)
            .queue("items", slots)
    })
}

fn named(name: &str) -> Finished {
    Finished {
        name: name.to_owned(),
    }
}

fn jobs(count: usize, what: What) -> impl Iterator<Item = Do> {
    (0..count).map(move |n| Do::new(&n.to_string(), what.clone()))
}

async fn is_finished(batch: &Batch) -> bool {
    batch.state().await.unwrap().finished
}

/// The callbacks that are in the queue or were in it.
async fn callbacks(client: &Client) -> usize {
    let filter = jobs::JobFilter::new().queue("callbacks").limit(1_000);
    client.jobs(&filter).await.unwrap().items.len()
}

/// What callbacks have said, in no order.
fn said(log: &Log) -> Vec<String> {
    let mut lines = log.lines();
    lines.retain(|line| line.contains("finished"));
    lines.sort();
    lines
}

#[tokio::test]
async fn a_batch_finishes_with_the_last_end_of_its_jobs() {
    with_database(async |db| {
        let batch = client(db)
            .batch()
            .on_finish(named("a"))
            .jobs(jobs(3, What::Succeed))
            .await
            .unwrap();
        let state = batch.state().await.unwrap();
        assert_eq!((state.total, state.ended), (3, 0));
        assert!(state.sealed && !state.finished);
        assert_eq!(callbacks(&client(db)).await, 0);

        let log = Log::default();
        let worker = worker(db, &log, 4);
        until(async || said(&log) == ["a finished: 0 of 3 failed"]).await;
        let state = batch.state().await.unwrap();
        assert_eq!((state.total, state.ended, state.failed), (3, 3, 0));
        assert!(state.finished);
        worker.stop().await;
        assert_eq!(callbacks(&client(db)).await, 1);
    })
    .await;
}

#[tokio::test]
async fn an_open_batch_waits_for_its_seal_whatever_has_ended() {
    with_database(async |db| {
        let log = Log::default();
        let worker = worker(db, &log, 4);
        let batch = client(db)
            .batch()
            .on_finish(named("a"))
            .open()
            .await
            .unwrap();
        for round in 1..=2 {
            let added = batch.add(jobs(5, What::Succeed)).await.unwrap();
            assert_eq!(added.len(), 5);
            until(async || batch.state().await.unwrap().ended == 5 * round).await;
        }
        let state = batch.state().await.unwrap();
        assert_eq!((state.total, state.ended), (10, 10));
        assert!(!state.sealed && !state.finished);
        assert_eq!(callbacks(&client(db)).await, 0);

        batch.seal().await.unwrap();
        assert!(is_finished(&batch).await, "its jobs had all ended");
        until(async || said(&log) == ["a finished: 0 of 10 failed"]).await;
        batch.seal().await.unwrap();
        worker.stop().await;
        assert_eq!(callbacks(&client(db)).await, 1, "sealing twice is fine");
    })
    .await;
}

#[tokio::test]
async fn a_sealed_batch_of_which_jobs_still_run_finishes_later() {
    with_database(async |db| {
        let log = Log::default();
        let batch = client(db)
            .batch()
            .on_finish(named("a"))
            .open()
            .await
            .unwrap();
        batch.add(jobs(2, What::Succeed)).await.unwrap();
        batch.seal().await.unwrap();
        assert!(!is_finished(&batch).await);
        let worker = worker(db, &log, 4);
        until(async || is_finished(&batch).await).await;
        until(async || !said(&log).is_empty()).await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn an_empty_batch_finishes_when_it_is_sealed() {
    with_database(async |db| {
        let client = client(db);
        let at_once = client.batch().on_finish(named("a"));
        let at_once = at_once.jobs(Vec::<Do>::new()).await.unwrap();
        assert!(is_finished(&at_once).await);
        let open = client.batch().on_finish(named("b"));
        let open = open.open().await.unwrap();
        assert!(!is_finished(&open).await);
        open.seal().await.unwrap();
        assert!(is_finished(&open).await);

        let log = Log::default();
        let worker = worker(db, &log, 1);
        let both = ["a finished: 0 of 0 failed", "b finished: 0 of 0 failed"];
        until(async || said(&log) == both).await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_batch_without_a_callback_finishes_all_the_same() {
    with_database(async |db| {
        let log = Log::default();
        let worker = worker(db, &log, 4);
        let batch = client(db).batch().jobs(jobs(3, What::Succeed)).await;
        let batch = batch.unwrap();
        until(async || is_finished(&batch).await).await;
        worker.stop().await;
        assert_eq!(callbacks(&client(db)).await, 0);
    })
    .await;
}

#[tokio::test]
async fn jobs_that_are_deleted_with_their_end_count_like_those_that_are_kept() {
    with_database(async |db| {
        let log = Log::default();
        let worker = Running::start(db, |worker| {
            worker
                .register::<Finished>()
                .data(log.clone())
                .keep_succeeded(false)
                .queue("default", 4)
                .queue("callbacks", 4)
        });
        let client = client(db);
        let batch = client.batch().on_finish(named("a"));
        batch.jobs(jobs(20, What::Succeed)).await.unwrap();
        until(async || said(&log) == ["a finished: 0 of 20 failed"]).await;
        worker.stop().await;
        assert_eq!((count(db, "do").await, callbacks(&client).await), (0, 0));
    })
    .await;
}

#[tokio::test]
async fn failed_and_discarded_jobs_are_counted_and_retried_ones_once() {
    with_database(async |db| {
        let log = Log::default();
        let worker = worker(db, &log, 8);
        let all = [
            What::Succeed,
            What::Fail,
            What::Discard,
            What::FailTimes(2),
            What::SnoozeTimes(2),
            What::Panic,
        ];
        let named_all = all.into_iter().enumerate();
        let batch = client(db)
            .batch()
            .on_finish(named("a"))
            .jobs(named_all.map(|(n, what)| Do::new(&format!("j{n}"), what)))
            .await
            .unwrap();
        until(async || said(&log) == ["a finished: 3 of 6 failed"]).await;
        let state = batch.state().await.unwrap();
        assert_eq!((state.total, state.ended, state.failed), (6, 6, 3));
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_callback_may_take_nothing_and_has_the_options_of_its_type() {
    with_database(async |db| {
        let client = client(db);
        let batch = client.batch().on_finish(Over);
        batch.jobs(Vec::<Do>::new()).await.unwrap();
        let filter = jobs::JobFilter::new().job_type("over");
        let callback = client.jobs(&filter).await.unwrap().items.remove(0);
        assert_eq!((callback.priority, callback.max_attempts), (7, 2));
        assert_eq!(callback.queue, "callbacks");
        assert_eq!(callback.batch, None, "it is not one of the batch's jobs");
        let lease: i32 = sqlx::query_scalar("select lease_ms from pipeline.jobs")
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(lease, 9_000);

        let log = Log::default();
        let worker = worker(db, &log, 1);
        until(async || log.lines() == ["over"]).await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_batch_to_be_can_be_made_twice() {
    with_database(async |db| {
        let client = client(db);
        let batch = client.batch().on_finish(Over);
        let first = batch.clone().jobs(Vec::<Do>::new()).await.unwrap();
        let second = batch.jobs(Vec::<Do>::new()).await.unwrap();
        assert_ne!(first.id(), second.id());
        assert_eq!(callbacks(&client).await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_callback_can_be_given_options_of_its_own() {
    with_database(async |db| {
        let client = client(db);
        let options = |callback: NewJob| callback.queue("reports").max_attempts(9).priority(-1);
        let batch = client.batch().on_finish_with(Over, options);
        batch.jobs(Vec::<Do>::new()).await.unwrap();
        let filter = jobs::JobFilter::new().job_type("over");
        let callback = client.jobs(&filter).await.unwrap().items.remove(0);
        assert_eq!((callback.priority, callback.max_attempts), (-1, 9));
        assert_eq!(callback.queue, "reports");

        let refused = client
            .batch()
            .on_finish_with(Over, |callback| callback.queue("a b"));
        assert!(matches!(
            refused.open().await,
            Err(Error::InvalidName { .. })
        ));
    })
    .await;
}

#[tokio::test]
async fn adding_to_a_closed_batch_is_an_error_that_names_it_and_writes_nothing() {
    with_database(async |db| {
        let sealed = client(db).batch().jobs(jobs(1, What::Succeed)).await;
        let finished = client(db).batch().jobs(Vec::<Do>::new()).await;
        for (batch, state) in [(sealed.unwrap(), "sealed"), (finished.unwrap(), "finished")] {
            let error = batch.add(jobs(3, What::Succeed)).await.unwrap_err();
            assert!(matches!(error, Error::BatchClosed { batch: id, .. } if id == batch.id()));
            let message = format!(
                "batch {} is {state}: jobs can be added only while it is open; begin another one",
                batch.id()
            );
            assert_eq!(error.to_string(), message);
        }
        assert_eq!(count(db, "do").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_batch_whose_row_is_gone_is_named_in_words_of_its_own() {
    with_database(async |db| {
        let batch = client(db).batch().open().await.unwrap();
        sql(db, "delete from pipeline.batch_sets").await;
        let said = format!(
            "there is no batch {} in this database: its transaction has not committed, or was rolled back; \
             or it finished long ago and was pruned; or it belongs to another database; begin another one",
            batch.id()
        );
        let none: [Do; 0] = [];
        for error in [
            batch.state().await.unwrap_err(),
            batch.seal().await.unwrap_err(),
            batch.add(none).await.unwrap_err(),
        ] {
            assert!(matches!(error, Error::NoBatch { .. }), "{error:?}");
            assert_eq!(error.to_string(), said);
        }
    })
    .await;
}

#[tokio::test]
async fn a_mistake_in_one_job_keeps_the_whole_batch_from_being() {
    with_database(async |db| {
        let client = client(db);
        let good = || NewJob::new(&Do::new("a", What::Succeed));
        let batch = client.batch().on_finish(named("a"));
        let error = batch
            .jobs([good(), good().max_attempts(0)])
            .await
            .unwrap_err();
        assert!(matches!(error, Error::AttemptsOutOfRange { .. }), "{error}");
        let error = client.batch().on_finish(named("\0")).open().await;
        let error = error.unwrap_err();
        assert!(matches!(error, Error::NotStorable { .. }), "{error}");
        let batches: i64 = sqlx::query_scalar("select count(*) from pipeline.batch_sets")
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!((batches, count(db, "do").await), (0, 0));
    })
    .await;
}

#[tokio::test]
async fn a_job_that_another_has_by_its_key_is_not_one_of_the_batchs() {
    with_database(async |db| {
        let keyed = || NewJob::new(&Do::new("a", What::Succeed)).key("k");
        let first = client(db).enqueue(keyed()).await.unwrap();
        let batch = client(db).batch().open().await.unwrap();
        let added = batch.add([keyed(), keyed()]).await.unwrap();
        assert!(added.iter().all(|job| job.id == first.id && !job.is_new()));
        assert_eq!(batch.state().await.unwrap().total, 0);
        batch.seal().await.unwrap();
        assert!(is_finished(&batch).await);
    })
    .await;
}

#[tokio::test]
async fn a_retried_job_of_a_finished_batch_does_not_finish_it_again() {
    with_database(async |db| {
        let log = Log::default();
        let worker = worker(db, &log, 4);
        let batch = client(db).batch().on_finish(named("a")).open().await;
        let batch = batch.unwrap();
        let job = batch.add(jobs(1, What::Fail)).await.unwrap()[0].id;
        batch.seal().await.unwrap();
        until(async || said(&log) == ["a finished: 1 of 1 failed"]).await;
        let before = batch.state().await.unwrap();

        client(db).job(job).retry().await.unwrap();
        let job = ended(db, job).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Failed, 3));
        worker.stop().await;
        assert_eq!(batch.state().await.unwrap(), before);
        assert_eq!(callbacks(&client(db)).await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_retried_job_of_an_unfinished_batch_counts_when_it_ends_again() {
    with_database(async |db| {
        let log = Log::default();
        let worker = worker(db, &log, 4);
        let batch = client(db).batch().on_finish(named("a")).open().await;
        let batch = batch.unwrap();
        let job = batch.add(jobs(1, What::FailTimes(3))).await.unwrap()[0].id;
        assert_eq!(ended(db, job).await.status, JobStatus::Failed);
        let state = batch.state().await.unwrap();
        assert_eq!((state.ended, state.failed), (1, 1));

        sqlx::query(
            "update pipeline.jobs set args = jsonb_set(args::jsonb, '{what}', '\"Succeed\"')",
        )
        .execute(db.pool())
        .await
        .unwrap();
        client(db).job(job).retry().await.unwrap();
        assert_eq!(ended(db, job).await.status, JobStatus::Succeeded);
        batch.seal().await.unwrap();
        until(async || said(&log) == ["a finished: 0 of 1 failed"]).await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn discarding_the_last_waiting_job_finishes_its_batch() {
    with_database(async |db| {
        let log = Log::default();
        let worker = worker(db, &log, 4);
        let batch = client(db).batch().on_finish(named("a")).open().await;
        let batch = batch.unwrap();
        let waits = NewJob::new(&Do::new("a", What::Succeed)).delay(Duration::from_secs(3600));
        let job = batch.add([waits]).await.unwrap()[0].id;
        batch.seal().await.unwrap();
        client(db).job(job).delete().await.unwrap();
        assert!(is_finished(&batch).await);
        until(async || said(&log) == ["a finished: 1 of 1 failed"]).await;
        worker.stop().await;
    })
    .await;
}

/// Four batches of 50 jobs each lie in the queue in turns, three workers end them at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_of_many_batches_finishes_exactly_once_under_many_workers() {
    with_database(async |db| {
        let log = Log::default();
        let mut batches = Vec::new();
        for name in ["a", "b", "c", "d"] {
            let batch = client(db).batch().on_finish(named(name)).open().await;
            batches.push(batch.unwrap());
        }
        let workers = [(); 3].map(|()| worker(db, &log, 64));
        for _ in 0..5 {
            for batch in &batches {
                batch.add(jobs(9, What::Succeed)).await.unwrap();
                batch.add(jobs(1, What::Fail)).await.unwrap();
            }
        }
        // Sealed from two sides at once, while jobs end.
        let seal = |batch: &Batch| {
            let batch = batch.clone();
            tokio::spawn(async move { batch.seal().await })
        };
        let seals: Vec<_> = batches.iter().chain(&batches).map(seal).collect();
        for seal in seals {
            seal.await.unwrap().unwrap();
        }
        let each = ["a", "b", "c", "d"].map(|name| format!("{name} finished: 5 of 50 failed"));
        until(async || said(&log).len() >= 4).await;
        for worker in workers {
            worker.stop().await;
        }
        assert_eq!(said(&log), each);
        assert_eq!(callbacks(&client(db)).await, 4);
        for batch in batches {
            let state = batch.state().await.unwrap();
            assert_eq!((state.total, state.ended, state.failed), (50, 50, 5));
        }
    })
    .await;
}

/// A process has ended some of the jobs, runs others, and is killed.
#[tokio::test]
async fn a_batch_outlives_the_process_that_ran_its_jobs() {
    with_database(async |db| {
        let items = (0..40).map(|n| Item { held: n % 4 == 0 });
        let batch = client(db).batch().on_finish(named("a")).jobs(items).await;
        let batch = batch.unwrap();
        let holding = Staying::spawn(&["hold", db.url()]);
        until(async || batch.state().await.unwrap().ended == 30).await;
        holding.kill();
        assert!(!is_finished(&batch).await);

        let log = Log::default();
        let worker = worker(db, &log, 4);
        // Beyond the lease.
        db.move_clock(Duration::from_secs(6)).await;
        until(async || said(&log) == ["a finished: 0 of 40 failed"]).await;
        worker.stop().await;
        assert_eq!(callbacks(&client(db)).await, 1);
        let lost: i64 = sqlx::query_scalar(
            "select count(distinct job) from pipeline.attempts where error_class = 'WorkerDied'",
        )
        .fetch_one(db.pool())
        .await
        .unwrap();
        assert_eq!(lost, 10);
    })
    .await;
}
