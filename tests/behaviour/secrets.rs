//! What users put into jobs, inputs and outputs stays there: no `Debug` shows it, and no error that is
//! stored, given to callbacks or logged quotes it.

use apalis_core::layers::Service as _;
use apalis_core::task::builder::TaskBuilder;
use jobs::extension::{Claimed, Input, InputValue};
use jobs::testing::{ManualEngine, Outcome};
use jobs::{Context, Envelope, Job, JobError, NewJob, Perform};
use pipeline::testing::Harness;
use pipeline::{Continue, NewRun, Pipeline, RunEnded, RunStatus};
use serde::{Deserialize, Serialize};
use tests::with_database;

use crate::jobs::support::{client, ended};
use crate::logged::Captured;
use crate::runs::support::{Running, Script};

const SECRET: &str = "swordfish";

/// Returns what it holds.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
struct Whisper {
    secret: String,
}

impl Perform for Whisper {
    type Input = ();
    type Output = String;

    async fn perform(self, (): (), _: &Context) -> Result<String, JobError> {
        Ok(self.secret)
    }
}

fn whisper() -> Whisper {
    Whisper {
        secret: SECRET.to_owned(),
    }
}

fn claimed() -> Claimed {
    let mut claimed = Claimed::handed_over(7, 8, "whisper".to_owned(), "default".to_owned());
    claimed.args = serde_json::to_string(&whisper()).unwrap();
    claimed
}

#[track_caller]
fn hides(shown: &str) {
    assert!(!shown.contains(SECRET), "{shown}");
    assert!(!shown.is_empty());
}

#[tokio::test]
async fn no_debug_shows_the_data_of_a_job() {
    with_database(async |db| {
        let json = serde_json::to_string(SECRET).unwrap();
        let client = client(db);
        let new = NewJob::new(&whisper());
        hides(&format!("{new:?}"));
        assert!(
            format!("{new:?}").contains("args: Some(22 bytes)"),
            "{new:?}"
        );
        hides(&format!("{:?}", client.batch().on_finish(whisper())));
        let job = client.enqueue(new).await.unwrap().id;
        let info = client.job(job).info().await.unwrap().unwrap();
        assert!(info.args.to_string().contains(SECRET));
        hides(&format!("{info:?}"));

        let given = || {
            InputValue::Many(vec![
                InputValue::Value(json.clone()),
                InputValue::Present(json.clone()),
            ])
        };
        hides(&format!("{:?}", given()));
        assert_eq!(
            format!("{:?}", given()),
            "Many([Value(11 bytes), Present(11 bytes)])"
        );
        for input in [Input::Json(json.clone()), Input::Value(given())] {
            hides(&format!("{input:?}"));
            let mut claimed = claimed();
            claimed.input = input;
            hides(&format!("{claimed:?}"));
        }
        let end = ManualEngine::end(&claimed(), &Outcome::Success(json.clone()));
        assert!(end.output().unwrap().get().contains(SECRET));
        hides(&format!("{end:?}"));

        let worker = jobs::Worker::new(db.pool().clone())
            .register::<Whisper>()
            .queue("default", 1);
        let (_, _, mut performer) = worker.into_backend().unwrap();
        let envelope = serde_json::to_value(claimed()).unwrap();
        let envelope: Envelope = serde_json::from_value(envelope).unwrap();
        hides(&format!("{envelope:?}"));
        let output = performer.call(TaskBuilder::new(envelope).build()).await;
        assert_eq!(format!("{:?}", output.unwrap()), "Output(11 bytes)");
    })
    .await;
}

#[tokio::test]
async fn no_debug_shows_the_data_of_a_run() {
    with_database(async |db| {
        let harness = Harness::on(db.pool().clone()).register::<Whisper>();
        let harness = harness.build().await.unwrap();
        let pipeline = || Pipeline::configure("p", |p| p.step("a", whisper())).unwrap();
        hides(&format!("{:?}", pipeline()));
        hides(&format!("{:?}", NewRun::new(pipeline())));
        hides(&format!("{:?}", harness.client().start(pipeline())));
        hides(&format!(
            "{:?}",
            harness.client().start((pipeline(), pipeline()))
        ));
        let run = harness.client().start(pipeline()).await.unwrap();
        harness.run_until_idle().await.unwrap();
        assert_eq!(run.output().await.unwrap(), SECRET);
        hides(&format!("{run:?}"));
        hides(&format!("{:?}", run.state().await.unwrap()));
        hides(&format!("{:?}", harness.assert(&run).await.unwrap()));
    })
    .await;
}

/// What is stored for one type and read by another.
mod old {
    use super::*;

    #[derive(Debug, Clone, Serialize, Deserialize, Job)]
    #[job(name = "unlock")]
    pub(super) struct Unlock {
        pub(super) pin: String,
        pub(super) mode: String,
    }

    impl Perform for Unlock {
        type Input = ();
        type Output = String;

        async fn perform(self, (): (), _: &Context) -> Result<String, JobError> {
            Ok(self.pin)
        }
    }

    #[derive(Debug, Clone, Serialize, Deserialize, Job)]
    #[job(name = "open")]
    pub(super) struct Open;

    impl Perform for Open {
        type Input = (String, String);
        type Output = ();

        async fn perform(self, _: (String, String), _: &Context) -> Result<(), JobError> {
            Ok(())
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "unlock")]
struct Unlock {
    pin: String,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Slowly,
    Quickly,
}

impl Perform for Unlock {
    type Input = ();
    type Output = String;

    async fn perform(self, (): (), _: &Context) -> Result<String, JobError> {
        Ok(self.pin)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "open")]
struct Open;

impl Perform for Open {
    type Input = (String, u32);
    type Output = ();

    async fn perform(self, _: (String, u32), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

/// A callback that writes down all it was told.
#[derive(Debug, Serialize, Deserialize, Job)]
struct Report;

impl Perform for Report {
    type Input = RunEnded;
    type Output = ();

    async fn perform(self, told: RunEnded, cx: &Context) -> Result<(), JobError> {
        for failed in told.failed {
            let (step, class, message) = (failed.step, failed.class, failed.message);
            cx.data::<Script>()?
                .write(format!("{step} {class}: {message}"));
        }
        cx.data::<Script>()?.write("reported".to_owned());
        Ok(())
    }
}

/// On one thread: the test's own.
#[tokio::test]
async fn what_does_not_decode_is_told_by_its_place_and_its_type_and_never_quoted() {
    Captured::begin();
    with_database(async |db| {
        let it = Running::start_with(db, |worker| worker.register::<(Unlock, Open, Report)>());
        let unlock = |mode: &str| old::Unlock {
            pin: SECRET.to_owned(),
            mode: mode.to_owned(),
        };
        let job = it.client.enqueue(unlock(SECRET)).await.unwrap().id;
        let job = ended(db, job).await;
        assert_eq!(job.error_class.as_deref(), Some("Undecodable"));
        let said = job.error_message.unwrap();
        hides(&said);
        assert!(
            said.starts_with(
                "the arguments of `unlock` cannot be decoded at `mode`: unknown variant, expected \
                 `slowly` or `quickly` (line 1, column "
            ) && said.ends_with(
                "; let the type take what is stored, then retry the job, or reopen its run"
            ),
            "{said}"
        );
        for attempt in it.client.job(job.id).attempts().await.unwrap() {
            hides(&format!("{attempt:?}"));
        }

        let pipeline = Pipeline::configure("vault", |p| {
            p.failure_strategy(Continue);
            p.on_complete(Report);
            p.step("told", unlock(SECRET));
            let pin = p.step("pin", unlock("slowly"));
            p.after((&pin, &pin)).step("open", old::Open);
            pin
        });
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Failed);
        it.script.says("reported").await;
        let told = it.script.log();
        let open = "open Undecodable: the input of `open` cannot be decoded at `[1]`: invalid type: \
                    string, expected u32";
        assert!(told.iter().any(|line| line.starts_with(open)), "{told:#?}");
        assert!(told.iter().any(|line| line.starts_with("told Undecodable: ")));
        hides(&told.join("\n"));
        hides(&format!("{:?}", run.state().await.unwrap()));
        for step in ["told", "open"] {
            hides(&format!("{:?}", run.attempts(step).await.unwrap()));
        }

        let wrong = it.client.run(run.id()).returning::<u32>();
        let error = wrong.output().await.unwrap_err();
        hides(&format!("{error} {error:?}"));
        assert_eq!(
            error.to_string(),
            format!(
                "the output of step `pin` of run {} cannot be decoded at `.`: invalid type: string, \
                 expected u32 (line 1, column 11); ask for the type that the step returned",
                run.id()
            )
        );
        it.stop().await;
        hides(&Captured::text());
    })
    .await;
}
