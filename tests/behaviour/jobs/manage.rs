//! Looking after jobs: those that failed for good are kept, listed, retried, discarded; those that
//! succeeded are deleted with their end; queues are paused and resumed; workers say what they do.

use std::time::Duration;

use jobs::{Error, JobFilter, JobStatus, NewJob};
use tests::{Database, with_database};

use super::support::{Do, Log, Running, What, ask, client, count, ended, eventually, until};

fn worker(db: &Database) -> Running {
    Running::start(db, |worker| {
        worker
            .queue("default", 4)
            .queue("other", 4)
            .poll(Duration::from_millis(20))
    })
}

fn new(name: &str) -> NewJob {
    NewJob::new(&Do::new(name, What::Succeed))
}

async fn ids(db: &Database, filter: JobFilter) -> Vec<jobs::JobId> {
    let jobs = client(db).jobs(&filter).await.unwrap();
    jobs.items.iter().map(|job| job.id).collect()
}

#[tokio::test]
async fn jobs_that_failed_for_good_are_kept_and_listed() {
    with_database(async |db| {
        let worker = worker(db);
        let client = client(db);
        let failed = client.enqueue(Do::new("f", What::Fail)).await.unwrap();
        let discarded = client.enqueue(Do::new("d", What::Discard)).await.unwrap();
        client.enqueue(Do::new("s", What::Succeed)).await.unwrap();
        ended(db, failed.id).await;
        ended(db, discarded.id).await;
        worker.stop().await;
        let with = |status| JobFilter::new().status(status);
        assert_eq!(ids(db, with(JobStatus::Failed)).await, [failed.id]);
        assert_eq!(ids(db, with(JobStatus::Discarded)).await, [discarded.id]);
        let job = client.job(failed.id).info().await.unwrap().unwrap();
        assert_eq!(
            (job.job_type.as_str(), job.queue.as_str()),
            ("do", "default")
        );
        assert_eq!((job.attempt, job.max_attempts), (3, 3));
        assert_eq!(job.error_message.as_deref(), Some("told to fail"));
        assert!(job.ended_at.is_some());
    })
    .await;
}

#[tokio::test]
async fn a_failed_job_that_is_retried_has_its_attempts_again() {
    with_database(async |db| {
        let worker = worker(db);
        let client = client(db);
        for what in [What::Fail, What::Discard] {
            let job = client.enqueue(Do::new("a", what)).await.unwrap().id;
            let first = ended(db, job).await;
            client.job(job).retry().await.unwrap();
            until(async || {
                client.job(job).attempts().await.unwrap().len() == 2 * first.attempt as usize
            })
            .await;
            let again = ended(db, job).await;
            assert_eq!((again.status, again.attempt), (first.status, first.attempt));
        }
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn only_a_job_that_failed_can_be_retried() {
    with_database(async |db| {
        let client = client(db);
        let job = client.enqueue(new("a").queue("nowhere")).await.unwrap().id;
        let error = client.job(job).retry().await.unwrap_err();
        assert!(matches!(error, Error::WrongStatus { id, .. } if id == job));
        assert_eq!(
            error.to_string(),
            format!("job {job} is ready: only a failed or discarded job can be retried")
        );
        let error = client.job(4711.into()).retry().await.unwrap_err();
        assert!(matches!(
            error,
            Error::NoJob { id } if id.get() == 4711
        ));
        assert_eq!(
            error.to_string(),
            "there is no job 4711 in this database: its transaction has not committed, or was rolled back; or the job \
             succeeded or was deleted, and its row with it; `Worker::keep_succeeded` keeps succeeded jobs"
        );
    })
    .await;
}

#[tokio::test]
async fn a_job_whose_key_is_another_live_ones_is_not_retried() {
    with_database(async |db| {
        let client = client(db);
        let keyed = |what| NewJob::new(&Do::new("a", what)).key("k");
        let failed = client.enqueue(keyed(What::Discard)).await.unwrap().id;
        let worker = worker(db);
        ended(db, failed).await;
        worker.stop().await;
        let live = client.enqueue(keyed(What::Succeed)).await.unwrap();
        assert!(live.is_new());
        let error = client.job(failed).retry().await.unwrap_err();
        assert!(matches!(error, Error::KeyTaken { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            format!(
                "job {failed} cannot be retried: its key `k` is held by job {0}; wait until job {0} \
                 has ended, or delete one of the two",
                live.id
            )
        );
        client.job(live.id).delete().await.unwrap();
        client.job(failed).retry().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_retry_waits_for_a_transaction_that_takes_the_key_and_names_the_job_that_got_it() {
    with_database(async |db| {
        let client = client(db);
        let keyed = |what| NewJob::new(&Do::new("a", what)).key("k");
        let failed = client.enqueue(keyed(What::Discard)).await.unwrap().id;
        let worker = worker(db);
        ended(db, failed).await;
        worker.stop().await;
        let mut tx = db.pool().begin().await.unwrap();
        let live = client.enqueue_in(&mut tx, keyed(What::Succeed)).await;
        let live = live.unwrap().id;
        let retry = tokio::spawn({
            let client = client.clone();
            async move { client.job(failed).retry().await }
        });
        until(async || {
            ask::<bool>(
                db,
                "select exists (select from pg_stat_activity where wait_event_type = 'Lock'
                 and datname = current_database())",
            )
            .await
        })
        .await;
        tx.commit().await.unwrap();
        let error = retry.await.unwrap().unwrap_err();
        assert!(
            matches!(&error, Error::KeyTaken { id, key, by } if (*id, key.as_str(), *by) == (failed, "k", live)),
            "{error}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_job_is_deleted_before_or_after_it_runs_but_not_meanwhile() {
    with_database(async |db| {
        let client = client(db);
        let until_asked = Do::new("r", What::UntilAsked);
        let running = client.enqueue(until_asked).await.unwrap().id;
        let ready = client.enqueue(new("a").queue("nowhere")).await.unwrap().id;
        let later = new("b").delay(Duration::from_secs(60));
        let later = client.enqueue(later).await.unwrap().id;
        let failed = client
            .enqueue(Do::new("f", What::Discard))
            .await
            .unwrap()
            .id;
        let worker = worker(db);
        ended(db, failed).await;
        let status = async || client.job(running).info().await.unwrap().unwrap().status;
        until(async || status().await == JobStatus::Running).await;
        for job in [ready, later, failed] {
            client.job(job).delete().await.unwrap();
            assert!(client.job(job).info().await.unwrap().is_none());
        }
        let error = client.job(running).delete().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("job {running} is running: only a waiting or ended job can be deleted")
        );
        let error = client.job(failed).delete().await.unwrap_err();
        assert!(matches!(error, Error::NoJob { .. }), "{error}");
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn jobs_that_succeeded_are_deleted_with_their_end_unless_they_are_to_be_kept() {
    with_database(async |db| {
        let client = client(db);
        let kept = client.enqueue(new("kept")).await.unwrap().id;
        let keeps = worker(db);
        assert_eq!(ended(db, kept).await.status, JobStatus::Succeeded);
        keeps.stop().await;

        // It fails once, and takes the record of that along when it goes.
        client
            .enqueue(Do::new("gone", What::FailTimes(1)))
            .await
            .unwrap();
        let log = Log::default();
        let deletes = Running::start(db, |worker| {
            worker
                .queue("default", 1)
                .keep_succeeded(false)
                .data(log.clone())
        });
        until(async || count(db, "do").await == 1).await;
        assert_eq!(log.lines(), ["gone 1", "gone 2"]);
        deletes.stop().await;
        let attempts: i64 = sqlx::query_scalar("select count(*) from pipeline.attempts")
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(attempts, 0);
        assert!(client.job(kept).info().await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn a_paused_queue_is_not_claimed_from_until_it_is_resumed() {
    with_database(async |db| {
        let client = client(db);
        client.pause("default").await.unwrap();
        client.pause("default").await.unwrap();
        let waits = client.enqueue(new("a")).await.unwrap().id;
        let worker = worker(db);
        let runs = client.enqueue(new("b").queue("other")).await.unwrap().id;
        ended(db, runs).await;
        assert_eq!(worker.log.lines(), ["b 1"]);
        client.resume("default").await.unwrap();
        ended(db, waits).await;
        client.resume("never-paused").await.unwrap();
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn what_runs_when_its_queue_is_paused_runs_on() {
    with_database(async |db| {
        let client = client(db);
        let worker = worker(db);
        let short = Do::new("a", What::SnoozeTimes(0));
        let job = client
            .enqueue(Do::new("r", What::UntilAsked))
            .await
            .unwrap();
        until(async || worker.log.lines() == ["r 1"]).await;
        client.pause("default").await.unwrap();
        let waits = client.enqueue(short).await.unwrap();
        let runs = client.enqueue(new("b").queue("other")).await.unwrap();
        ended(db, runs.id).await;
        let status = async |id| client.job(id).info().await.unwrap().unwrap().status;
        assert_eq!(status(job.id).await, JobStatus::Running);
        assert_eq!(status(waits.id).await, JobStatus::Ready);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn pages_of_a_list_follow_one_another_without_gap_or_overlap() {
    with_database(async |db| {
        let all = (0..25).map(|n| new(&n.to_string()).queue(["a", "b"][n % 2]));
        let jobs = client(db).enqueue_many(all).await.unwrap();
        let newest_first: Vec<_> = jobs.iter().rev().map(|job| job.id).collect();
        let mut filter = JobFilter::new().limit(10);
        let mut seen = Vec::new();
        loop {
            let page = client(db).jobs(&filter).await.unwrap();
            seen.extend(page.items.iter().map(|job| job.id));
            let Some(next) = page.next else { break };
            assert_eq!(page.items.len(), 10);
            // What arrives meanwhile does not move the pages.
            client(db).enqueue(new("new")).await.unwrap();
            filter = filter.after(next.to_string().parse().unwrap());
        }
        assert_eq!(seen, newest_first);
        let in_a = ids(db, JobFilter::new().queue("a")).await;
        assert_eq!(in_a.len(), 13);
        let of_kind = JobFilter::new()
            .job_type("do")
            .queue("b")
            .status(JobStatus::Ready);
        assert_eq!(ids(db, of_kind).await.len(), 12);
        assert!(ids(db, JobFilter::new().job_type("other")).await.is_empty());
        // A page has a job at least, as one of runs has a run.
        assert_eq!(ids(db, JobFilter::new().limit(0)).await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_status_that_a_newer_version_wrote_is_no_other() {
    with_database(async |db| {
        let client = client(db);
        let job = client.enqueue(Do::new("a", What::Succeed)).await.unwrap();
        for change in [
            "alter type pipeline.job_status add value 'frozen'",
            "update pipeline.jobs set status = 'frozen'",
        ] {
            sqlx::query(change).execute(db.pool()).await.unwrap();
        }
        let one = client.job(job.id).info().await.unwrap_err().to_string();
        assert!(one.contains("`frozen` is not a status of a job"), "{one}");
        let listed = client.jobs(&JobFilter::new()).await.unwrap_err();
        assert!(listed.to_string().contains("`frozen`"), "{listed}");
        sqlx::query("delete from pipeline.jobs")
            .execute(db.pool())
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn workers_are_listed_with_what_they_serve_know_and_run() {
    with_database(async |db| {
        let client = client(db);
        let worker = Running::start(db, |worker| {
            worker.queue("default", 4).queue("media.*", 2).name("first")
        });
        client
            .enqueue(Do::new("r", What::UntilAsked))
            .await
            .unwrap();
        until(async || worker.log.lines() == ["r 1"]).await;
        let listed = client.workers().await.unwrap();
        assert_eq!(listed.len(), 1);
        let first = &listed[0];
        assert_eq!(first.name, "first");
        assert_eq!(first.pid, std::process::id().cast_signed());
        assert!(!first.host.is_empty());
        assert_eq!(first.job_types, ["do"]);
        let queues = serde_json::json!([
            { "queue": "default", "slots": 4 },
            { "queue": "media.*", "slots": 2 },
        ]);
        assert_eq!(serde_json::json!(first.queues), queues);
        assert_eq!((first.running, first.stopped_at), (1, None));
        worker.stop().await;

        // Two of one name are two.
        let again = Running::start(db, |worker| worker.queue("default", 1).name("first"));
        until(async || client.workers().await.unwrap().len() == 2).await;
        let listed = client.workers().await.unwrap();
        assert!(
            listed[0].started_at >= listed[1].started_at,
            "the newest first"
        );
        assert_eq!(listed[1].running, 0);
        assert!(listed[1].stopped_at.is_some() && listed[0].stopped_at.is_none());
        again.stop().await;
    })
    .await;
}

#[tokio::test]
async fn old_jobs_go_with_what_they_left_behind_and_others_stay() {
    with_database(async |db| {
        let day = Duration::from_secs(86_400);
        let start = || {
            Running::start(db, |worker| {
                worker.queue("default", 4).keep_succeeded(false)
            })
        };
        let worker = start();
        let client = client(db);
        let batch = client.batch().jobs([Do::new("b", What::Discard)]);
        let batch = batch.await.unwrap();
        eventually("the batch is finished", async || {
            batch.state().await.unwrap().finished.then_some(())
        })
        .await;
        let failed = client.enqueue(Do::new("c", What::Discard)).await;
        ended(db, failed.unwrap().id).await;
        eventually("all have ended", async || {
            let live = "select count(*) from pipeline.jobs where ended_at is null";
            (ask::<i64>(db, live).await == 0).then_some(())
        })
        .await;
        worker.stop().await;
        db.move_clock(40 * day).await;
        let worker = start();
        let recent = client.enqueue(Do::new("d", What::Discard)).await;
        let recent = recent.unwrap().id;
        ended(db, recent).await;
        worker.stop().await;
        let later = NewJob::new(&Do::new("e", What::Succeed)).queue("nobody");
        let later = client.enqueue(later).await.unwrap().id;
        db.move_clock(20 * day).await;

        assert_eq!(client.prune_jobs(365 * day).await.unwrap(), 0);
        assert_eq!(client.prune_jobs(30 * day).await.unwrap(), 2);
        let left: Vec<jobs::JobId> =
            ask(db, "select array_agg(id order by id) from pipeline.jobs").await;
        assert_eq!(left, [recent, later]);
        let attempts = "select array_agg(distinct job) from pipeline.attempts";
        assert_eq!(ask::<Vec<jobs::JobId>>(db, attempts).await, [recent]);
        let batches = "select count(*) from pipeline.batch_sets";
        assert_eq!(ask::<i64>(db, batches).await, 0);
        assert_eq!(client.prune_jobs(Duration::MAX).await.unwrap(), 0);
    })
    .await;
}
