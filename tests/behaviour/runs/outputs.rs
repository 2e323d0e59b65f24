//! The typed output of a run, and the outputs of its steps.

use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Client, Continue, Error, Ignore, Pipeline, Run, RunStatus, StepStatus, Worker};
use serde::{Deserialize, Serialize};
use tests::with_database;

use super::support::{Running, What, act};
use crate::graphs::topologies::shapes::{Add, Decide, Make, OrElse, Parity, ParityArms};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Size {
    width: u32,
}

/// Returns a struct.
#[derive(Debug, Serialize, Deserialize, Job)]
struct Measure;

impl Perform for Measure {
    type Input = ();
    type Output = Size;
    async fn perform(self, (): (), _: &Context) -> Result<Size, JobError> {
        Ok(Size { width: 7 })
    }
}

/// Returns nothing, or `None`.
#[derive(Debug, Serialize, Deserialize, Job)]
struct Quiet;

impl Perform for Quiet {
    type Input = ();
    type Output = Option<u8>;
    async fn perform(self, (): (), _: &Context) -> Result<Option<u8>, JobError> {
        Ok(None)
    }
}

fn more(worker: Worker) -> Worker {
    worker.register::<(Make, Add, Decide, OrElse, Measure, Quiet)>()
}

/// A run that has ended so.
async fn ended<O: Send>(it: &Running, pipeline: Pipeline<O>, status: RunStatus) -> Run<O> {
    let run = it.client.start(pipeline).await.unwrap();
    assert_eq!(run.wait().await.unwrap(), status);
    run
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_returns_what_its_pipeline_does() {
    with_database(async |db| {
        let it = Running::start_with(db, more);
        let nothing = Pipeline::configure("nothing", |p| {
            p.step("a", act("a"));
        });
        let run = ended(&it, nothing.unwrap(), RunStatus::Succeeded).await;
        let () = run.output().await.unwrap();

        let one = Pipeline::configure("one", |p| p.step("size", Measure)).unwrap();
        let run = ended(&it, one, RunStatus::Succeeded).await;
        assert_eq!(run.output().await.unwrap(), Size { width: 7 });

        it.script.tell("broken", What::Fail);
        let nested = Pipeline::configure("nested", |p| {
            let size = p.step("size", Measure);
            let broken = p.step("broken", act("broken")).optional();
            let fine = p.step("fine", act("fine")).optional();
            let quiet = p.step("quiet", Quiet).optional();
            let again = size.clone();
            ((size, broken), (), (fine, (quiet, again)))
        });
        let run = ended(&it, nested.unwrap(), RunStatus::Succeeded).await;
        let size = Size { width: 7 };
        let returned = run.output().await.unwrap();
        let expected = (
            (size.clone(), None),
            (),
            (Some("fine".to_owned()), (Some(None), size)),
        );
        assert_eq!(returned, expected);
        // Without its type, as JSON.
        let untyped = it.client.run(run.id()).returning::<serde_json::Value>();
        assert_eq!(
            untyped.output().await.unwrap().to_string(),
            r#"[[{"width":7},null],null,["fine",[null,{"width":7}]]]"#
        );
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_returns_what_the_chosen_arm_does() {
    with_database(async |db| {
        let it = Running::start_with(db, more);
        let declare = |number: i64| {
            Pipeline::configure("branch", |p| {
                let number = p.step("number", Make(number));
                let sure = number.branch(
                    "decide",
                    Decide,
                    ParityArms {
                        even: || number.then("halve", Add(-2)),
                        odd: || number.then("raise", Add(1)),
                    },
                );
                let maybe = number.branch(
                    "decide_again",
                    Decide,
                    ParityArms {
                        even: || number.then("more", Add(10)),
                        odd: || {},
                    },
                );
                (sure, maybe)
            })
            .unwrap()
        };
        let run = ended(&it, declare(4), RunStatus::Succeeded).await;
        assert_eq!(run.output().await.unwrap(), (2, Some(14)));
        let run = ended(&it, declare(5), RunStatus::Succeeded).await;
        assert_eq!(run.output().await.unwrap(), (6, None));
        it.stop().await;
    })
    .await;
}

/// Decides without being given anything.
#[derive(Debug, Serialize, Deserialize, Job)]
struct Choose(Parity);

impl Perform for Choose {
    type Input = ();
    type Output = Parity;
    async fn perform(self, (): (), _: &Context) -> Result<Parity, JobError> {
        Ok(self.0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_may_come_first_or_take_nothing_from_what_it_follows() {
    with_database(async |db| {
        let it = Running::start_with(db, |worker| more(worker).register::<Choose>());
        let declare = |first, second| {
            Pipeline::configure("choices", |p| {
                let arms = ParityArms {
                    even: || p.step("two", Make(2)),
                    odd: || p.step("one", Make(1)),
                };
                let first = p.branch("first", Choose(first), arms);
                let arms = ParityArms {
                    even: || p.step("twenty", Make(20)),
                    odd: || p.step("ten", Make(10)),
                };
                let second = p.following(&first).branch("second", Choose(second), arms);
                (first, second)
            })
            .unwrap()
        };
        let run = ended(
            &it,
            declare(Parity::Even, Parity::Odd),
            RunStatus::Succeeded,
        )
        .await;
        assert_eq!(run.output().await.unwrap(), (2, 10));
        let run = ended(
            &it,
            declare(Parity::Odd, Parity::Even),
            RunStatus::Succeeded,
        )
        .await;
        assert_eq!(run.output().await.unwrap(), (1, 20));
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_did_not_get_so_far_has_no_output() {
    with_database(async |db| {
        let it = Running::start_with(db, more);
        it.script.tell("a", What::Fail);
        let declare = |strategy: u8| {
            Pipeline::configure("short", |p| {
                match strategy {
                    0 => {}
                    1 => p.failure_strategy(Continue),
                    _ => p.failure_strategy(Ignore),
                }
                let a = p.step("a", act("a"));
                // An `Option` of its own is not one that may be absent.
                let quiet = p.following(&a).step("quiet", Quiet);
                (a, quiet)
            })
            .unwrap()
        };
        let no_output = |error: Error| match error {
            Error::NoOutput { step, status, .. } => (step, status),
            other => panic!("{other}"),
        };
        for (strategy, status) in [RunStatus::Halted, RunStatus::Failed, RunStatus::Failed]
            .into_iter()
            .enumerate()
        {
            let run = ended(&it, declare(u8::try_from(strategy).unwrap()), status).await;
            let error = run.output().await.unwrap_err();
            assert_eq!(no_output(error), ("a".to_owned(), StepStatus::Failed));
        }
        let halting = Pipeline::configure("halting", |p| {
            let early = p.step("early", act("early"));
            p.following(&early).step("quiet", Quiet).optional()
        });
        it.script.tell("early", What::EndRun);
        let run = ended(&it, halting.unwrap(), RunStatus::Succeeded).await;
        let error = run.output().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "step `quiet` of run {} is skipped: it has no output; `run.state()` says why; \
                 `run.reopen()` does it again",
                run.id()
            )
        );
        assert_eq!(run.output_of::<String>("early").await.unwrap(), "early");
        let error = run.output_of::<Option<u8>>("quiet").await.unwrap_err();
        assert_eq!(no_output(error), ("quiet".to_owned(), StepStatus::Skipped));
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_none_before_the_end() {
    with_database(async |db| {
        let it = Running::start_with(db, more);
        it.script.tell("b", What::Wait);
        let pipeline = Pipeline::configure("slow", |p| {
            let a = p.step("a", act("a"));
            p.following(&a).step("b", act("b"));
            a
        });
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        it.script.says("b").await;
        let error = run.output().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "run {} is running and has no output yet: wait for its end first",
                run.id()
            )
        );
        // A step's is there from its own end on.
        assert_eq!(run.output_of::<String>("a").await.unwrap(), "a");
        let error = run.output_of::<String>("b").await.unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("is enqueued: it has no output; wait until it has ended"),
            "{error}"
        );
        it.script.let_through("b");
        run.wait().await.unwrap();
        assert_eq!(run.output().await.unwrap(), "a");
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_decode_is_named_with_its_place() {
    with_database(async |db| {
        #[derive(Debug, Deserialize)]
        struct Other {
            #[allow(dead_code, reason = "only decoded")]
            width: String,
        }
        fn place<T: std::fmt::Debug>(outcome: Result<T, Error>) -> (String, String) {
            match outcome {
                Err(Error::Undecodable { step, path, .. }) => (step, path),
                other => panic!("{other:?}"),
            }
        }
        let at = |step: &str, path: &str| (step.to_owned(), path.to_owned());
        let it = Running::start_with(db, more);
        let pipeline = Pipeline::configure("typed", |p| {
            let a = p.step("a", act("a"));
            let size = p.step("size", Measure);
            (a.clone(), (size, a))
        });
        let run = ended(&it, pipeline.unwrap(), RunStatus::Succeeded).await;
        let client: &Client = &it.client;
        let wrong = client
            .run(run.id())
            .returning::<(String, (Other, String))>();
        assert_eq!(place(wrong.output().await), at("size", "width"));
        let wrong = client.run(run.id()).returning::<(String, (Size, u8))>();
        assert_eq!(place(wrong.output().await), at("a", "."));
        let wrong = client.run(run.id()).returning::<(String, Size, String)>();
        assert_eq!(place(wrong.output().await).0, "size");
        let wrong = client.run(run.id());
        assert_eq!(place(wrong.output().await).0, "a`, `size`, `a");
        assert_eq!(
            place(run.output_of::<Other>("size").await),
            at("size", "width")
        );
        it.stop().await;
    })
    .await;
}
