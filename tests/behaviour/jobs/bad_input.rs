//! Rule 29: invalid input is refused before anything is written, by an error that names the thing,
//! the value and the remedy.

use std::time::Duration;

use apalis_core::error::WorkerStateError;
use jobs::{Backoff, Context, Error, Job, JobError, NewJob, Perform, Worker};
use serde::{Deserialize, Serialize, Serializer};
use tests::{Database, with_database};

use super::support::{Do, What, client};

fn new(name: &str) -> NewJob {
    NewJob::new(&Do::new(name, What::Succeed))
}

/// A job that no row was written for, in any of the three ways; returns what was said.
async fn refused(db: &Database, job: impl Fn() -> NewJob) -> Error {
    let client = client(db);
    let error = client.enqueue(job()).await.unwrap_err();
    let mut tx = db.pool().begin().await.unwrap();
    client.enqueue_in(&mut tx, job()).await.unwrap_err();
    tx.commit().await.unwrap();
    let bulk = [new("good"), job(), new("good")];
    client.enqueue_many(bulk).await.unwrap_err();
    let added = client.batch().jobs([new("good"), job()]).await;
    assert!(added.is_err());
    let rows: i64 = sqlx::query_scalar(
        "select (select count(*) from pipeline.jobs) + (select count(*) from pipeline.batch_sets)",
    )
    .fetch_one(db.pool())
    .await
    .unwrap();
    assert_eq!(rows, 0, "something was written");
    error
}

fn set_up(db: &Database) -> Worker {
    Worker::new(db.pool().clone()).register::<Do>()
}

fn refused_worker(worker: Worker) -> Error {
    worker.into_parts().map(|_| ()).unwrap_err()
}

#[tokio::test]
async fn a_queue_has_a_plain_name() {
    with_database(async |db| {
        let error = refused(db, || new("a").queue("my queue")).await;
        assert!(matches!(error, Error::InvalidName { what: "queue", .. }));
        assert_eq!(
            error.to_string(),
            "the queue `my queue` is not a valid name: use 1 to 128 letters, digits, `.`, `_` or `-`"
        );
        for name in ["", "media.*", "a\0b", "größe", "a/b"] {
            let error = refused(db, || new("a").queue(name)).await;
            assert!(matches!(error, Error::InvalidName { .. }), "{name}: {error}");
        }
        let error = refused(db, || new("a").queue("x".repeat(129))).await;
        assert!(error.to_string().len() < 200, "a long value is shortened");
        let error = client(db).pause("media.*").await.unwrap_err();
        assert!(error.to_string().contains("`media.*`"), "{error}");
        let error = client(db).resume("").await.unwrap_err();
        assert!(matches!(error, Error::InvalidName { .. }));
    })
    .await;
}

/// What the derive would not let through, written by hand.
#[derive(Serialize, Deserialize)]
struct ManualEngine;

impl Job for ManualEngine {
    const NAME: &'static str = "by hand";
}

impl Perform for ManualEngine {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_job_type_has_a_plain_name() {
    with_database(async |db| {
        let said = "the job type `by hand` is not a valid name: use 1 to 128 letters, digits, `.`, `_` or `-`";
        let error = refused(db, || NewJob::new(&ManualEngine)).await;
        assert_eq!(error.to_string(), said);
        let error = refused_worker(set_up(db).queue("default", 1).register::<ManualEngine>());
        assert_eq!(error.to_string(), said);
    })
    .await;
}

#[tokio::test]
async fn arguments_are_at_most_a_mebibyte() {
    with_database(async |db| {
        let around = serde_json::to_string(&Do::new("", What::Succeed))
            .unwrap()
            .len();
        let room = (1 << 20) - around;
        let error = refused(db, || new(&"x".repeat(room + 1))).await;
        assert_eq!(
            error.to_string(),
            "1048577 bytes of arguments for `do`, and 1048576 is the limit: store the data \
             elsewhere and pass a reference to it"
        );
        let most = client(db).enqueue(new(&"x".repeat(room))).await;
        assert!(most.unwrap().is_new());
    })
    .await;
}

#[tokio::test]
async fn a_nul_is_refused_wherever_it_hides() {
    with_database(async |db| {
        let error = refused(db, || new("a\0b")).await;
        assert_eq!(
            error.to_string(),
            "the arguments of `do` cannot be stored: at `name` there is a NUL character, which \
             Postgres cannot store: remove it, or encode it"
        );
        let error = refused(db, || new("a").key("a\0b")).await;
        assert_eq!(
            error.to_string(),
            "the key of `do` contains a NUL character, which Postgres cannot store: remove \
             it, or encode it"
        );
        // The text `\u0000` is no NUL.
        client(db).enqueue(new("\\u0000")).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_key_is_not_empty_and_not_endless() {
    with_database(async |db| {
        let error = refused(db, || new("a").key("")).await;
        assert_eq!(
            error.to_string(),
            "the key of `do` is empty: give it a value, or leave it out"
        );
        let error = refused(db, || new("a").key("x".repeat(513))).await;
        assert_eq!(
            error.to_string(),
            "the key of `do` has 513 bytes, and 512 is the limit: shorten it"
        );
    })
    .await;
}

/// Has no JSON.
#[derive(Deserialize, Job)]
struct Unspeakable;

impl Serialize for Unspeakable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("it must not be spoken"))
    }
}

impl Perform for Unspeakable {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_job_that_has_no_json_is_refused() {
    with_database(async |db| {
        let job = NewJob::new(&Unspeakable);
        let error = refused(db, || job.clone()).await;
        assert!(matches!(
            error,
            Error::NotEncodable {
                job_type: "unspeakable",
                ..
            }
        ));
        assert_eq!(
            error.to_string(),
            "a `unspeakable` cannot be written as JSON: it must not be spoken; use field types that \
             can be, or implement `Serialize` by hand"
        );
    })
    .await;
}

#[tokio::test]
async fn a_job_is_tried_at_least_once() {
    with_database(async |db| {
        for attempts in [0, 32_768, u16::MAX] {
            let error = refused(db, || new("a").max_attempts(attempts)).await;
            assert_eq!(
                error.to_string(),
                format!("the maximum number of attempts of `do` is {attempts}: use 1 to 32767")
            );
        }
        client(db)
            .enqueue(new("a").max_attempts(32_767))
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_backoff_that_shrinks_is_refused_when_it_is_enqueued_and_when_it_is_registered() {
    with_database(async |db| {
        let seconds = Duration::from_secs;
        let shrinking = jobs::Backoff::exponential(seconds(60), seconds(1));
        let error = refused(db, || new("a").backoff(shrinking)).await;
        assert_eq!(
            error.to_string(),
            "the backoff of `do` begins with a wait of 60s, and its longest wait is 1s: give the shorter one first"
        );
        let error = refused_worker(set_up(db).queue("default", 1).register::<Shrinking>());
        assert!(matches!(error, Error::BackoffInverted { .. }), "{error}");
    })
    .await;
}

/// A job type whose options were written by hand: the derive refuses such a backoff itself.
#[derive(Serialize, Deserialize)]
struct Shrinking;

impl Job for Shrinking {
    const NAME: &'static str = "shrinking";
    const OPTIONS: jobs::JobOptions = jobs::JobOptions::DEFAULT.backoff(jobs::Backoff::linear(
        Duration::from_secs(2),
        Duration::from_secs(1),
    ));
}

impl Perform for Shrinking {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

#[tokio::test]
async fn times_are_bounded() {
    with_database(async |db| {
        let day = Duration::from_secs(86_400);
        let cases = [
            (
                new("a").lease(Duration::from_millis(999)),
                "the lease of `do` is 999ms: use from 1 s (to be renewed in time) to 1 day",
            ),
            (
                new("a").lease(day + Duration::from_secs(1)),
                "the lease of `do` is 86401s: use from 1 s (to be renewed in time) to 1 day",
            ),
            (
                new("a").delay(day * 36_501),
                "the delay of `do` is 3153686400s: use at most 100 years",
            ),
            (
                new("a").timeout(Duration::ZERO),
                "the timeout of `do` is 0ns: use at least 1 ms, or leave it out",
            ),
        ];
        for (job, said) in cases {
            let error = client(db).enqueue(job).await.unwrap_err();
            assert!(matches!(error, Error::DurationOutOfRange { .. }));
            assert_eq!(error.to_string(), said);
        }
        refused(db, || new("a").lease(Duration::ZERO)).await;
        refused(db, || new("a").delay(Duration::MAX)).await;
        refused(db, || new("a").timeout(Duration::ZERO)).await;
        client(db)
            .enqueue(new("a").timeout(Duration::from_nanos(1)))
            .await
            .unwrap();
        let longest = new("a")
            .timeout(Duration::MAX)
            .delay(day * 36_500)
            .lease(day);
        client(db).enqueue(longest).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_backoff_that_is_no_number_is_refused() {
    with_database(async |db| {
        let backoff = Backoff::fixed(Duration::from_secs(1));
        for jitter in [f32::NAN, -0.1, 1.1] {
            let error = refused(db, || new("a").backoff(backoff.jitter(jitter))).await;
            assert_eq!(
                error.to_string(),
                format!("the jitter of `do` is {jitter}: use a share from 0 to 1")
            );
        }
        client(db)
            .enqueue(new("a").backoff(backoff.jitter(1.0)))
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn one_call_takes_a_hundred_thousand_jobs() {
    with_database(async |db| {
        let job = Do::new("a", What::Succeed);
        let many = std::iter::repeat_n(job, 100_001);
        let error = client(db).enqueue_many(many.clone()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "100001 jobs in one call, and 100000 is the limit: enqueue them in several calls"
        );
        let error = client(db).batch().jobs(many).await.unwrap_err();
        assert!(matches!(error, Error::TooMany { count: 100_001 }));
        assert_eq!(super::support::count(db, "do").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_worker_serves_queues_by_name_or_prefix() {
    with_database(async |db| {
        for pattern in ["", "my queue", "*.hd", "media.*.hd", "%"] {
            let error = refused_worker(set_up(db).queue(pattern, 1));
            assert_eq!(
                error.to_string(),
                format!(
                    "the queue pattern `{pattern}` is neither a name nor a prefix of names \
                     followed by `*`: write it like `media`, `media.*` or `*`"
                )
            );
        }
        let error = refused_worker(set_up(db).queue("default", 1).job_types("bill ing"));
        assert!(
            error
                .to_string()
                .starts_with("the job type pattern `bill ing` is"),
            "{error}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_worker_needs_queues_slots_and_a_name_that_can_be_stored() {
    with_database(async |db| {
        let error = refused_worker(set_up(db));
        assert_eq!(
            error.to_string(),
            "the worker serves no queue: name one or more with `.queue(\"default\", 16)`"
        );
        for slots in [0, 100_001] {
            let error = refused_worker(set_up(db).queue("media", slots));
            assert_eq!(
                error.to_string(),
                format!(
                    "queue `media` has {slots} slots: give it from 1 to 100000, or leave it out \
                     if the worker is not to serve it"
                )
            );
        }
        for name in ["", "a\0b", "two words"] {
            let error = refused_worker(set_up(db).queue("media", 1).name(name));
            assert!(
                matches!(error, Error::InvalidName { what: "worker", .. }),
                "{error}"
            );
        }
        let error = set_up(db).run().await.unwrap_err();
        assert!(matches!(error, Error::NoQueue), "{error}");
        let workers = client(db).workers().await.unwrap();
        assert!(workers.is_empty(), "none has been written down");
    })
    .await;
}

/// Ours cannot be made to: it has no error of its own.
#[test]
fn a_worker_that_ended_by_itself_is_named_with_the_cause_and_the_remedy() {
    let error = Error::WorkerEnded {
        worker: "host:7".to_owned(),
        source: WorkerStateError::NotRunning.into(),
    };
    assert_eq!(
        error.to_string(),
        "worker `host:7` stopped by itself: Failed to handle the new state: Worker is not running; other \
         workers take over its jobs when their leases expire; run the worker again"
    );
}

/// Another type under the name of a first.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "do")]
struct Doppelganger;

impl Perform for Doppelganger {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

#[tokio::test]
async fn two_job_types_of_one_worker_have_two_names() {
    with_database(async |db| {
        let worker = || set_up(db).queue("default", 1);
        let error = refused_worker(worker().register::<(Do, Doppelganger)>());
        assert_eq!(
            error.to_string(),
            "two job types are called `do`: give one of them another name with #[job(name = \"..\")]"
        );
        // Also deep inside of tuples.
        let error = refused_worker(worker().register::<((Do, (Do,)), ((Doppelganger,), Do))>());
        assert!(matches!(error, Error::DuplicateName("do")), "{error}");
        let twice = worker().register::<(Do, Do)>().register::<Do>();
        assert!(twice.into_parts().is_ok(), "one type may be named twice");
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_could_do_nothing_is_refused() {
    with_database(async |db| {
        let error = refused_worker(Worker::new(db.pool().clone()).queue("default", 1).name("w"));
        assert!(matches!(error, Error::NothingRegistered { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("`w`") && said.contains(".register"), "{said}");

        let one_that_matches = set_up(db).queue("default", 1).job_types("do");
        assert!(one_that_matches.into_backend().is_ok());
        let none = set_up(db)
            .queue("default", 1)
            .job_types("do")
            .job_types("mail.*");
        let error = refused_worker(none);
        assert!(matches!(error, Error::NoMatchingJobType { .. }), "{error}");
        let said = error.to_string();
        assert!(
            said.contains("`mail.*`") && said.contains("it has `do`"),
            "{said}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_poll_interval_is_from_ten_milliseconds_to_ten_seconds() {
    with_database(async |db| {
        let every = |poll| set_up(db).queue("default", 1).poll(poll);
        for poll in [10, 10_000].map(Duration::from_millis) {
            assert!(every(poll).into_backend().is_ok(), "{poll:?}");
        }
        for poll in [9, 10_001].map(Duration::from_millis) {
            let error = refused_worker(every(poll));
            assert!(matches!(error, Error::PollOutOfRange { .. }), "{error}");
            let said = error.to_string();
            assert!(said.contains(&format!("{poll:?}")), "{said}");
            assert!(said.contains("from 10ms to 10s"), "{said}");
        }
    })
    .await;
}
