//! Workers: queues with slots of their own, by name or by prefix; some job types only; beside stock
//! apalis workers, and under layers of the application's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use apalis::prelude::WorkerBuilderExt as _;
use apalis_core::backend::TaskSink as _;
use apalis_core::backend::memory::MemoryStorage;
use apalis_core::layers::{Layer, Service};
use apalis_core::monitor::Monitor;
use apalis_core::task::Task;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::ext::event_listener::EventListenerExt as _;
use jobs::{Context, Envelope, Job, JobError, JobStatus, NewJob, Perform, Worker};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tests::{Database, with_database};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::support::{Do, Log, Running, What, client, count, ended, until, when};

fn new(name: &str) -> NewJob {
    NewJob::new(&Do::new(name, What::Succeed))
}

/// Says when it has begun, and ends when it is let.
#[derive(Serialize, Deserialize, Job)]
struct Gated;

struct Gate {
    open: Semaphore,
    begun: AtomicUsize,
}

impl Gate {
    fn shut() -> Arc<Self> {
        Arc::new(Self {
            open: Semaphore::new(0),
            begun: AtomicUsize::new(0),
        })
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::Acquire)
    }
}

impl Perform for Gated {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        let gate = cx.data::<Arc<Gate>>()?;
        cx.data::<Log>()?.write(cx.queue());
        gate.begun.fetch_add(1, Ordering::AcqRel);
        gate.open.acquire().await?.forget();
        Ok(())
    }
}

#[tokio::test]
async fn each_queue_has_slots_of_its_own() {
    with_database(async |db| {
        let gate = Gate::shut();
        let jobs = |queue: &'static str| (0..10).map(move |_| NewJob::new(&Gated).queue(queue));
        let all = jobs("narrow").chain(jobs("wide"));
        client(db).enqueue_many(all).await.unwrap();
        let worker = Running::start(db, |worker| {
            worker
                .register::<Gated>()
                .data(Arc::clone(&gate))
                .queue("narrow", 2)
                .queue("wide", 5)
        });
        until(async || gate.begun() == 7).await;
        let of = |queue: &str| {
            worker
                .log
                .lines()
                .iter()
                .filter(|line| *line == queue)
                .count()
        };
        assert_eq!((of("narrow"), of("wide")), (2, 5));
        let running: i64 =
            sqlx::query_scalar("select count(*) from pipeline.jobs where status = 'running'")
                .fetch_one(db.pool())
                .await
                .unwrap();
        assert_eq!(running, 7, "nothing is claimed beyond the free slots");
        gate.open.add_permits(20);
        until(async || gate.begun() == 20).await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_prefix_serves_all_queues_that_begin_so_and_no_other() {
    with_database(async |db| {
        let client = client(db);
        for queue in [
            "media",
            "media.hd",
            "mediax",
            "media.hd.slow",
            "Media.hd",
            "media.sd",
        ] {
            client.enqueue(new(queue).queue(queue)).await.unwrap();
        }
        let worker = Running::start(db, |worker| {
            worker.queue("media.*", 8).poll(Duration::from_millis(20))
        });
        until(async || worker.log.lines().len() == 3).await;
        // A queue that nobody has heard of before.
        let late = client
            .enqueue(new("late").queue("media.late"))
            .await
            .unwrap();
        ended(db, late.id).await;
        let mut ran = worker.log.lines();
        ran.sort();
        assert_eq!(
            ran,
            ["late 1", "media.hd 1", "media.hd.slow 1", "media.sd 1"]
        );
        worker.stop().await;
        let everything = Running::start(db, |worker| worker.queue("*", 8));
        until(async || everything.log.lines().len() == 3).await;
        everything.stop().await;
        // The names that begin so lie side by side in any database, also in one whose own collation
        // would put `Media.hd` between them.
        let collation: String = sqlx::query_scalar(
            "select collation_name::text from information_schema.columns
             where table_schema = 'pipeline' and table_name = 'jobs' and column_name = 'queue'",
        )
        .fetch_one(db.pool())
        .await
        .unwrap();
        assert_eq!(collation, "C");
    })
    .await;
}

#[tokio::test]
async fn priority_counts_across_the_queues_of_a_prefix() {
    with_database(async |db| {
        let of = |queue: &str, priority: i16| {
            new(&format!("{queue}{priority}"))
                .queue(format!("m.{queue}"))
                .priority(priority)
        };
        let all = [
            of("a", 0),
            of("a", 9),
            of("a", 6),
            of("b", 7),
            of("c", 8),
            of("c", -1),
        ];
        client(db).enqueue_many(all).await.unwrap();
        let worker = Running::start(db, |worker| worker.queue("m.*", 1));
        until(async || worker.log.lines().len() == 6).await;
        let order = ["a9 1", "c8 1", "b7 1", "a6 1", "a0 1", "c-1 1"];
        assert_eq!(worker.log.lines(), order);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn one_claim_for_many_slots_takes_the_highest_of_all_its_queues() {
    with_database(async |db| {
        let of = |queue: &str, priority: i16| {
            let queue = format!("m.{queue}");
            NewJob::new(&Gated).queue(queue).priority(priority)
        };
        let all = [
            of("a", 9),
            of("a", 1),
            of("a", 1),
            of("b", 5),
            of("c", 3),
            of("c", 3),
        ];
        client(db).enqueue_many(all).await.unwrap();
        let gate = Gate::shut();
        let worker = Running::start(db, |worker| {
            let worker = worker.register::<Gated>().data(Arc::clone(&gate));
            worker.queue("m.*", 4)
        });
        until(async || gate.begun() == 4).await;
        let mut queues = worker.log.lines();
        queues.sort();
        assert_eq!(queues, ["m.a", "m.b", "m.c", "m.c"]);
        gate.open.add_permits(6);
        until(async || gate.begun() == 6).await;
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_paused_queue_of_a_prefix_does_not_hold_up_the_others() {
    with_database(async |db| {
        let client = client(db);
        client.pause("media.hd").await.unwrap();
        let waits = client.enqueue(new("hd").queue("media.hd")).await.unwrap();
        let runs = client.enqueue(new("sd").queue("media.sd")).await.unwrap();
        let worker = Running::start(db, |worker| worker.queue("media.*", 1));
        ended(db, runs.id).await;
        assert_eq!(worker.log.lines(), ["sd 1"]);
        client.resume("media.hd").await.unwrap();
        ended(db, waits.id).await;
        worker.stop().await;
    })
    .await;
}

macro_rules! logged {
    ($($type:ident = $name:literal),*) => {$(
        #[derive(Serialize, Deserialize, Job)]
        #[job(name = $name)]
        struct $type;

        impl Perform for $type {
            type Input = ();
            type Output = ();

            async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
                cx.data::<Log>()?.write($name);
                Ok(())
            }
        }
    )*};
}

logged!(
    Invoice = "billing.invoice",
    Dunning = "billing.dunning",
    Billing = "billing_x",
    Mail = "mail"
);

#[tokio::test]
async fn a_worker_may_take_some_job_types_only() {
    with_database(async |db| {
        let client = client(db);
        client
            .enqueue_many([
                NewJob::new(&Mail),
                NewJob::new(&Billing),
                NewJob::new(&Invoice),
                NewJob::new(&Dunning),
            ])
            .await
            .unwrap();
        let start = |only: &[&str]| {
            Running::start(db, |worker| {
                let worker = worker.register::<(Invoice, Dunning, Billing, Mail)>();
                only.iter()
                    .fold(worker.queue("default", 1), |worker, only| {
                        worker.job_types(*only)
                    })
                    .poll(Duration::from_millis(20))
            })
        };
        let worker = start(&["billing.*"]);
        until(async || worker.log.lines().len() == 2).await;
        assert_eq!(worker.log.lines(), ["billing.invoice", "billing.dunning"]);
        let late = client.enqueue(NewJob::new(&Dunning)).await.unwrap();
        ended(db, late.id).await;
        assert_eq!(worker.log.lines().len(), 3, "the others wait");
        worker.stop().await;
        let worker = start(&["mail", "billing_*"]);
        until(async || worker.log.lines() == ["mail", "billing_x"]).await;
        worker.stop().await;
        assert_eq!(count(db, "mail").await, 1);
    })
    .await;
}

fn ours(db: &Database, log: &Log) -> Worker {
    Worker::new(db.pool().clone())
        .register::<Do>()
        .data(log.clone())
        .keep_succeeded(true)
        .queue("default", 4)
}

#[tokio::test]
async fn a_monitor_holds_our_workers_beside_stock_ones() {
    with_database(async |db| {
        let log = Log::default();
        let (name, backend, performer) = ours(db, &log).name("ours").into_backend().unwrap();
        let mut memory = MemoryStorage::new();
        memory.push(7_u32).await.unwrap();
        let memory = Mutex::new(Some(memory));
        let stock = log.clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let monitor = Monitor::new()
            .register(move |_| {
                WorkerBuilder::new(name.as_str())
                    .backend(backend.clone())
                    .build(performer.clone())
            })
            .register(move |_| {
                let stock = stock.clone();
                WorkerBuilder::new("stock")
                    .backend(memory.lock().take().unwrap())
                    .build(move |number: u32| {
                        let stock = stock.clone();
                        async move { stock.write(format!("stock {number}")) }
                    })
            });
        let monitor = tokio::spawn(monitor.run_with_signal(async move {
            stopped.await;
            Ok(())
        }));
        let job = client(db)
            .enqueue(Do::new("ours", What::Succeed))
            .await
            .unwrap();
        assert_eq!(ended(db, job.id).await.status, JobStatus::Succeeded);
        until(async || log.lines().len() == 2).await;
        let mut lines = log.lines();
        lines.sort();
        assert_eq!(lines, ["ours 1", "stock 7"]);
        stop.cancel();
        monitor.await.unwrap().unwrap();
        let listed = client(db).workers().await.unwrap();
        assert!(listed[0].name == "ours" && listed[0].stopped_at.is_some());
    })
    .await;
}

/// Writes down each job that goes in, and how it came out.
#[derive(Clone)]
struct Watch(Log);

#[derive(Clone)]
struct Watched<S> {
    inner: S,
    log: Log,
}

impl<S> Layer<S> for Watch {
    type Service = Watched<S>;

    fn layer(&self, inner: S) -> Watched<S> {
        Watched {
            inner,
            log: self.0.clone(),
        }
    }
}

impl<S> Service<Task<Envelope>> for Watched<S>
where
    S: Service<Task<Envelope>>,
    S::Future: Send + 'static,
    S::Response: 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send + 'static>>;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, task: Task<Envelope>) -> Self::Future {
        let envelope = task.args.clone();
        let what = format!("{} in {}", envelope.job_type(), envelope.queue());
        let log = self.log.clone();
        log.write(format!("begins {what}, attempt {}", envelope.attempt()));
        let inner = self.inner.call(task);
        Box::pin(async move {
            let outcome = inner.await;
            log.write(format!("ends {what}, well: {}", outcome.is_ok()));
            outcome
        })
    }
}

#[tokio::test]
async fn layers_of_tower_and_apalis_go_around_each_attempt() {
    with_database(async |db| {
        let log = Log::default();
        let seen = Log::default();
        let events = Log::default();
        let (builder, performer) = ours(db, &log).into_parts().unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let heard = events.clone();
        let worker = builder
            .layer(Watch(seen.clone()))
            .concurrency(1)
            .catch_panic()
            .on_event(move |_, event| heard.write(event.to_string()))
            .build(performer);
        let worker = tokio::spawn(worker.run_until(async move {
            stopped.await;
            Ok::<(), std::io::Error>(())
        }));
        let job = client(db)
            .enqueue(Do::new("a", What::FailTimes(1)))
            .await
            .unwrap();
        assert_eq!(ended(db, job.id).await.attempt, 2);
        assert_eq!(
            seen.lines(),
            [
                "begins do in default, attempt 1",
                "ends do in default, well: false",
                "begins do in default, attempt 2",
                "ends do in default, well: true",
            ]
        );
        let panics = client(db).enqueue(Do::new("b", What::Panic)).await.unwrap();
        let panics = ended(db, panics.id).await;
        assert_eq!((panics.status, panics.attempt), (JobStatus::Failed, 3));
        assert_eq!(panics.error_class.as_deref(), Some("Panic"));
        // apalis caught the panic.
        let message = panics.error_message.unwrap();
        let place = "told to panic at tests/behaviour/jobs/support.rs:";
        assert!(message.contains(place), "{message}");
        stop.cancel();
        worker.await.unwrap().unwrap();
        assert!(!events.lines().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_prefix_without_a_dot_serves_the_queue_of_that_very_name() {
    with_database(async |db| {
        let client = client(db);
        for queue in ["media", "media.hd", "mediax", "medi"] {
            client.enqueue(new(queue).queue(queue)).await.unwrap();
        }
        let worker = Running::start(db, |worker| worker.queue("media*", 8));
        until(async || worker.log.lines().len() == 3).await;
        let late = client.enqueue(new("late").queue("media")).await.unwrap();
        ended(db, late.id).await;
        let mut ran = worker.log.lines();
        ran.sort();
        assert_eq!(ran, ["late 1", "media 1", "media.hd 1", "mediax 1"]);
        worker.stop().await;
    })
    .await;
}

/// As long as it takes is a time like any other.
#[tokio::test]
async fn times_without_end_are_as_good_as_a_hundred_years() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| {
            worker
                .grace(Duration::MAX)
                .unknown_job_timeout(Duration::MAX)
                .queue("default", 4)
        });
        let client = client(db);
        let again = What::RetryAfter(Duration::MAX);
        let again = client.enqueue(Do::new("again", again)).await.unwrap();
        let stranger = client.enqueue(Gated).await.unwrap();
        let good = client.enqueue(new("good")).await.unwrap();
        assert_eq!(ended(db, good.id).await.status, JobStatus::Succeeded);
        for id in [again.id, stranger.id] {
            when(db, id, |job| job.status == JobStatus::Scheduled).await;
        }
        let due = when(db, again.id, |job| job.attempt == 1).await.run_at;
        assert!(due > chrono::Utc::now() + chrono::TimeDelta::days(365 * 99));
        worker.stop().await;
    })
    .await;
}

/// A failover to a server that lags may lose the row of a worker: the worker comes back under its own id, which no
/// sequence can give to another worker.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_row_was_lost_registers_again_under_its_id() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| worker.queue("default", 1));
        let ids = async || -> Vec<i64> {
            let ids = sqlx::query_scalar("select id from pipeline.workers order by id");
            ids.fetch_all(db.pool()).await.unwrap()
        };
        until(async || ids().await.len() == 1).await;
        let first = ids().await;
        sqlx::raw_sql("delete from pipeline.workers; alter sequence pipeline.ids restart")
            .execute(db.pool())
            .await
            .unwrap();
        until(async || ids().await == first).await;
        let other = Running::start(db, |worker| worker.queue("default", 1));
        until(async || ids().await.len() == 2).await;
        other.stop().await;
        worker.stop().await;
    })
    .await;
}
