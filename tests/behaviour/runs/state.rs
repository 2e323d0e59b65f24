//! The state of a run and its steps with the reasons, and the attempts of a step.

use std::time::Duration;

use pipeline::jobs::{Backoff, JobStatus, Outcome};
use pipeline::{
    Client, Continue, Error, NodeKind, Pipeline, Run, RunFilter, RunStatus, StepReason, StepStatus,
    Worker,
};
use serde_json::json;
use tests::with_database;

use super::support::{Running, What, act, eventually};
use crate::graphs::topologies::shapes::{Add, Break, Decide, Make, Mend, OrElse, ParityArms};

fn numbers(worker: Worker) -> Worker {
    worker.register::<(Make, Add, Break, Decide, Mend, OrElse)>()
}

/// The reason for the status of each step that has one.
async fn whys<O>(run: &Run<O>) -> Vec<(String, StepStatus, String)> {
    let steps = run.state().await.unwrap().steps.into_iter();
    let whys = steps.filter_map(|step| Some((step.key, step.status, step.reason?.to_string())));
    whys.collect()
}

fn why(key: &str, status: StepStatus, why: &str) -> (String, StepStatus, String) {
    (key.to_owned(), status, why.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_tells_where_it_and_its_steps_stand() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("a", What::Wait);
        let pipeline = Pipeline::configure("two", |p| {
            p.deadline(Duration::from_secs(3_600));
            let a = p.step("a", act("a")).queue("media").max_attempts(4);
            p.following(&a).step("b", act("b"))
        });
        let run = it
            .client
            .start(pipeline.unwrap())
            .actor("somebody")
            .tag("blue")
            .key("k")
            .await
            .unwrap();
        it.script.says("a").await;

        let state = run.state().await.unwrap();
        assert_eq!((state.id, &*state.pipeline), (run.id(), "two"));
        assert_eq!((state.status, state.round), (RunStatus::Running, 1));
        assert_eq!(state.actor.as_deref(), Some("somebody"));
        assert_eq!(
            (&*state.tags, state.key.as_deref()),
            (&["blue".to_owned()][..], Some("k"))
        );
        assert_eq!(state.started_at, Some(state.created_at));
        assert!(state.deadline_at > state.started_at && state.ended_at.is_none());
        let keys: Vec<&str> = state.steps.iter().map(|step| &*step.key).collect();
        assert_eq!(keys, ["a", "b"]);
        let a = state.step("a").unwrap();
        assert_eq!((a.kind.as_str(), a.job.as_deref()), ("job", Some("act")));
        assert_eq!(
            (a.queue.as_deref(), a.status),
            (Some("media"), StepStatus::Enqueued)
        );
        assert_eq!(
            (a.in_queue, a.attempt, a.max_attempts),
            (Some(JobStatus::Running), 1, Some(4))
        );
        assert!(a.enqueued_at.is_some() && a.ended_at.is_none() && a.reason.is_none());
        let b = state.step("b").unwrap();
        assert_eq!(
            (b.status, b.in_queue, b.attempt),
            (StepStatus::Pending, None, 0)
        );
        assert!(b.enqueued_at.is_none());
        assert!(state.step("c").is_none());

        it.script.let_through("a");
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        assert_eq!(run.status().await.unwrap(), RunStatus::Succeeded);
        let state = run.state().await.unwrap();
        assert_eq!(state.status, RunStatus::Succeeded);
        let (a, b) = (state.step("a").unwrap(), state.step("b").unwrap());
        assert_eq!(
            (a.status, a.in_queue, a.attempt),
            (StepStatus::Succeeded, None, 1)
        );
        assert_eq!(a.started_at, a.ended_at.map(|end| end - a.ran.unwrap()));
        assert!(a.ended_at <= b.enqueued_at && b.ended_at == state.ended_at);
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_tried_again_says_what_was_tried() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("a", What::Fail);
        let pipeline = Pipeline::configure("retried", |p| {
            let wait = Backoff::fixed(Duration::from_secs(3_600));
            p.step("a", act("a")).max_attempts(3).backoff(wait)
        });
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        let a = eventually("it has failed once", async || {
            let state = run.state().await.unwrap();
            let a = state.step("a").unwrap().clone();
            (a.in_queue == Some(JobStatus::Scheduled)).then_some(a)
        })
        .await;
        assert_eq!(
            (a.status, a.attempt, a.max_attempts),
            (StepStatus::Enqueued, 1, Some(3))
        );
        let error = a.error.unwrap();
        assert_eq!(
            (&*error.step, &*error.class, &*error.message),
            ("a", "Told", "told to fail")
        );

        it.script.tell("a", What::Succeed);
        db.move_clock(Duration::from_secs(3_601)).await;
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        let tried = run.attempts("a").await.unwrap();
        let told: Vec<(u16, &str, bool)> = tried
            .iter()
            .map(|it| (it.attempt, it.outcome.as_str(), it.error_class.is_some()))
            .collect();
        assert_eq!(told, [(1, "retried", true), (2, "succeeded", false)]);
        assert!(tried[0].ended_at < tried[1].ended_at && tried[1].ran.is_some());
        let state = run.state().await.unwrap();
        let a = state.step("a").unwrap();
        assert_eq!((a.attempt, a.error.is_none()), (2, true));
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_failed_says_why_and_so_do_those_that_did_not_run() {
    use StepStatus::Skipped;
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("a", What::Fail);
        let declare = |name: &str, goes_on: bool| {
            Pipeline::configure(name, |p| {
                let a = p.step("a", act("a"));
                if goes_on {
                    p.failure_strategy(Continue);
                }
                let b = p.following(&a).step("b", act("b"));
                p.following(&b).step("c", act("c"));
            })
            .unwrap()
        };
        let halted = it.client.start(declare("halted", false)).await.unwrap();
        assert_eq!(halted.wait().await.unwrap(), RunStatus::Halted);
        let by_a = "`a` failed and halted the run";
        let told = [why("b", Skipped, by_a), why("c", Skipped, by_a)];
        assert_eq!(whys(&halted).await, told);
        let state = halted.state().await.unwrap();
        let a = state.step("a").unwrap();
        assert_eq!(a.error.as_ref().unwrap().message, "told to fail");
        let tried = halted.attempts("a").await.unwrap();
        assert_eq!((tried.len(), tried[0].outcome), (1, Outcome::Failed));
        assert_eq!(halted.attempts("b").await.unwrap().len(), 0);

        let broken = it.client.start(declare("broken", true)).await.unwrap();
        assert_eq!(broken.wait().await.unwrap(), RunStatus::Failed);
        let told = [
            why("b", Skipped, "`a` before it did not succeed"),
            why("c", Skipped, "`b` before it did not succeed"),
        ];
        assert_eq!(whys(&broken).await, told);

        it.script.tell("a", What::EndRun);
        let early = it.client.start(declare("early", false)).await.unwrap();
        assert_eq!(early.wait().await.unwrap(), RunStatus::Succeeded);
        let by_a = "`a` ended the run early";
        let told = [why("b", Skipped, by_a), why("c", Skipped, by_a)];
        assert_eq!(whys(&early).await, told);
        assert_eq!(
            early.attempts("a").await.unwrap()[0].outcome,
            Outcome::EndedOwner
        );

        it.script.tell("a", What::Wait);
        let cancelled = it.client.start(declare("cancelled", false)).await.unwrap();
        eventually("it runs", async || {
            (it.script.count("a") == 4).then_some(())
        })
        .await;
        cancelled.cancel().await.unwrap();
        assert_eq!(cancelled.wait().await.unwrap(), RunStatus::Cancelled);
        let state = cancelled.state().await.unwrap();
        assert_eq!(state.step("c").unwrap().reason, Some(StepReason::Cancelled));
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_failures_and_first_ones_say_what_was_decided() {
    use StepStatus::{Skipped, SkippedByBranch, Succeeded};
    with_database(async |db| {
        let it = Running::start_with(db, numbers);
        let pipeline = Pipeline::configure("decided", |p| {
            p.failure_strategy(Continue);
            let number = p.step("number", Make(4));
            let arms = ParityArms {
                even: || number.then("halve", Add(-2)),
                odd: || number.then("raise", Add(1)),
            };
            number.branch("decide", Decide, arms);
            p.after_failure(&number).step("mend", Mend(1));
            let (one, other) = (number.then("one", Break), number.then("other", Break));
            p.after_any([&one, &other]).step("none", Add(1));
            p.after_any([&one, &number]).step("first", Add(1));
        });
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Failed);
        let mut told = whys(&run).await;
        told.sort();
        let expected = [
            why("first", Succeeded, "`number` was the first to succeed"),
            why("mend", SkippedByBranch, "`number` did not fail"),
            why("none", Skipped, "none of the steps before it succeeded"),
            why("raise", SkippedByBranch, "`decide` chose another arm"),
        ];
        assert_eq!(told, expected);
        let state = run.state().await.unwrap();
        let decide = state.step("decide").unwrap();
        assert_eq!(
            (decide.kind.as_str(), decide.arm.as_deref()),
            ("branch", Some("Even"))
        );
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_of_a_run_is_json_too() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("a", What::Fail);
        let pipeline = Pipeline::configure("two", |p| {
            let a = p.step("a", act("a")).max_attempts(2);
            p.following(&a).step("b", act("b"));
        });
        let run = it.client.start(pipeline.unwrap()).tag("t").await.unwrap();
        run.wait().await.unwrap();
        let state = serde_json::to_value(run.state().await.unwrap()).unwrap();
        assert_eq!(state["id"], run.id().get());
        assert_eq!(
            (&state["status"], &state["tags"]),
            (&json!("halted"), &json!(["t"]))
        );
        let (a, b) = (&state["steps"][0], &state["steps"][1]);
        assert_eq!((&a["kind"], &a["key"]), (&json!("job"), &json!("a")));
        assert!(a["ran_ms"].is_u64() && b["ran_ms"].is_null(), "{a}");
        assert_eq!(
            a["error"],
            json!({ "step": "a", "class": "Told", "message": "told to fail" })
        );
        assert_eq!(b["reason"], json!({ "kind": "halted_by", "step": "a" }));
        let tried = serde_json::to_value(run.attempts("a").await.unwrap()).unwrap();
        let outcomes = [&tried[0]["outcome"], &tried[1]["outcome"]];
        assert_eq!(outcomes, [&json!("retried"), &json!("failed")]);
        let events = serde_json::to_value(run.events().await.unwrap()).unwrap();
        assert_eq!(
            (&events[1]["step"], &events[1]["status"]),
            (&json!("a"), &json!("failed"))
        );
        let page = it.client.runs(&RunFilter::new()).await.unwrap();
        let page = serde_json::to_value(page).unwrap();
        assert_eq!(page["items"][0]["pipeline"], "two");
        it.stop().await;
    })
    .await;
}

#[tokio::test]
async fn the_words_are_those_of_the_database() {
    with_database(async |db| {
        fn words<W: ToString>(all: &[W]) -> Vec<String> {
            all.iter().map(W::to_string).collect()
        }
        for (name, expected) in [
            ("job_status", words(JobStatus::ALL)),
            ("run_status", words(RunStatus::ALL)),
            ("step_status", words(StepStatus::ALL)),
            ("node_kind", words(NodeKind::ALL)),
        ] {
            let found: Vec<String> = sqlx::query_scalar(
                "select enumlabel::text from pg_enum
                 where enumtypid = ('pipeline.' || $1)::regtype order by enumsortorder",
            )
            .bind(name)
            .fetch_all(db.pool())
            .await
            .unwrap();
            assert_eq!(found, expected, "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    with_database(async |db| {
        let client = Client::new(db.pool().clone());
        let nobody = client.run(99.into());
        let errors = [
            nobody.state().await.unwrap_err(),
            nobody.status().await.unwrap_err(),
            nobody.attempts("a").await.unwrap_err(),
            nobody.events().await.unwrap_err(),
            nobody.output().await.unwrap_err(),
            nobody.output_of::<u8>("a").await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(
                error.to_string(),
                "there is no run 99 in this database: it never existed, or it was deleted; a run that a transaction \
                 starts becomes visible when the transaction commits"
            );
        }
        let many = Pipeline::configure("many", |p| {
            for n in 0..25 {
                p.step(&format!("s{n}"), act("s"));
            }
        });
        let run = client.start(many.unwrap()).await.unwrap();
        let error = run.attempts("s25").await.unwrap_err().to_string();
        assert!(
            error.contains("of `many` has no step `s25`: it has `s0`, `s1`, "),
            "{error}"
        );
        assert!(error.ends_with("`s19` and 5 more"), "{error}");
        let error = run.output_of::<u8>("x").await.unwrap_err();
        assert!(matches!(error, Error::NoStep { .. }), "{error}");
    })
    .await;
}

#[test]
fn a_text_that_is_no_status_is_told_which_there_are() {
    let error = "done".parse::<RunStatus>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "`done` is not a status of a run: use one of pending, running, cancelling, succeeded, failed, \
         halted, cancelled, skipped"
    );
    let error = "done".parse::<StepStatus>().unwrap_err().to_string();
    assert!(
        error.contains("of a step: use one of pending, enqueued,"),
        "{error}"
    );
}
