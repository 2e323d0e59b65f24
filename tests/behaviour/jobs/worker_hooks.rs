//! What an application can add to a worker: tower layers around each attempt, and a handler of failed attempts.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use apalis_core::layers::{Layer, Service};
use apalis_core::task::Task;
use jobs::{Envelope, FailedAttempt, JobStatus, NewJob};
use parking_lot::Mutex;
use tests::with_database;

use super::support::{Do, Log, Running, What, client, ended, until};

/// A layer that logs what goes in and out, or panics.
#[derive(Clone)]
struct Named {
    name: &'static str,
    log: Log,
    panics_for: &'static str,
}

#[derive(Clone)]
struct NamedService<S> {
    layer: Named,
    inner: S,
}

impl<S> Layer<S> for Named {
    type Service = NamedService<S>;

    fn layer(&self, inner: S) -> NamedService<S> {
        NamedService {
            layer: self.clone(),
            inner,
        }
    }
}

impl<S> Service<Task<Envelope>> for NamedService<S>
where
    S: Service<Task<Envelope>, Response: 'static, Error: 'static, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, task: Task<Envelope>) -> Self::Future {
        let Named {
            name,
            log,
            panics_for,
        } = self.layer.clone();
        assert!(
            task.args.queue() != panics_for,
            "told to panic in the layer"
        );
        log.write(format!("{name} in"));
        let inner = self.inner.call(task);
        Box::pin(async move {
            let outcome = inner.await;
            log.write(format!("{name} out, ok: {}", outcome.is_ok()));
            outcome
        })
    }
}

#[tokio::test]
async fn layers_of_a_worker_go_around_each_attempt_the_first_one_outermost() {
    with_database(async |db| {
        let log = Log::default();
        let layer = |name| Named {
            name,
            log: log.clone(),
            panics_for: "",
        };
        let worker = Running::start(db, |worker| {
            worker
                .queue("default", 1)
                .layer(layer("outer"))
                .layer(layer("inner"))
        });
        let job = Do::new("a", What::FailTimes(1));
        let job = client(db).enqueue(job).await.unwrap();
        assert_eq!(ended(db, job.id).await.attempt, 2);
        let attempt = |ok| {
            let lines = ["outer in", "inner in"].map(str::to_owned).into_iter();
            lines.chain(["inner", "outer"].map(|name| format!("{name} out, ok: {ok}")))
        };
        let expected: Vec<String> = attempt(false).chain(attempt(true)).collect();
        assert_eq!(log.lines(), expected);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn an_attempt_whose_layer_panics_has_failed_and_the_worker_goes_on() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| {
            worker.queue("*", 1).layer(Named {
                name: "layer",
                log: Log::default(),
                panics_for: "bad",
            })
        });
        let new = |queue: &str| NewJob::new(&Do::new("a", What::Succeed)).queue(queue);
        let bad = client(db)
            .enqueue(new("bad").max_attempts(1))
            .await
            .unwrap();
        let bad = ended(db, bad.id).await;
        assert_eq!(bad.status, JobStatus::Failed);
        assert_eq!(bad.error_class.as_deref(), Some("Panic"));
        let good = client(db).enqueue(new("good")).await.unwrap();
        assert_eq!(ended(db, good.id).await.status, JobStatus::Succeeded);
        worker.stop().await;
    })
    .await;
}

#[derive(Clone, Default)]
struct Tracker(Arc<Mutex<Vec<FailedAttempt>>>);

impl Tracker {
    fn of(&self, name: jobs::JobId) -> Vec<(u16, String, String, bool)> {
        let failed = self.0.lock();
        let mine = failed.iter().filter(|failed| failed.job == name);
        mine.map(|failed| {
            assert_eq!(failed.job_type.as_deref(), Some("do"));
            assert_eq!((failed.owner_id, &failed.owner_label), (None, &None));
            assert_eq!(failed.is_panic(), failed.error_class == "Panic");
            let (class, message) = (&failed.error_class, &failed.error_message);
            (
                failed.attempt,
                class.clone(),
                message.clone(),
                failed.is_final,
            )
        })
        .collect()
    }
}

#[tokio::test]
async fn the_error_handler_sees_each_failed_attempt_and_whether_it_is_final() {
    with_database(async |db| {
        let tracker = Tracker::default();
        let seen = tracker.clone();
        let worker = Running::start(db, |worker| {
            worker.queue("default", 4).on_error(move |failed| {
                let seen = seen.clone();
                async move { seen.0.lock().push(failed) }
            })
        });
        let new = |what| NewJob::new(&Do::new("a", what)).max_attempts(2);
        let enqueue = async |what| client(db).enqueue(new(what)).await.unwrap().id;
        let fine = enqueue(What::Succeed).await;
        let once = enqueue(What::FailTimes(1)).await;
        let panics = enqueue(What::Panic).await;
        let discarded = enqueue(What::Discard).await;
        for job in [fine, once, panics, discarded] {
            ended(db, job).await;
        }
        // Stopping calls the handler for all that is left.
        worker.stop().await;
        assert_eq!(tracker.of(fine), []);
        let once = tracker.of(once);
        assert!(matches!(&once[..], [(1, _, _, false)]), "{once:?}");
        let panics = tracker.of(panics);
        let is_panic = |class: &str, message: &str| class == "Panic" && message.contains("told to");
        assert!(
            matches!(&panics[..], [(1, class, message, false), (2, last, _, true)]
                if is_panic(class, message) && last == "Panic"),
            "{panics:?}"
        );
        let discarded = tracker.of(discarded);
        assert!(matches!(&discarded[..], [(1, _, _, true)]), "{discarded:?}");
    })
    .await;
}

#[tokio::test]
async fn an_error_handler_that_never_returns_holds_up_neither_jobs_nor_shutdown() {
    with_database(async |db| {
        let worker = Running::start(db, |worker| {
            worker
                .queue("default", 4)
                .on_error(|_| std::future::pending())
        });
        let job = |n: usize| NewJob::new(&Do::new(&n.to_string(), What::Discard));
        let jobs = client(db).enqueue_many((0..1_200).map(job)).await.unwrap();
        for job in &jobs {
            assert_eq!(ended(db, job.id).await.status, JobStatus::Discarded);
        }
        let stop = worker.stop();
        let stopped = tokio::time::timeout(Duration::from_secs(60), stop).await;
        stopped.expect("the worker stops");
    })
    .await;
}

#[tokio::test]
async fn an_error_handler_that_panics_is_called_again() {
    with_database(async |db| {
        let log = Log::default();
        let seen = log.clone();
        let worker = Running::start(db, |worker| {
            worker.queue("default", 1).on_error(move |failed| {
                seen.write(failed.job.to_string());
                async move { panic!("told to panic in the handler") }
            })
        });
        for _ in 0..2 {
            let job = client(db).enqueue(Do::new("a", What::Discard)).await;
            let job = job.unwrap().id;
            until(async || log.lines().last() == Some(&job.to_string())).await;
        }
        worker.stop().await;
    })
    .await;
}
