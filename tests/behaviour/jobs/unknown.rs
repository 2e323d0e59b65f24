//! Rule 25: a job whose type no worker here knows.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use jobs::{Context, Job, JobError, JobStatus, NewJob, Perform};
use serde::{Deserialize, Serialize};
use tests::{Database, Errand, with_database};

use super::support::{Running, ask, client, ended, errands, eventually, job, when};
use crate::logged::Captured;

/// A worker that does not know the job which it has taken and put back.
async fn put_back(db: &Database) -> (Running, jobs::JobId) {
    let worker = Running::start(db, |worker| worker.queue("default", 1));
    let id = client(db).enqueue(Errand::new("a")).await.unwrap().id;
    when(db, id, |job| job.status == JobStatus::Scheduled).await;
    (worker, id)
}

/// How long after it was first not known it will be asked about again.
async fn due_after(db: &Database) -> TimeDelta {
    let (since, due): (DateTime<Utc>, DateTime<Utc>) =
        sqlx::query_as("select unknown_since, run_at from pipeline.jobs")
            .fetch_one(db.pool())
            .await
            .unwrap();
    due - since
}

/// Lets time pass until the job has been asked about again.
async fn ask_again_after(db: &Database, id: jobs::JobId, time: Duration) {
    let before = job(db, id).await.run_at;
    db.move_clock(time).await;
    when(db, id, |job| {
        job.run_at > before && job.status == JobStatus::Scheduled
    })
    .await;
}

#[tokio::test]
async fn an_unknown_type_costs_no_attempt_and_is_asked_about_ever_more_rarely() {
    with_database(async |db| {
        let (worker, id) = put_back(db).await;
        // Half as long as it has been unknown already; at least this, and at most half a minute.
        assert!(due_after(db).await >= TimeDelta::milliseconds(250));
        for (passed, least) in [(10, 15), (60, 100)] {
            ask_again_after(db, id, Duration::from_secs(passed)).await;
            let due = due_after(db).await;
            assert!(due >= TimeDelta::seconds(least), "due after {due}");
        }
        let job = job(db, id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Scheduled, 0));
        assert!(client(db).job(id).attempts().await.unwrap().is_empty());
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_knows_the_type_takes_it_up_as_the_first_attempt() {
    with_database(async |db| {
        Errand::prepare(db.pool()).await;
        Errand::let_go(db.pool(), "a").await;
        let (worker, id) = put_back(db).await;
        worker.stop().await;
        let worker = Running::start(db, |worker| errands(db, worker));
        db.move_clock(Duration::from_secs(60)).await;
        let job = ended(db, id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_type_that_no_live_worker_has_known_for_long_has_no_handler() {
    with_database(async |db| {
        let (worker, id) = put_back(db).await;
        ask_again_after(db, id, Duration::from_secs(590)).await;
        db.move_clock(Duration::from_secs(60)).await;
        let job = ended(db, id).await;
        assert_eq!(job.status, JobStatus::Failed);
        assert_eq!(job.error_class.as_deref(), Some("NoHandler"));
        let said = job.error_message.unwrap();
        assert!(
            said.contains("`errand`") && said.contains("register it"),
            "{said}"
        );

        // It can be given to one that knows it.
        client(db).job(id).retry().await.unwrap();
        when(db, id, |job| job.status == JobStatus::Scheduled).await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_type_that_a_live_worker_knows_waits_for_it_as_long_as_it_lives() {
    with_database(async |db| {
        let elsewhere = Running::start(db, |worker| {
            worker.register::<Errand>().queue("elsewhere", 1)
        });
        let (worker, id) = put_back(db).await;
        for _ in 0..15 {
            ask_again_after(db, id, Duration::from_secs(60)).await;
            eventually("the one that knows it gives a sign of life", async || {
                let alive = "select seen_at > pipeline.now() - interval '30 s'
                             from pipeline.workers where 'errand' = any (job_types)";
                ask::<bool>(db, alive).await.then_some(())
            })
            .await;
        }
        let waiting = job(db, id).await;
        assert_eq!((waiting.status, waiting.attempt), (JobStatus::Scheduled, 0));

        elsewhere.stop().await;
        db.move_clock(Duration::from_secs(660)).await;
        let job = ended(db, id).await;
        assert_eq!(job.error_class.as_deref(), Some("NoHandler"));
        worker.stop().await;
    })
    .await;
}

/// Registered with no worker.
#[derive(Serialize, Deserialize, Job)]
struct Stranger;

impl Perform for Stranger {
    type Input = ();
    type Output = ();
    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

/// On one thread: the test's own.
#[tokio::test]
async fn who_enqueues_what_nobody_knows_is_warned_soon_and_once() {
    Captured::begin();
    with_database(async |db| {
        Errand::prepare(db.pool()).await;
        Errand::let_go(db.pool(), "a").await;
        let worker = Running::start(db, |worker| errands(db, worker));
        let client = client(db);
        let warned = |kind: &str| {
            let kind = format!("job.type=\"{kind}\"");
            let of_it = |line: &&str| line.contains("no live worker knows") && line.contains(&kind);
            Captured::so_far().lines().filter(of_it).count()
        };
        client.enqueue(Errand::new("a")).await.unwrap();
        client.enqueue(Stranger).await.unwrap();
        eventually("a warning", async || {
            (warned("stranger") == 1).then_some(())
        })
        .await;
        client.enqueue(Stranger).await.unwrap();

        // One that is gone knows nothing any more; and who is in a transaction is told, too.
        worker.stop().await;
        let other = super::support::client(db);
        let mut tx = db.pool().begin().await.unwrap();
        other.enqueue_in(&mut tx, Errand::new("d")).await.unwrap();
        tx.commit().await.unwrap();
        eventually("a warning", async || (warned("errand") == 1).then_some(())).await;
        assert_eq!((warned("stranger"), warned("errand")), (1, 1));

        // Known, but in a queue that nobody serves.
        let worker = Running::start(db, |worker| {
            worker.register::<Errand>().queue("default*", 1)
        });
        let served = NewJob::new(&Errand::new("e")).queue("default.hd");
        let unserved = NewJob::new(&Errand::new("f")).queue("elsewhere");
        client.enqueue_many([served, unserved]).await.unwrap();
        let in_vain = || {
            let log = Captured::so_far();
            let lines = log.lines().filter(|line| line.contains("serves its queue"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        eventually("a warning", async || (!in_vain().is_empty()).then_some(())).await;
        let in_vain = in_vain();
        assert!(
            in_vain.len() == 1 && in_vain[0].contains("job.queue=\"elsewhere\""),
            "{in_vain:?}"
        );
        worker.stop().await;
        Captured::text();
    })
    .await;
}

/// The first and the second version of one job type.
mod versions {
    use super::{Context, Deserialize, Job, JobError, Perform, Serialize};

    #[derive(Serialize, Deserialize, Job)]
    #[job(name = "versioned")]
    pub(super) struct First;

    #[derive(Serialize, Deserialize, Job)]
    #[job(name = "versioned", version = 2)]
    pub(super) struct Second;

    impl Perform for First {
        type Input = ();
        type Output = ();
        async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
            Ok(())
        }
    }

    impl Perform for Second {
        type Input = ();
        type Output = ();
        async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
            Ok(())
        }
    }
}

/// On one thread: the test's own.
#[tokio::test]
async fn who_enqueues_a_version_that_is_newer_than_all_live_workers_is_warned() {
    Captured::begin();
    with_database(async |db| {
        let worker = Running::start(db, |worker| {
            worker.register::<versions::First>().queue("default", 1)
        });
        let client = client(db);
        let first = client.enqueue(versions::First).await.unwrap().id;
        ended(db, first).await;
        let id = client.enqueue(versions::Second).await.unwrap().id;
        let line = eventually("a warning", async || {
            let log = Captured::so_far();
            let of_it = |line: &&str| line.contains("know only older versions");
            log.lines().find(of_it).map(str::to_owned)
        })
        .await;
        assert!(
            line.contains("job.type=\"versioned\"") && line.contains("job.version=2"),
            "{line}"
        );
        assert_eq!(job(db, id).await.attempt, 0);
        worker.stop().await;
    })
    .await;
    Captured::text();
}
