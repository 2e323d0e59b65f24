//! What a reopened run runs again: error paths, early ends, ignored failures.

use pipeline::{Continue, Error, Ignore, Pipeline, Run};
use tests::with_database;

use super::support::{Running, What, act};

/// `sorry` and `log` come after a failure of `bad`.
fn with_error_path() -> Pipeline {
    Pipeline::configure("with_error_path", |p| {
        let first = p.step("first", act("first"));
        let bad = p.following(&first).step("bad", act("bad"));
        let sorry = p.after_failure(&bad).step("sorry", act("sorry"));
        p.following(&sorry).step("log", act("log"));
    })
    .unwrap()
}

async fn output_of(run: &Run, step: &str) -> Option<String> {
    run.output_of::<String>(step).await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_path_that_ran_is_not_taken_if_its_step_succeeds_in_the_next_round() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("bad", What::Fail);
        let run = it.client.start(with_error_path()).await.unwrap();
        it.becomes(&run, "halted").await;
        assert_eq!(output_of(&run, "sorry").await.as_deref(), Some("sorry"));
        it.script.tell("bad", What::Succeed);
        run.reopen().await.unwrap();
        it.becomes(&run, "succeeded").await;
        let steps = it.steps(&run).await;
        assert!(
            steps.contains(&"sorry skipped_by_branch".to_owned()),
            "{steps:?}"
        );
        assert_eq!(output_of(&run, "sorry").await, None, "not of this round");
        assert_eq!((it.script.count("first"), it.script.count("sorry")), (1, 1));
        assert_eq!(it.script.count("log"), 2, "it comes after the error path");
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_path_runs_again_if_its_step_fails_again() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("bad", What::Fail);
        let run = it.client.start(with_error_path()).await.unwrap();
        for round in 1..=3 {
            it.becomes(&run, "halted").await;
            assert_eq!(
                (it.script.count("sorry"), it.script.count("log")),
                (round, round)
            );
            run.reopen().await.unwrap();
        }
        it.becomes(&run, "halted").await;
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_path_of_a_step_that_was_skipped_runs_if_the_step_fails_in_the_next_round() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("first", What::Fail);
        let run = it.client.start(with_error_path()).await.unwrap();
        it.becomes(&run, "halted").await;
        assert_eq!(it.script.count("sorry"), 0);
        it.script.tell("first", What::Succeed);
        it.script.tell("bad", What::Fail);
        run.reopen().await.unwrap();
        it.becomes(&run, "halted").await;
        assert_eq!(it.script.count("sorry"), 1);
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_early_end_left_out_stays_left_out_when_the_run_is_reopened() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("early", What::EndRun);
        it.script.tell("bad", What::Wait);
        let pipeline = Pipeline::configure("early_end", |p| {
            p.failure_strategy(Continue);
            let early = p.step("early", act("early"));
            let bad = p.step("bad", act("bad"));
            p.following(&early).step("after_early", act("after_early"));
            p.following(&bad).step("after_bad", act("after_bad"));
            p.after_failure(&bad).step("sorry", act("sorry"));
        });
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        it.script.says("bad").await;
        super::support::eventually("the early end", async || {
            let steps = it.steps(&run).await;
            steps.contains(&"early ended_run".to_owned()).then_some(())
        })
        .await;
        // `bad` is stopped by a cancel: a cancelled step runs again in the next round.
        run.cancel().await.unwrap();
        it.becomes(&run, "cancelled").await;
        it.script.tell("bad", What::Fail);
        for status in ["failed", "succeeded"] {
            run.reopen().await.unwrap();
            it.becomes(&run, status).await;
            for step in ["after_early", "after_bad", "sorry"] {
                let steps = it.steps(&run).await;
                assert!(steps.contains(&format!("{step} skipped")), "{steps:?}");
                assert_eq!(it.script.count(step), 0);
            }
            it.script.tell("bad", What::Succeed);
        }
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_failed_only_by_ignored_steps_says_so_and_is_reopened_by_naming_them() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("thumb", What::Fail);
        it.script.tell("extra", What::Fail);
        let pipeline = Pipeline::configure("ignored", |p| {
            p.step("main", act("main"));
            p.step("thumb", act("thumb")).failure_strategy(Ignore);
            p.step("extra", act("extra")).optional();
        });
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        it.becomes(&run, "failed").await;
        let before = run.state().await.unwrap();
        let refused = run.reopen().await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!(
                "run {} failed only by steps whose failures are ignored (`thumb`), and would fail again at once: \
                 name the steps to run again, as in `run.reopen().step(\"thumb\")`",
                run.id()
            )
        );
        assert!(matches!(refused, Error::OnlyIgnored { .. }));
        let after = run.state().await.unwrap();
        assert_eq!((after.round, after.status), (before.round, before.status));
        it.script.tell("thumb", What::Succeed);
        run.reopen().step("thumb").await.unwrap();
        it.becomes(&run, "succeeded").await;
        assert_eq!((it.script.count("main"), it.script.count("thumb")), (1, 2));
        it.stop().await;
    })
    .await;
}
