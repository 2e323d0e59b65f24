//! The engine's own tasks: what ends a worker, what a stop waits for, how connections are opened, and which
//! slots a queue has.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::testing::{Moment, Probe};
use jobs::{Context, Error, Job, JobError, JobStatus, NewJob, Perform, Worker};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use tests::with_database;

use super::support::{Do, Running, What, ask, client, ended, eventually, job};
use crate::logged::Captured;

#[derive(Debug)]
struct PanicAt(Moment);

impl Probe for PanicAt {
    fn at(&self, moment: Moment, _: usize) -> BoxFuture<'_, ()> {
        assert_ne!(moment, self.0, "the engine's task panics here");
        Box::pin(async {})
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_task_of_the_engine_ends_the_worker_with_an_error() {
    with_database(async |db| {
        let probe = Arc::new(PanicAt(Moment::BeforeCommit));
        let worker = Worker::new(db.pool().clone())
            .register::<Do>()
            .data(super::support::Log::default())
            .name("fragile")
            .queue("default", 1)
            .probe(probe);
        let new = NewJob::new(&Do::new("a", What::Succeed)).lease(Duration::from_secs(1));
        let id = client(db).enqueue(new).await.unwrap().id;
        let ended_with = worker.run().await;
        match &ended_with {
            Err(Error::EngineTaskFailed { worker, task }) => {
                assert_eq!((worker.as_str(), *task), ("fragile", "commit"));
            }
            other => panic!("{other:?}"),
        }
        let other = Running::start(db, |worker| worker.queue("default", 1));
        assert_eq!(ended(db, id).await.attempt, 2, "taken over");
        other.stop().await;
    })
    .await;
}

/// Blocks its thread until the test lets it go.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(max_attempts = 1)]
struct Block;

struct Blocker {
    begun: Sender<()>,
    go: Mutex<Receiver<()>>,
}

impl Perform for Block {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        let blocker = cx.data::<Blocker>()?;
        blocker.begun.send(())?;
        blocker.go.lock().recv()?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_that_blocks_its_thread_cannot_hold_a_stop() {
    with_database(async |db| {
        let (begun, has_begun) = channel();
        let (let_go, go) = channel();
        let blocker = Blocker {
            begun,
            go: Mutex::new(go),
        };
        let worker = Running::start(db, |worker| {
            worker
                .register::<Block>()
                .data(blocker)
                .queue("default", 1)
                .grace(Duration::ZERO)
        });
        let id = client(db).enqueue(Block).await.unwrap().id;
        tokio::task::spawn_blocking(move || has_begun.recv())
            .await
            .unwrap()
            .unwrap();
        worker.stop().await;
        let job = job(db, id).await;
        assert_eq!(
            (job.status, job.attempt),
            (JobStatus::Ready, 0),
            "handed back at no cost"
        );
        let_go.send(()).unwrap();
    })
    .await;
}

/// On one thread: the test's own.
#[tokio::test]
async fn a_job_that_blocks_its_thread_is_named() {
    Captured::begin();
    with_database(async |db| {
        let (begun, has_begun) = channel();
        let (let_go, go) = channel();
        let blocker = Blocker {
            begun,
            go: Mutex::new(go),
        };
        let worker = Running::start(db, |worker| {
            worker.register::<Block>().data(blocker).queue("default", 1)
        });
        // The job blocks the runtime's only thread for longer than a poll may take.
        std::thread::spawn(move || {
            has_begun.recv().unwrap();
            std::thread::sleep(Duration::from_millis(1_500));
            let_go.send(())
        });
        let id = client(db).enqueue(Block).await.unwrap().id;
        ended(db, id).await;
        worker.stop().await;
        let log = Captured::text();
        let line = log
            .lines()
            .find(|line| line.contains("blocked a thread of the runtime"));
        let line = line.unwrap_or_else(|| panic!("{log}"));
        assert!(
            line.contains(&format!("job.id={id}")) && line.contains("block"),
            "{line}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_opened_with_the_credentials_of_the_moment() {
    with_database(async |db| {
        let name = format!("rotated_{}", db.name());
        let role = sqlx::AssertSqlSafe(format!("create role {name} login superuser"));
        sqlx::raw_sql(role).execute(db.pool()).await.unwrap();
        let options = sqlx::postgres::PgConnectOptions::clone(&db.pool().connect_options());
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .connect_with(options.clone())
            .await
            .unwrap();
        let worker = Running::start_with(db, pool.clone(), |worker| worker.queue("default", 1));
        let first = client(db)
            .enqueue(Do::new("a", What::Succeed))
            .await
            .unwrap()
            .id;
        ended(db, first).await;
        pool.set_connect_options(options.username(&name));
        let sessions =
            "select count(*) from pg_stat_activity where application_name like 'pipeline %'
                        and datname = current_database() and usename = session_user";
        sqlx::raw_sql(
            "select pg_terminate_backend(pid) from pg_stat_activity
             where application_name like 'pipeline %' and datname = current_database()",
        )
        .execute(db.pool())
        .await
        .unwrap();
        eventually("no session has the old credentials", async || {
            (ask::<i64>(db, sessions).await == 0).then_some(())
        })
        .await;
        let second = client(db)
            .enqueue(Do::new("b", What::Succeed))
            .await
            .unwrap()
            .id;
        assert_eq!(ended(db, second).await.status, JobStatus::Succeeded);
        assert_eq!(ask::<i64>(db, sessions).await, 0);
        worker.stop().await;
        pool.close().await;
        let role = sqlx::AssertSqlSafe(format!("drop role {name}"));
        sqlx::raw_sql(role).execute(db.pool()).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_has_the_slots_of_its_most_specific_pattern_and_no_others() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("payments", 2).queue("*", 8));
        let payment = |n| NewJob::new(&Do::new(&format!("p{n}"), What::AtGate)).queue("payments");
        client(db).enqueue_many((0..5).map(payment)).await.unwrap();
        let other = |n| NewJob::new(&Do::new(&format!("o{n}"), What::AtGate)).queue("other");
        client(db).enqueue_many((0..8).map(other)).await.unwrap();
        let begun = |kind: char| {
            let lines = worker.log.lines();
            lines
                .iter()
                .filter(|line| line.starts_with(kind) && line.ends_with(" 1"))
                .count()
        };
        eventually("all slots are taken", async || {
            (begun('o') == 8 && begun('p') >= 2).then_some(())
        })
        .await;
        let running: i64 = ask(
            db,
            "select count(*) from pipeline.jobs where queue = 'payments' and status = 'running'",
        )
        .await;
        assert_eq!((running, begun('p')), (2, 2));
        worker.gate.let_through(13);
        super::support::all_ended(db, 13).await;
        worker.stop().await;
    })
    .await;
}

/// The first version of a job's data.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(name = "versioned")]
struct First {
    a: u8,
}

/// The second, which has a field more.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(name = "versioned", version = 2)]
struct Second {
    a: u8,
    b: u8,
}

impl Perform for First {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        cx.data::<super::support::Log>()?
            .write(format!("first {}", self.a));
        Ok(())
    }
}

impl Perform for Second {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        let line = format!("second {} {}", self.a, self.b);
        cx.data::<super::support::Log>()?.write(line);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_a_newer_version_is_left_to_a_worker_that_knows_it() {
    with_database(async |db| {
        let old = Running::start(db, |worker| worker.register::<First>().queue("default", 1));
        let id = client(db).enqueue(Second { a: 1, b: 2 }).await.unwrap().id;
        eventually("the old worker puts it back", async || {
            let since = "select unknown_since is not null and attempt = 0 from pipeline.jobs
                         where status <> 'running'";
            sqlx::query_scalar::<_, bool>(since)
                .fetch_optional(db.pool())
                .await
                .unwrap()
                .unwrap_or(false)
                .then_some(())
        })
        .await;
        // An older version is no obstacle.
        let older = client(db).enqueue(First { a: 7 }).await.unwrap().id;
        ended(db, older).await;
        assert_eq!(old.log.lines(), ["first 7"]);
        let new = Running::start(db, |worker| worker.register::<Second>().queue("default", 1));
        let job = ended(db, id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
        assert_eq!(new.log.lines(), ["second 1 2"]);
        assert_eq!(old.log.lines(), ["first 7"]);
        old.stop().await;
        new.stop().await;
    })
    .await;
}

/// The clock of the server jumps forward by more than a lease while a job runs: nobody takes it over.
#[tokio::test(flavor = "multi_thread")]
async fn a_jump_of_the_clock_fails_no_running_job() {
    with_database(async |db| {
        let workers = [
            Running::start(db, |worker| worker.queue("default", 1)),
            Running::start(db, |worker| worker.queue("default", 1)),
        ];
        // Both have ticked by the time they are seen after the first move.
        let seen = async |what: &str| {
            eventually(what, async || {
                let seen = "select count(*) = 2 from pipeline.workers
                            where seen_at > pipeline.now() - interval '5 s'";
                ask::<bool>(db, seen).await.then_some(())
            })
            .await;
        };
        seen("both have registered").await;
        db.move_clock(Duration::from_secs(60)).await;
        seen("both have ticked").await;
        let new = NewJob::new(&Do::new("a", What::AtGate)).max_attempts(1);
        let id = client(db).enqueue(new).await.unwrap().id;
        eventually("it runs", async || {
            workers
                .iter()
                .any(|it| it.log.lines() == ["a 1"])
                .then_some(())
        })
        .await;
        db.move_clock_without_leases(Duration::from_secs(3_600))
            .await;
        seen("both have ticked after the jump").await;
        assert_eq!(job(db, id).await.status, JobStatus::Running);
        workers.iter().for_each(|worker| worker.gate.let_through(1));
        let job = ended(db, id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 1));
        for worker in workers {
            worker.stop().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_queue_that_is_named_twice_is_an_error() {
    with_database(async |db| {
        let worker = Worker::new(db.pool().clone())
            .register::<Do>()
            .queue("payments", 2)
            .queue("payments", 8);
        let error = worker.run().await.unwrap_err();
        assert!(matches!(&error, Error::DuplicateQueue { queue } if queue == "payments"));
        assert!(error.to_string().contains("once"), "{error}");
    })
    .await;
}
