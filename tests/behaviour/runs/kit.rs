//! The kit for the tests of applications (`pipeline::testing`): run until idle, move the clock, fake a job, hold a
//! step, check runs, jobs and batches.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use local_postgres::{Claim, Server};
use pipeline::jobs::NewJob;
use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::testing::{Clock, Harness, JobAssert, RunAssert, Setup};
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
        // A job that is not a step is faked as its type.
        let alone = harness.assert_job(alone.id).await.unwrap();
        alone.succeeded().attempts(1);
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
            matches!(&error, Error::NotRegistered { job_types, .. } if job_types == &["download"]),
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
        let (line, idle) = (line!(), harness.run_until_idle());
        let error = idle.await.unwrap_err().to_string();
        assert!(error.contains("not idle within 500ms"), "{error}");
        assert!(
            error.starts_with(&format!("{}:{line}:", file!())),
            "{error}"
        );
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
                "step `download` failed with NotFound, and should have failed with Busy",
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
            said.contains(&scratch.name) && said.contains("does not contain the word `test`"),
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

/// The endpoint of an application that repeats a failed order.
async fn repeat(client: &pipeline::Client, run: pipeline::RunId) -> pipeline::Result<()> {
    client.run(run).reopen().await
}

#[tokio::test]
async fn a_run_is_reopened_without_force_however_much_time_has_passed() {
    with_database(async |db| {
        let harness = harness(db, |it| {
            it.fake_sequence::<Download>([
                Err(JobError::new("Gone", "no such video").discard()),
                Err(JobError::new("Gone", "still no such video").discard()),
                Ok("7.mkv".to_owned()),
            ])
        })
        .await;
        let run = harness.client().start(video()).await.unwrap();
        harness.run_until_idle().await.unwrap();
        repeat(harness.client(), run.id()).await.unwrap();
        harness.run_until_idle().await.unwrap();
        harness.assert(&run).await.unwrap().halted();
        harness.advance(HOUR * 48).await.unwrap();
        harness
            .clock()
            .advance_without_leases(HOUR * 48)
            .await
            .unwrap();
        repeat(harness.client(), run.id()).await.unwrap();
        harness.run_until_idle().await.unwrap();
        harness.assert(&run).await.unwrap().succeeded();
    })
    .await;
}

#[tokio::test]
async fn a_run_of_job_types_that_the_harness_does_not_know_is_not_reopened() {
    with_database(async |db| {
        let harness = Harness::on(db.pool().clone())
            .fake(|_: Download, ()| Err(JobError::new("Gone", "no such video").discard()))
            .build()
            .await
            .unwrap();
        let run = harness.client().start(video()).await.unwrap();
        harness.run_until_idle().await.unwrap();
        let error = run.reopen().await.unwrap_err();
        let said = format!(
            "run {} cannot be reopened: no live worker knows `measure`, which it needs; start a worker that does, or \
             reopen the run with `.force()`",
            run.id()
        );
        assert_eq!(error.to_string(), said);
    })
    .await;
}

#[tokio::test]
async fn a_fake_that_names_no_step_is_an_error_before_any_job_runs() {
    with_database(async |db| {
        let called = Arc::new(AtomicU32::new(0));
        let line = line!() + 4;
        let harness = Harness::on(db.pool().clone())
            .data(Arc::clone(&called))
            .register::<(Download, Measure)>()
            .fake_step("donwload", |_: Download, ()| Ok(String::new()))
            .build()
            .await
            .unwrap();
        // Before there is a pipeline with the job type, the key may belong to one that is started later.
        assert!(harness.run_until_idle().await.unwrap().is_done());
        let run = harness.client().start(video()).await.unwrap();
        let error = harness.run_until_idle().await.unwrap_err().to_string();
        let at = format!("{}:{line}:", file!());
        assert!(error.starts_with(&at), "{error}");
        let said = "the fake names no step: no pipeline has a step `donwload` with a job of type `download`, whose steps \
                    are `download`; correct the key or the type, or call `.allow_unused_fakes()`";
        assert!(error.ends_with(said), "{error}");
        harness
            .assert(&run)
            .await
            .unwrap()
            .running()
            .step("download")
            .enqueued()
            .attempts(0);

        // The key of a step whose job has another type.
        let harness = self::harness(db, |it| {
            it.fake(|_: Download, ()| Ok(String::new()))
                .fake_step("download", |_: Measure, _| Ok(1))
        })
        .await;
        let error = harness.run_until_idle().await.unwrap_err();
        let Error::FakeWithoutStep { known, job_type, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((known.join(" ").as_str(), *job_type), ("measure", "measure"));
        let harness = self::harness(db, |it| {
            it.fake(|_: Download, ()| Ok(String::new()))
                .fake_step("download", |_: Measure, _| Ok(1))
                .allow_unused_fakes()
        })
        .await;
        harness.run_until_idle().await.unwrap();
        harness.assert(&run).await.unwrap().succeeded();
    })
    .await;
}

/// The place and the text of a panic.
fn panic_of(check: impl FnOnce()) -> (String, String) {
    use std::cell::RefCell;
    use std::panic::{PanicHookInfo, catch_unwind, set_hook, take_hook};
    use std::sync::Once;

    thread_local! {
        static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
            let place = panic.location().map(ToString::to_string);
            PLACE.with(|it| *it.borrow_mut() = place);
            before(panic);
        }));
    });
    let panic = catch_unwind(AssertUnwindSafe(check)).unwrap_err();
    let place = PLACE.with(|it| it.borrow_mut().take()).unwrap();
    (place, panic.downcast_ref::<String>().unwrap().clone())
}

#[tokio::test]
async fn fakes_that_were_never_called_are_listed_with_their_lines() {
    with_database(async |db| {
        let line = line!() + 3;
        let harness = harness(db, |it| {
            it.fake(|_: Download, ()| Ok(String::new()))
                .fake(|_: Tell, _| Ok(()))
        })
        .await;
        harness.client().start(video()).await.unwrap();
        harness.run_until_idle().await.unwrap();
        let (place, said) = panic_of(|| harness.assert_fakes_used());
        assert!(place.starts_with(file!()), "{place}");
        let unused = format!("these fakes were never called:\n- {}:{line}:", file!());
        assert!(
            said.starts_with(&unused) && said.ends_with(": `tell`"),
            "{said}"
        );
    })
    .await;
}

#[tokio::test]
async fn waits_are_skipped_up_to_a_deadline_and_not_beyond() {
    with_database(async |db| {
        let harness = harness(db, |it| it.fake(|_: Download, ()| Ok(String::new()))).await;
        let late = Pipeline::configure("late", |p| {
            p.deadline(HOUR);
            p.step("download", Download { video: 1 }).delay(HOUR * 2);
        });
        let before = now(db.pool()).await;
        let run = harness.client().start(late.unwrap()).await.unwrap();
        assert!(harness.skip_waits().await.unwrap().is_done());
        harness
            .assert(&run)
            .await
            .unwrap()
            .failed()
            .step("download")
            .cancelled()
            .attempts(0);
        let passed = now(db.pool()).await - before;
        assert_eq!(passed, chrono::TimeDelta::hours(1));
        // A deadline after the last job changes nothing, and the clock is not moved to it.
        let early = Pipeline::configure("early", |p| {
            p.deadline(HOUR * 3);
            p.step("download", Download { video: 1 }).delay(HOUR * 2);
        });
        let run = harness.client().start(early.unwrap()).await.unwrap();
        harness.skip_waits().await.unwrap();
        harness.assert(&run).await.unwrap().succeeded();
        let passed = now(db.pool()).await - before;
        assert_eq!(passed, chrono::TimeDelta::hours(3));
    })
    .await;
}

#[tokio::test]
async fn a_failed_check_points_at_the_line_of_the_test() {
    with_database(async |db| {
        let harness = harness(db, |it| it.fake(|_: Download, ()| Ok("7.mkv".to_owned()))).await;
        let run = harness.client().start(video()).await.unwrap();
        let job = harness.client().enqueue(Download { video: 1 }).await;
        let job = job.unwrap().id;
        harness.run_until_idle().await.unwrap();
        type Check = (u32, fn(RunAssert, JobAssert));
        #[rustfmt::skip]
        let checks: [Check; 9] = [
            (line!(), |run, _| { run.failed(); }),
            (line!(), |run, _| { run.step("upload"); }),
            (line!(), |run, _| { run.step("download").pending(); }),
            (line!(), |run, _| { run.step("download").returned("8.mkv".to_owned()); }),
            (line!(), |run, _| { run.step("download").returned(7); }),
            (line!(), |run, _| { run.step("download").because_of("measure"); }),
            (line!(), |_, job| { job.queue("media"); }),
            (line!(), |_, job| { job.args::<Wide>(); }),
            (line!(), |_, job| { job.failed_with("Gone"); }),
        ];
        for (line, check) in checks {
            let run = harness.assert(&run).await.unwrap();
            let job = harness.assert_job(job).await.unwrap();
            let (place, said) = panic_of(move || check(run, job));
            assert!(
                place.starts_with(&format!("{}:{line}:", file!())),
                "{place}: {said}"
            );
        }
    })
    .await;
}

#[derive(Debug, Serialize, Deserialize, Job)]
struct Wide {
    width: u64,
}

impl Perform for Wide {
    type Input = ();
    type Output = ();
    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

/// The join of two steps, of which the test holds one.
fn two_of_three() -> Pipeline<usize> {
    Pipeline::configure("two_of_three", |p| {
        let hd = p.step("hd", Download { video: 1 });
        let sd = p.step("sd", Download { video: 2 });
        hd.then("size", Measure);
        sd.then("length", Measure).delay(HOUR)
    })
    .unwrap()
}

#[tokio::test]
async fn a_held_step_waits_while_everything_else_runs() {
    with_database(async |db| {
        let harness = harness(db, |it| {
            it.fake(|job: Download, ()| Ok(format!("{}.mkv", job.video)))
        })
        .await;
        let size = harness.hold_step("size");
        let run = harness.client().start(two_of_three()).await.unwrap();
        // It is held as long as the test wants, and time passes for all others.
        for _ in 0..2 {
            let idle = harness.skip_waits().await.unwrap();
            assert!(idle.waiting[0].is_held, "{idle}");
            assert_eq!(
                idle.to_string(),
                "step `size` of run 1 (`measure`) is held by the test, 1 of 3 attempts begun"
            );
            harness
                .assert(&run)
                .await
                .unwrap()
                .running()
                .step("hd")
                .succeeded()
                .step("size")
                .enqueued()
                .attempts(0)
                .step("length")
                .succeeded();
        }
        size.release();
        assert!(harness.run_until_idle().await.unwrap().is_done());
        harness
            .assert(&run)
            .await
            .unwrap()
            .succeeded()
            .step("size")
            .attempts(1)
            .returned(5);
    })
    .await;
}

/// `Measure` times out after 50 ms.
#[tokio::test]
async fn the_timeout_of_a_held_step_does_not_pass_and_a_held_run_can_be_cancelled() {
    with_database(async |db| {
        let harness = harness(db, |it| {
            it.fake_with(|job: Download, (), _| async move {
                tokio::time::sleep(Duration::from_millis(200 * (job.video - 1))).await;
                Ok(String::new())
            })
        })
        .await;
        let held = harness.hold_step("size");
        let run = harness.client().start(two_of_three()).await.unwrap();
        harness.run_until_idle().await.unwrap();
        harness
            .assert(&run)
            .await
            .unwrap()
            .step("size")
            .enqueued()
            .attempts(0)
            .step("sd")
            .succeeded();
        run.cancel().await.unwrap();
        assert!(harness.run_until_idle().await.unwrap().is_done());
        harness
            .assert(&run)
            .await
            .unwrap()
            .cancelled()
            .step("size")
            .cancelled()
            .step("length")
            .cancelled();
        drop(held);
    })
    .await;
}

#[tokio::test]
async fn steps_that_take_all_slots_while_they_are_held_leave_the_rest_ready() {
    with_database(async |db| {
        let harness = harness(db, |it| {
            it.slots(1).fake(|_: Download, ()| Ok(String::new()))
        })
        .await;
        let held = ["hd", "sd"].map(|step| harness.hold_step(step));
        let run = harness.client().start(two_of_three()).await.unwrap();
        let idle = harness.run_until_idle().await.unwrap();
        let at_the_hold = idle.waiting.iter().filter(|job| job.is_held).count();
        assert_eq!((idle.waiting.len(), at_the_hold), (2, 1), "{idle}");
        harness.assert(&run).await.unwrap().step("size").pending();
        drop(held);
        assert!(harness.skip_waits().await.unwrap().is_done());
        harness.assert(&run).await.unwrap().succeeded();
    })
    .await;
}

#[tokio::test]
async fn a_hold_of_a_step_that_no_pipeline_has_is_an_error() {
    with_database(async |db| {
        let harness = harness(db, |it| it.fake(|_: Download, ()| Ok(String::new()))).await;
        harness.client().start(video()).await.unwrap();
        let (line, held) = (line!(), harness.hold_step("mesure"));
        let error = harness.run_until_idle().await.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("{}:{line}:", file!())),
            "{error}"
        );
        assert!(
            error.contains("are `download`, `measure`; correct"),
            "{error}"
        );
        held.release();
        assert!(harness.run_until_idle().await.unwrap().is_done());
    })
    .await;
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Job)]
#[job(queue = "mail", max_attempts = 1)]
struct Welcome {
    user: u64,
}

impl Perform for Welcome {
    type Input = ();
    type Output = ();
    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        match self.user {
            13 => Err(JobError::new("NoMailbox", "user 13 has no mailbox")),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn jobs_are_checked_before_and_after_they_run() {
    with_database(async |db| {
        let harness = Harness::on(db.pool().clone()).register::<Welcome>();
        let harness = harness.build().await.unwrap();
        let client = harness.client();
        let jobs = async || harness.assert_jobs::<Welcome>().await.unwrap();
        jobs().await.none();
        let later = NewJob::new(&Welcome { user: 7 }).delay(HOUR).priority(3);
        client.enqueue(later).await.unwrap();
        let bad = client.enqueue(Welcome { user: 13 }).await.unwrap().id;
        jobs().await.count(2).enqueued().count(2);
        assert_eq!(jobs().await.args(), [Welcome { user: 7 }, Welcome { user: 13 }]);
        let seven = async || jobs().await.with(|job| job.user == 7).only();
        seven()
            .await
            .scheduled()
            .queue("mail")
            .priority(3)
            .due_in(HOUR)
            .with_args(&Welcome { user: 7 })
            .attempts(0);
        harness.assert_job(bad).await.unwrap().ready();
        harness.run_until_idle().await.unwrap();
        harness
            .assert_job(bad)
            .await
            .unwrap()
            .failed()
            .failed_with("NoMailbox")
            .says("no mailbox")
            .attempts(1);
        seven().await.due_in(HOUR);
        harness.skip_waits().await.unwrap();
        seven().await.succeeded().attempts(1);
        jobs().await.count(2).enqueued().none();
        harness.assert_job(4711.into()).await.unwrap_err();

        let all = AssertUnwindSafe(jobs().await);
        let (_, said) = panic_of(move || drop({ all }.0.only()));
        let listed = format!(
            "2 jobs of `welcome`, and there should be exactly one\n\n  job 1 of `welcome`: succeeded in queue `mail`, \
             priority 3, attempt 1 of 1\n  job {bad} of `welcome`: failed in queue `mail`, priority 0, attempt 1 of 1, \
             NoMailbox: user 13 has no mailbox"
        );
        assert_eq!(said, listed);
    })
    .await;
}

#[tokio::test]
async fn batches_are_checked_before_and_after_they_finish() {
    with_database(async |db| {
        let harness = Harness::on(db.pool().clone()).register::<Welcome>();
        let harness = harness.build().await.unwrap();
        let users = [1, 2, 13].map(|user| Welcome { user });
        let batch = harness.client().batch().jobs(users).await.unwrap();
        let state = async || harness.assert_batch(&batch).await.unwrap();
        state().await.unfinished().total(3).succeeded(0).failed(0);
        let jobs = harness.assert_jobs::<Welcome>().await.unwrap();
        jobs.with(|job| job.user == 2).only().in_batch(&batch);
        harness.run_until_idle().await.unwrap();
        state().await.finished().total(3).succeeded(2).failed(1);
        let seen = AssertUnwindSafe(state().await);
        let (_, said) = panic_of(move || drop({ seen }.0.failed(2)));
        let wanted = format!(
            "batch {0} has 1 failed jobs, and should have 2\n\nbatch {0}: finished, 3 jobs, 3 ended, 1 failed",
            batch.id()
        );
        assert_eq!(said, wanted);
    })
    .await;
}

#[tokio::test]
async fn errors_print_their_remedy_and_not_their_fields_when_a_test_returns_them() {
    with_database(async |db| {
        let harness = harness(db, |it| it.fake(|_: Download, ()| Ok(String::new()))).await;
        let run = harness.client().start(video()).await.unwrap();
        harness.run_until_idle().await.unwrap();
        let errors: [Error; 4] = [
            run.reopen().await.unwrap_err(),
            run.cancel().await.unwrap_err(),
            harness.client().run(99.into()).state().await.unwrap_err(),
            harness.client().start(video()).key("").await.unwrap_err(),
        ];
        for error in errors {
            let boxed: Box<dyn std::error::Error> = Box::new(error);
            assert_eq!(format!("{boxed:?}"), boxed.to_string());
            assert!(!format!("{boxed:?}").contains(" { "), "{boxed:?}");
        }
        let invalid = Pipeline::configure("empty", |_| {}).unwrap_err();
        let said = invalid.to_string();
        assert!(said.ends_with("declare at least one"), "{said}");
        assert_eq!(format!("{invalid:?}"), said);
        let problem = &invalid.problems()[0];
        assert_eq!(format!("{problem:?}"), problem.to_string());
        assert_eq!(format!("{:?}", Error::from(invalid)), said);
        let unknown = "lost".parse::<RunStatus>().unwrap_err();
        assert_eq!(format!("{unknown:?}"), unknown.to_string());
    })
    .await;
}

/// A handler as an application has it: it starts a run, and waits for its output.
async fn post_video(client: pipeline::Client, key: &'static str) -> pipeline::Result<usize> {
    let run = client.start(video()).key(key).await?;
    run.wait().await?;
    run.output().await
}

#[tokio::test]
async fn a_handler_that_waits_for_its_run_is_answered_while_the_harness_runs() {
    with_database(async |db| {
        let harness = harness(db, |it| it.fake(|_: Download, ()| Ok("7.mkv".to_owned()))).await;
        let handler = tokio::spawn(post_video(harness.client().clone(), "video-7"));
        while !handler.is_finished() {
            harness.run_until_idle().await.unwrap();
        }
        assert_eq!(handler.await.unwrap().unwrap(), 5);
        let run = harness.client().run_by_key("video", "video-7").await;
        harness
            .assert(&run.unwrap().unwrap())
            .await
            .unwrap()
            .succeeded();
    })
    .await;
}
