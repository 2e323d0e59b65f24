//! Error paths behind barriers, and `after_any` over error paths.

use pipeline::graph::spec::{Edge, Join, Takes};
use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Continue, Failure, Graph, Halt, Ignore, Pipeline, Run, StepReason};
use serde::{Deserialize, Serialize};
use tests::with_database;

use super::support::{Running, Script, What, act, eventually};

/// Writes down the failure that it is given.
#[derive(Debug, Serialize, Deserialize, Job)]
struct Sorry;

impl Perform for Sorry {
    type Input = Failure;
    type Output = ();

    async fn perform(self, failure: Failure, cx: &Context) -> Result<(), JobError> {
        let line = format!("sorry for {} {}", failure.step, failure.class);
        cx.data::<Script>()?.write(line);
        Ok(())
    }
}

fn running(db: &tests::Database) -> Running {
    Running::start_with(db, |worker| worker.register::<(Sorry,)>())
}

/// `sorry` watches `bad`, which stands before the barrier; `other` stands beside `bad`.
fn behind_a_barrier() -> Pipeline {
    Pipeline::configure("behind_a_barrier", |p| {
        let bad = p.step("bad", act("bad"));
        p.step("other", act("other"));
        p.barrier();
        let sorry = p.after_failure(&bad).step("sorry", Sorry);
        p.following(&sorry).step("log", act("log"));
        p.step("next", act("next"));
    })
    .unwrap()
}

/// Waits until a step has this status.
async fn step_becomes(it: &Running, run: &Run, step: &str) {
    eventually(step, async || {
        let steps = it.steps(run).await;
        steps.contains(&step.to_owned()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_path_behind_a_barrier_waits_for_the_rest_of_the_phase_also_after_halt() {
    with_database(async |db| {
        let it = running(db);
        it.script.tell("bad", What::Fail);
        it.script.tell("other", What::Wait);
        let run = it.client.start(behind_a_barrier()).await.unwrap();
        step_becomes(&it, &run, "bad failed").await;
        assert_eq!(
            it.steps(&run).await,
            [
                "bad failed",
                "other enqueued",
                "barrier:1 pending",
                "sorry pending",
                "log pending",
                "next skipped"
            ]
        );
        it.script.let_through("other");
        it.becomes(&run, "halted").await;
        assert_eq!(
            it.steps(&run).await,
            [
                "bad failed",
                "other succeeded",
                "barrier:1 skipped",
                "sorry succeeded",
                "log succeeded",
                "next skipped"
            ]
        );
        assert_eq!(it.script.count("sorry for bad Told"), 1);
        let state = run.state().await.unwrap();
        let why = |key: &str| {
            let step = state.steps.iter().find(|step| step.key == key);
            step.unwrap().reason.clone()
        };
        let by = "bad".to_owned();
        assert_eq!(
            why("barrier:1"),
            Some(StepReason::Broken { by: by.clone() })
        );
        assert_eq!(why("next"), Some(StepReason::HaltedBy { step: by }));
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_path_behind_a_barrier_is_not_taken_if_its_step_did_not_fail() {
    with_database(async |db| {
        let it = running(db);
        let run = it.client.start(behind_a_barrier()).await.unwrap();
        it.becomes(&run, "succeeded").await;
        assert_eq!(
            it.steps(&run).await[2..],
            [
                "barrier:1 succeeded",
                "sorry skipped_by_branch",
                "log succeeded",
                "next succeeded"
            ]
        );
        // The barrier is broken by another step.
        it.script.tell("other", What::Fail);
        let run = it.client.start(behind_a_barrier()).await.unwrap();
        it.becomes(&run, "halted").await;
        assert_eq!(
            it.steps(&run).await[2..],
            [
                "barrier:1 skipped",
                "sorry skipped_by_branch",
                "log succeeded",
                "next skipped"
            ]
        );
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_path_behind_a_barrier_runs_under_every_strategy() {
    with_database(async |db| {
        let it = running(db);
        it.script.tell("bad", What::Fail);
        for (name, status, next) in [
            ("halt", "halted", "skipped"),
            ("continue", "failed", "skipped"),
            ("ignore", "failed", "succeeded"),
            ("optional", "succeeded", "succeeded"),
        ] {
            let pipeline = Pipeline::configure("strategies", |p| {
                let bad = p.step("bad", act("bad"));
                match name {
                    "halt" => p.failure_strategy(Halt),
                    "continue" => p.failure_strategy(Continue),
                    "ignore" => p.failure_strategy(Ignore),
                    _ => drop(bad.clone().optional()),
                }
                p.barrier();
                p.after_failure(&bad).step("sorry", Sorry);
                p.step("next", act("next"));
            });
            let run = it.client.start(pipeline.unwrap()).await.unwrap();
            it.becomes(&run, status).await;
            let steps = it.steps(&run).await;
            assert_eq!(
                steps[2..],
                ["sorry succeeded".to_owned(), format!("next {next}")],
                "{name}"
            );
        }
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_path_behind_several_barriers_waits_for_all_phases_before_it() {
    with_database(async |db| {
        let it = running(db);
        it.script.tell("bad", What::Fail);
        it.script.tell("other", What::Wait);
        it.script.tell("early", What::Wait);
        let pipeline = Pipeline::configure("several", |p| {
            let bad = p.step("bad", act("bad"));
            p.step("other", act("other"));
            p.barrier();
            p.step("middle", act("middle"));
            p.after_failure(&bad).step("early", act("early"));
            p.barrier();
            p.after_failure(&bad).step("late", act("late"));
        });
        let run = it.client.start(pipeline.unwrap()).await.unwrap();
        step_becomes(&it, &run, "bad failed").await;
        assert_eq!(
            it.steps(&run).await[2..],
            [
                "barrier:1 pending",
                "middle skipped",
                "early pending",
                "barrier:2 pending",
                "late pending"
            ]
        );
        it.script.let_through("other");
        it.script.says("early").await;
        assert_eq!(
            it.steps(&run).await[2..],
            [
                "barrier:1 skipped",
                "middle skipped",
                "early enqueued",
                "barrier:2 pending",
                "late pending"
            ]
        );
        it.script.let_through("early");
        it.becomes(&run, "halted").await;
        assert_eq!(it.script.log()[2..], ["early", "late"]);
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_barrier_stops_what_comes_after_a_phase_of_error_paths() {
    with_database(async |db| {
        let it = running(db);
        it.script.tell("bad", What::Fail);
        let pipeline = || {
            let declared = Pipeline::configure("only_error_paths", |p| {
                p.failure_strategy(Continue);
                let bad = p.step("bad", act("bad"));
                p.barrier();
                p.after_failure(&bad).step("sorry", Sorry);
                p.barrier();
                p.step("next", act("next"));
            });
            declared.unwrap()
        };
        let run = it.client.start(pipeline()).await.unwrap();
        it.becomes(&run, "failed").await;
        assert_eq!(
            it.steps(&run).await[1..],
            [
                "barrier:1 skipped",
                "sorry succeeded",
                "barrier:2 skipped",
                "next skipped"
            ]
        );
        it.script.tell("bad", What::Succeed);
        let run = it.client.start(pipeline()).await.unwrap();
        it.becomes(&run, "succeeded").await;
        assert_eq!(it.script.count("next"), 1);
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_end_and_a_cancel_leave_out_an_error_path_behind_a_barrier() {
    with_database(async |db| {
        let it = running(db);
        it.script.tell("bad", What::Wait);
        it.script.tell("other", What::EndRun);
        let run = it.client.start(behind_a_barrier()).await.unwrap();
        step_becomes(&it, &run, "other ended_run").await;
        it.script.says("bad").await;
        run.cancel().await.unwrap();
        it.becomes(&run, "cancelled").await;
        let left_out = |status: &str| {
            let steps = ["barrier:1", "sorry", "log", "next"];
            steps.map(|step| format!("{step} {status}"))
        };
        assert_eq!(it.steps(&run).await[2..], left_out("skipped"));

        it.script.tell("bad", What::Fail);
        it.script.tell("other", What::Wait);
        let run = it.client.start(behind_a_barrier()).await.unwrap();
        step_becomes(&it, &run, "bad failed").await;
        run.cancel().await.unwrap();
        it.becomes(&run, "cancelled").await;
        let steps = it.steps(&run).await;
        assert_eq!(steps[2..5], left_out("cancelled")[..3]);
        assert_eq!(it.script.count("sorry for bad Told"), 0);
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_path_behind_a_barrier_is_decided_again_in_the_next_round() {
    with_database(async |db| {
        let it = running(db);
        it.script.tell("bad", What::Fail);
        let run = it.client.start(behind_a_barrier()).await.unwrap();
        for round in 1..=2 {
            it.becomes(&run, "halted").await;
            assert_eq!(it.script.count("sorry for bad Told"), round);
            assert_eq!(it.script.count("log"), round);
            if round == 2 {
                it.script.tell("bad", What::Succeed);
            }
            run.reopen().await.unwrap();
        }
        it.becomes(&run, "succeeded").await;
        assert_eq!(
            it.steps(&run).await[2..],
            [
                "barrier:1 succeeded",
                "sorry skipped_by_branch",
                "log succeeded",
                "next succeeded"
            ]
        );
        assert_eq!((it.script.count("other"), it.script.count("next")), (1, 1));
        it.stop().await;
    })
    .await;
}

/// `any` comes after any of two error paths: a graph that is built by hand.
fn any_of_error_paths() -> Pipeline {
    let declared = Pipeline::configure("any_of_error_paths", |p| {
        p.failure_strategy(Continue);
        let a = p.step("a", act("a"));
        let b = p.step("b", act("b"));
        p.after_failure(&a).step("mend_a", act("mend_a"));
        p.after_failure(&b).step("mend_b", act("mend_b"));
        let any = p.step("any", act("any"));
        p.following(&any).step("report", act("report"));
    });
    let mut spec = declared.unwrap().graph().spec().clone();
    let any = spec.steps.iter_mut().find(|step| step.key == "any");
    let any = any.unwrap();
    any.join = Join::Any;
    any.after = ["mend_a", "mend_b"]
        .map(|step| Edge {
            step: step.to_owned(),
            takes: Takes::Order,
        })
        .to_vec();
    let keys = spec.steps.iter();
    let params = keys.map(|step| Some(format!("\"{}\"", step.key))).collect();
    Pipeline::from_graph(Graph::compile(spec).unwrap(), params)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_any_over_error_paths_that_were_not_taken_is_left_out_and_breaks_nothing() {
    with_database(async |db| {
        let it = running(db);
        let run = it.client.start(any_of_error_paths()).await.unwrap();
        it.becomes(&run, "succeeded").await;
        assert_eq!(
            it.steps(&run).await[2..],
            [
                "mend_a skipped_by_branch",
                "mend_b skipped_by_branch",
                "any skipped_by_branch",
                "report succeeded"
            ]
        );
        let state = run.state().await.unwrap();
        let any = state.steps.iter().find(|step| step.key == "any").unwrap();
        assert_eq!(any.reason, Some(StepReason::NoneTaken));
        assert_eq!(
            StepReason::NoneTaken.to_string(),
            "all steps before it were left out"
        );

        it.script.tell("b", What::Fail);
        let run = it.client.start(any_of_error_paths()).await.unwrap();
        it.becomes(&run, "failed").await;
        assert_eq!(it.steps(&run).await[4], "any succeeded");

        it.script.tell("mend_b", What::Fail);
        let run = it.client.start(any_of_error_paths()).await.unwrap();
        it.becomes(&run, "failed").await;
        assert_eq!(
            it.steps(&run).await[2..],
            [
                "mend_a skipped_by_branch",
                "mend_b failed",
                "any skipped",
                "report skipped"
            ]
        );
        // In the next round `b` succeeds: nothing is taken.
        it.script.tell("b", What::Succeed);
        run.reopen().await.unwrap();
        it.becomes(&run, "succeeded").await;
        assert_eq!(it.steps(&run).await[4], "any skipped_by_branch");
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recounted_edges_of_after_any_are_those_that_the_advance_counted() {
    with_database(async |db| {
        for (what, status) in [(What::Succeed, "skipped_by_branch"), (What::Fail, "skipped")] {
            let it = running(db);
            it.script.tell("a", what);
            it.script.tell("b", What::Wait);
            it.script.tell("mend_a", What::Fail);
            let run = it.client.start(any_of_error_paths()).await.unwrap();
            let ended = if what == What::Fail { "failed" } else { "skipped_by_branch" };
            step_becomes(&it, &run, &format!("mend_a {ended}")).await;
            let spoil = "update pipeline.steps set open_edges = 7, is_broken = not is_broken where run = $1 and no = 4";
            for statement in [spoil, "select pipeline.recount_open_edges_v1($1, 4)"] {
                let done = sqlx::query(statement).bind(run.id()).execute(db.pool());
                done.await.unwrap();
            }
            it.script.let_through("b");
            step_becomes(&it, &run, &format!("any {status}")).await;
            run.wait().await.unwrap();
            it.stop().await;
        }
    })
    .await;
}
