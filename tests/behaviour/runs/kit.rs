//! The kit for users' own tests (`pipeline::testing`): run until idle, move the clock, fake a job, say what
//! a run should be.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use local_postgres::{Claim, Server};
use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::testing::{Clock, Harness, RunAssert, Setup};
use pipeline::{Error, Pipeline, RunEnded, RunStatus, StepStatus};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tests::{Database, template, with_database};

const HOUR: Duration = Duration::from_secs(3600);

/// Not to be performed in a test.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(max_attempts = 3, backoff = "fixed(1h)")]
struct Download {
    video: u64,
}

impl Perform for Download {
    type Input = ();
    type Output = String;
    async fn perform(self, (): (), _: &Context) -> Result<String, JobError> {
        Err("a test called the real thing".into())
    }
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(
    queue = "media",
    max_attempts = 3,
    backoff = "fixed(1h)",
    timeout = "50ms"
)]
struct Measure;

impl Perform for Measure {
    type Input = String;
    type Output = usize;
    async fn perform(self, file: String, cx: &Context) -> Result<usize, JobError> {
        let seen = cx.data::<Arc<AtomicU32>>()?;
        seen.fetch_add(1, Ordering::SeqCst);
        Ok(file.len())
    }
}

#[derive(Debug, Serialize, Deserialize, Job)]
struct Tell;

impl Perform for Tell {
    type Input = RunEnded;
    type Output = ();
    async fn perform(self, _: RunEnded, _: &Context) -> Result<(), JobError> {
        Err("a test called the real thing".into())
    }
}

fn video() -> Pipeline<usize> {
    Pipeline::configure("video", |p| {
        p.step("download", Download { video: 7 })
            .then("measure", Measure)
    })
    .unwrap()
}

/// A harness that performs `Measure`, and what the test adds.
async fn harness(db: &Database, add: impl FnOnce(Setup) -> Setup) -> Harness {
    let setup = Harness::on(db.pool().clone())
        .register::<Measure>()
        .data(Arc::new(AtomicU32::new(0)));
    add(setup).build().await.unwrap()
}

#[tokio::test]
async fn a_faked_job_gives_what_the_test_says_and_the_others_are_performed() {
    with_database(async |db| {
        let harness = harness(db, |it| {
            it.fake(|job: Download, ()| Ok(format!("{}.mkv", job.video)))
        })
        .await;
        let run = harness.client().start(video()).await.unwrap();
        let idle = harness.run_until_idle().await.unwrap();
        assert!(idle.is_done(), "{idle}");
        harness
            .assert(&run)
            .await
            .unwrap()
            .succeeded()
            .step("download")
            .succeeded()
            .attempts(1)
            .returned("7.mkv".to_owned())
            .step("measure")
            .returned(5)
            .run()
            .status(RunStatus::Succeeded);
    })
    .await;
}

#[tokio::test]
async fn a_step_is_faked_by_its_key_and_the_others_of_its_type_are_not() {
    with_database(async |db| {
        let both = || {
            Pipeline::configure("both", |p| {
                let hd = p.step("hd", Download { video: 1 });
                let sd = p.step("sd", Download { video: 2 });
                hd.then("size", Measure).timeout(HOUR);
                sd.then("length", Measure).timeout(HOUR);
            })
        };
        let named =
            |name: &'static str| move |job: Download, ()| Ok(format!("{name} {}", job.video));
        let harness = harness(db, |it| {
            it.fake_step("sd", named("earlier"))
                .fake_step("sd", named("sd"))
                .fake(named("other"))
                .fake_step_with(
                    "length",
                    |_: Measure, file: String, cx: Context| async move {
                        match cx.attempt() {
                            1 => Err("busy".into()),
                            _ => Ok(file.len() + 100),
                        }
                    },
                )
        })
        .await;
        let run = harness.client().start(both().unwrap()).await.unwrap();
        let alone = harness
            .client()
            .enqueue(Download { video: 3 })
            .await
            .unwrap();
        harness.skip_waits().await.unwrap();
        harness
            .assert(&run)
            .await
            .unwrap()
            .succeeded()
            .step("hd")
            .returned("other 1".to_owned())
            .step("sd")
            .returned("sd 2".to_owned())
            .step("size") // performed
            .attempts(1)
            .returned(7)
            .step("length")
            .attempts(2)
            .returned(104);
        let gone = harness.client().job(alone.id).info().await.unwrap();
        assert!(
            gone.is_none(),
            "a job that is no step is faked as its type: {gone:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn nothing_runs_and_no_time_passes_unless_the_test_says_so() {
    with_database(async |db| {
        let harness = harness(db, |it| it.fake(|_: Download, ()| Ok(String::new()))).await;
        let delayed = Pipeline::configure("delayed", |p| {
            p.step("download", Download { video: 1 }).delay(HOUR);
        });
        let run = harness.client().start(delayed.unwrap()).await.unwrap();
        for _ in 0..2 {
            let idle = harness.run_until_idle().await.unwrap();
            assert_eq!(idle.next_due(), Some(HOUR), "to the millisecond");
            assert_eq!(idle.waiting[0].step.as_deref(), Some("download"));
            assert_eq!(idle.waiting[0].run, Some(run.id()));
            assert_eq!(idle.waiting[0].attempt, 0);
        }
        harness
            .advance(HOUR - Duration::from_millis(1))
            .await
            .unwrap();
        let idle = harness.run_until_idle().await.unwrap();
        assert_eq!(idle.next_due(), Some(Duration::from_millis(1)));
        harness.advance(Duration::from_millis(1)).await.unwrap();
        assert!(harness.run_until_idle().await.unwrap().is_done());
        harness.assert(&run).await.unwrap().succeeded();
    })
    .await;
}

#[tokio::test]
async fn retries_are_reported_and_come_when_the_clock_is_moved() {
    with_database(async |db| {
        let harness = harness(db, |it| {
            it.fake_sequence::<Download>([
                Err(JobError::new("Busy", "come back later")),
                Err(JobError::new("Busy", "not yet")),
                Ok("7.mkv".to_owned()),
            ])
        })
        .await;
        let run = harness.client().start(video()).await.unwrap();
        let idle = harness.run_until_idle().await.unwrap();
        let said = "step `download` of run 1 (`download`) is due in 3600s, 1 of 3 attempts begun, last \
                    Busy: come back later";
        assert_eq!(idle.to_string(), said);
        harness
            .assert(&run)
            .await
            .unwrap()
            .status(RunStatus::Running)
            .step("download")
            .status(StepStatus::Enqueued)
            .attempts(1)
            .says("come back");
        harness.advance(HOUR).await.unwrap();
        let idle = harness.run_until_idle().await.unwrap();
        assert_eq!(idle.waiting.len(), 1);
        assert!(harness.skip_waits().await.unwrap().is_done());
        harness
            .assert(&run)
            .await
            .unwrap()
            .succeeded()
            .step("download")
            .attempts(3);
    })
    .await;
}

#[tokio::test]
async fn all_waits_are_skipped_one_after_the_other() {
    with_database(async |db| {
        let called = Arc::new(AtomicU32::new(0));
        let harness = Harness::on(db.pool().clone())
            .data(Arc::clone(&called))
            .fake(|_: Download, ()| Ok("four".to_owned()))
            .fail_first::<Measure>(2, || JobError::new("Busy", "not yet"))
            .build()
            .await
            .unwrap();
        let run = harness.client().start(video()).await.unwrap();
        let before: chrono::DateTime<chrono::Utc> = now(db.pool()).await;
        harness.skip_waits().await.unwrap();
        harness
            .assert(&run)
            .await
            .unwrap()
            .succeeded()
            .step("measure")
            .attempts(3)
            .returned(4);
        assert_eq!(called.load(Ordering::SeqCst), 1, "performed once");
        let passed = now(db.pool()).await - before;
        assert_eq!(
            passed,
            chrono::TimeDelta::hours(2),
            "two backoffs, and nothing else"
        );
    })
    .await;
}

async fn now(pool: &PgPool) -> chrono::DateTime<chrono::Utc> {
    sqlx::query_scalar("select pipeline.now()")
        .fetch_one(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_fake_fails_in_all_the_ways_a_job_can() {
    type Fail = fn() -> Result<String, JobError>;
    let ways: [(Fail, &str, &str, u16); 3] = [
        (
            || Err(JobError::new("NotFound", "no such video").discard()),
            "NotFound",
            "no such video",
            1,
        ),
        (|| Err(JobError::new("Busy", "no")), "Busy", "no", 3),
        (|| panic!("the fake panics"), "Panic", "the fake panics", 3),
    ];
    with_database(async |db| {
        for (fail, class, says, attempts) in ways {
            let harness = harness(db, |it| it.fake(move |_: Download, ()| fail())).await;
            let run = harness.client().start(video()).await.unwrap();
            harness.skip_waits().await.unwrap();
            harness
                .assert(&run)
                .await
                .unwrap()
                .halted()
                .step("download")
                .failed_with(class)
                .says(says)
                .attempts(attempts)
                .step("measure")
                .skipped()
                .because_of("download");
        }
    })
    .await;
}

#[tokio::test]
async fn a_fake_that_takes_too_long_times_out() {
    with_database(async |db| {
        let harness = Harness::on(db.pool().clone())
            .fake(|_: Download, ()| Ok(String::new()))
            .fake_with(|_: Measure, _, _| std::future::pending())
            .build()
            .await
            .unwrap();
        let run = harness.client().start(video()).await.unwrap();
        harness.skip_waits().await.unwrap();
        harness
            .assert(&run)
            .await
            .unwrap()
            .halted()
            .step("measure")
            .failed_with("Timeout")
            .attempts(3);
    })
    .await;
}

#[tokio::test]
async fn a_sequence_that_is_used_up_says_so() {
    with_database(async |db| {
        let harness = harness(db, |it| it.fake_sequence::<Download>([Ok(String::new())])).await;
        let (one, other) = (video(), video());
        let runs = harness.client().start([one, other]).await.unwrap();
        harness.skip_waits().await.unwrap();
        let mut exhausted = 0;
        for run in &runs {
            let seen = harness.assert(run).await.unwrap().to_string();
            let text = "FakeExhausted: the fake of `download` has no outcome left: it was given 1";
            exhausted += usize::from(seen.contains(text));
        }
        assert_eq!(exhausted, 1);
    })
    .await;
}

#[tokio::test]
async fn a_job_that_the_harness_was_not_told_of_is_named_at_once() {
    with_database(async |db| {
        let harness = harness(db, |it| it).await;
        let run = harness.client().start(video()).await.unwrap();
        let error = harness.run_until_idle().await.unwrap_err();
        assert!(
            matches!(&error, Error::NoSuchJob { kinds } if kinds == "download"),
            "{error}"
        );
        // Another one, which knows it, does it.
        let harness = self::harness(db, |it| it.fake(|_: Download, ()| Ok(String::new()))).await;
        harness.skip_waits().await.unwrap();
        harness.assert(&run).await.unwrap().succeeded();
    })
    .await;
}

#[tokio::test]
async fn a_job_that_never_ends_is_named_and_goes_back_into_its_queue() {
    with_database(async |db| {
        let harness = Harness::on(db.pool().clone())
            .fake_with(|_: Download, (), _| std::future::pending())
            .limit(Duration::from_millis(500))
            .build()
            .await
            .unwrap();
        let client = harness.client();
        let job = client.enqueue(Download { video: 1 }).await.unwrap().id;
        let error = harness.run_until_idle().await.unwrap_err().to_string();
        assert!(error.contains("not idle within 500ms"), "{error}");
        let running = format!("job {job} (`download`) is running in queue `default`");
        assert!(error.contains(&running), "{error}");
        let job = client.job(job).info().await.unwrap().unwrap();
        assert_eq!((job.status.as_str(), job.attempt), ("ready", 0));
    })
    .await;
}

#[tokio::test]
async fn what_waits_in_a_paused_queue_is_left_there() {
    with_database(async |db| {
        let harness = harness(db, |it| it.fake(|_: Download, ()| Ok(String::new()))).await;
        harness.client().pause("media").await.unwrap();
        let run = harness.client().start(video()).await.unwrap();
        let idle = harness.skip_waits().await.unwrap();
        assert_eq!(idle.next_due(), None);
        let left =
            "step `measure` of run 1 (`measure`) is ready in queue `media`, 0 of 3 attempts begun";
        assert_eq!(idle.to_string(), left);
        harness.client().resume("media").await.unwrap();
        assert!(harness.run_until_idle().await.unwrap().is_done());
        harness.assert(&run).await.unwrap().succeeded();
    })
    .await;
}

#[tokio::test]
async fn deadlines_callbacks_and_chains_happen_as_ever() {
    with_database(async |db| {
        let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        let harness = harness(db, |it| {
            it.fake(|_: Download, ()| Ok(String::new()))
                .fake(move |_: Tell, ended: RunEnded| {
                    log.lock().push(ended.status);
                    Ok(())
                })
        })
        .await;
        let late = Pipeline::configure("late", |p| {
            p.deadline(HOUR);
            p.on_failure(Tell);
            p.step("download", Download { video: 1 }).delay(HOUR * 2);
        });
        let run = harness.client().start(late.unwrap()).then(video());
        let run = run.await.unwrap();
        assert_eq!(
            harness.run_until_idle().await.unwrap().next_due(),
            Some(HOUR * 2)
        );
        harness.advance(HOUR).await.unwrap();
        assert!(harness.run_until_idle().await.unwrap().is_done());
        harness.assert(&run).await.unwrap().failed();
        let next = &run.chained().await.unwrap()[0];
        harness
            .assert(next)
            .await
            .unwrap()
            .status(RunStatus::Skipped)
            .step("measure")
            .skipped();
        assert_eq!(*told.lock(), [RunStatus::Failed]);
    })
    .await;
}

#[tokio::test]
async fn an_assertion_that_does_not_hold_shows_the_whole_run() {
    with_database(async |db| {
        let harness = harness(db, |it| {
            it.fake(|_: Download, ()| Err(JobError::new("NotFound", "no such video").discard()))
        })
        .await;
        let run = harness.client().start(video()).await.unwrap();
        harness.run_until_idle().await.unwrap();
        let whole = "run 1 of `video`: halted\n  \
                     download  failed     attempt 1 of 3  NotFound: no such video\n  \
                     measure   skipped    `download` failed and halted the run  (after download)";
        type Check = fn(RunAssert);
        let wrong: [(&str, Check); 5] = [
            ("run 1 is halted, and should be succeeded", |run| {
                run.succeeded();
            }),
            ("run 1 has no step `upload`", |run| {
                run.step("upload");
            }),
            (
                "step `measure` is skipped, and should be succeeded",
                |run| {
                    run.step("measure").succeeded();
                },
            ),
            ("step `measure` is skipped, and returned nothing", |run| {
                run.step("measure").returned(1);
            }),
            (
                "step `download` failed with NotFound, and should with Busy",
                |run| {
                    run.step("download").failed_with("Busy");
                },
            ),
        ];
        for (what, check) in wrong {
            let seen = AssertUnwindSafe(harness.assert(&run).await.unwrap());
            let panic = std::panic::catch_unwind(move || check({ seen }.0)).unwrap_err();
            let said = panic.downcast_ref::<String>().unwrap();
            assert_eq!(*said, format!("{what}\n\n{whole}"));
        }
    })
    .await;
}

#[tokio::test]
async fn the_database_gets_its_own_clock_back() {
    with_database(async |db| {
        let function = "select pg_get_functiondef('pipeline.now()'::regprocedure)";
        let harness = harness(db, |it| it).await;
        harness.advance(HOUR).await.unwrap();
        harness.restore().await.unwrap();
        let restored: String = sqlx::query_scalar(function)
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert!(
            restored.contains("select statement_timestamp() $"),
            "{restored}"
        );
        // And loses it again, with the hour that had passed.
        let clock = Clock::install(db.pool().clone()).await.unwrap();
        let ahead: String = sqlx::query_scalar("select ahead::text from pipeline_test.clock")
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(ahead, "00:00:00");
        clock.restore().await.unwrap();
        sqlx::raw_sql("drop schema pipeline cascade")
            .execute(db.pool())
            .await
            .unwrap();
        pipeline::jobs::migrate(db.pool()).await.unwrap();
        let migrated: String = sqlx::query_scalar(function)
            .fetch_one(db.pool())
            .await
            .unwrap();
        assert_eq!(restored, migrated);
    })
    .await;
}

#[tokio::test]
async fn a_database_that_is_at_work_by_its_own_clock_is_refused() {
    with_database(async |db| {
        let pool = db.pool().clone();
        Clock::of(pool.clone()).restore().await.unwrap();
        let run = pipeline::Client::new(pool.clone())
            .start(video())
            .await
            .unwrap();
        let setup = || Harness::on(pool.clone()).allow_any_database();
        let error = setup().build().await.unwrap_err().to_string();
        assert!(
            error.contains("1 runs and 1 jobs in it have not ended"),
            "{error}"
        );
        let is_there: bool = sqlx::query_scalar("select to_regnamespace('pipeline_test') is null")
            .fetch_one(&pool)
            .await
            .unwrap();
        assert!(is_there, "nothing was written");
        run.cancel().await.unwrap();
        let harness = setup().build().await.unwrap();
        harness
            .assert(&run)
            .await
            .unwrap()
            .status(RunStatus::Cancelled);
    })
    .await;
}

#[tokio::test]
async fn a_database_whose_name_is_not_one_for_tests_is_refused_unless_told() {
    let server = tokio::task::spawn_blocking(Server::find).await;
    let claim = Claim::new(Arc::new(server.unwrap().unwrap()), "pipeline_shop").await;
    let claim = claim.unwrap();
    let scratch = claim.create("kit", template().await).await.unwrap();
    let outcome = AssertUnwindSafe(async {
        let pool = PgPool::connect_with(scratch.options.clone()).await.unwrap();
        let error = Harness::on(pool.clone()).build().await.unwrap_err();
        assert!(matches!(&error, Error::NotForTests { .. }), "{error:?}");
        let said = error.to_string();
        assert!(
            said.contains(&scratch.name) && said.contains("its name has no word `test`"),
            "{said}"
        );
        Clock::install(pool.clone()).await.unwrap_err();
        let told = Harness::on(pool.clone()).allow_any_database().build().await;
        told.unwrap();
        pool.close().await;
    })
    .catch_unwind()
    .await;
    claim.remove(&scratch).await.unwrap();
    outcome.unwrap();
}
