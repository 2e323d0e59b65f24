//! Branches: decided by a job (§8), not by a method inside the coordinator's transaction.

use pipeline::{Continue, Pipeline, PipelineBuilder, Step};
use tests::with_database;

use super::hand::{Choose, Hand, WayArms, chose, declare, failure, work_or_nothing};
use crate::runs::support::act;

/// `analyze`, then one of two ways of which one has two steps, then `finish`.
fn formats() -> Pipeline {
    declare(|p| {
        let analyze = [p.step("analyze", act("analyze"))];
        let format = p.after(&analyze).branch(
            "format",
            Choose,
            WayArms {
                hd: || {
                    let hd = p.step("hd", act("hd"));
                    p.following(&hd).step("upscale", act("upscale"))
                },
                sd: || p.step("sd", act("sd")),
            },
        );
        p.following(&format).step("finish", act("finish"));
    })
}

/// Scenarios: T215, T217, T218
#[tokio::test]
async fn the_chosen_arm_runs_whole_and_the_other_not_at_all() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(formats()).await;
        it.drain(&[("format", chose("Hd"))]).await;
        let end = "analyze succeeded, format succeeded, hd succeeded, upscale succeeded, \
                   sd skipped_by_branch, merge:format succeeded, finish succeeded";
        it.is(&run, "succeeded", end).await;
        let state = run.state().await.unwrap();
        assert_eq!(state.step("format").unwrap().arm.as_deref(), Some("Hd"));
    })
    .await;
}

/// Scenarios: T216, T219
#[tokio::test]
async fn all_steps_of_the_other_arm_are_skipped_by_the_branch() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(formats()).await;
        it.succeed(&run, "analyze").await;
        it.end(&run, "format", chose("Sd")).await;
        // At once, all the way down.
        let after = "analyze succeeded, format succeeded, hd skipped_by_branch, \
                     upscale skipped_by_branch, sd enqueued, merge:format pending, finish pending";
        it.is(&run, "running", after).await;
        it.drain(&[]).await;
        let end = "analyze succeeded, format succeeded, hd skipped_by_branch, \
                   upscale skipped_by_branch, sd succeeded, merge:format succeeded, finish succeeded";
        it.is(&run, "succeeded", end).await;
        let state = run.state().await.unwrap();
        assert_eq!(state.step("format").unwrap().arm.as_deref(), Some("Sd"));
    })
    .await;
}

/// Scenarios: T220, T221
#[tokio::test]
async fn the_branch_is_a_step_and_the_steps_of_its_arms_know_theirs() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(formats()).await;
        it.succeed(&run, "analyze").await;
        let state = run.state().await.unwrap();
        let format = state.step("format").unwrap();
        assert_eq!(
            (format.kind.as_str(), format.job.as_deref()),
            ("branch", Some("choose"))
        );
        let pipeline = formats();
        let arms = ["hd", "upscale", "sd", "finish"].map(|key| {
            let steps = &pipeline.graph().spec().steps;
            let step = steps.iter().find(|step| step.key == key).unwrap();
            let arm = step.arm.as_ref();
            arm.map(|arm| format!("{} {}", arm.branch, arm.arm))
        });
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            arms,
            [
                some("format Hd"),
                some("format Hd"),
                some("format Sd"),
                None
            ]
        );
    })
    .await;
}

/// The deciding step is a job like any other: beside another root it is enqueued, and decides.
///
/// Scenarios: T013
#[tokio::test]
async fn a_branch_may_be_a_root() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                p.step("beside", act("beside"));
                let none: [Step<String>; 0] = [];
                let (hd, sd) = (|| {}, || {});
                p.after(&none).branch("way", Choose, WayArms { hd, sd });
            }))
            .await;
        let started = "beside enqueued, way enqueued, merge:way pending";
        it.is(&run, "running", started).await;
        it.end(&run, "way", chose("Sd")).await;
        it.is(
            &run,
            "running",
            "beside enqueued, way succeeded, merge:way succeeded",
        )
        .await;
        it.succeed(&run, "beside").await;
    })
    .await;
}

/// Two branches, one after the other; the first has an empty arm if asked for.
fn two(empty: bool) -> Pipeline {
    declare(|p| {
        let input = [p.step("input", act("input"))];
        let first = if empty {
            let arms = WayArms {
                hd: || {
                    p.step("text", act("text"));
                },
                sd: || {},
            };
            p.after(&input).branch("first", Choose, arms)
        } else {
            let arms = WayArms {
                hd: || {
                    p.step("text", act("text"));
                },
                sd: || {
                    p.step("image", act("image"));
                },
            };
            p.after(&input).branch("first", Choose, arms)
        };
        let second = p.after(&input).following(&first).branch(
            "second",
            Choose,
            WayArms {
                hd: || p.step("fast", act("fast")),
                sd: || p.step("standard", act("standard")),
            },
        );
        p.following(&second).step("finish", act("finish"));
    })
}

/// Scenarios: T268, T269, T272
#[tokio::test]
async fn branches_follow_one_another() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let by = "skipped_by_branch";
        for (first, second) in [("Hd", "Hd"), ("Sd", "Sd"), ("Hd", "Sd")] {
            let run = it.start(two(false)).await;
            it.drain(&[("first", chose(first)), ("second", chose(second))])
                .await;
            let [text, image] = match first {
                "Hd" => ["succeeded", by],
                _ => [by, "succeeded"],
            };
            let [fast, standard] = match second {
                "Hd" => ["succeeded", by],
                _ => [by, "succeeded"],
            };
            let end = format!(
                "input succeeded, first succeeded, text {text}, image {image}, \
                 merge:first succeeded, second succeeded, fast {fast}, standard {standard}, \
                 merge:second succeeded, finish succeeded"
            );
            it.is(&run, "succeeded", &end).await;
        }
    })
    .await;
}

/// Scenarios: T270
#[tokio::test]
async fn the_second_branch_comes_after_where_the_arms_of_the_first_come_together() {
    with_database(async |db| {
        let it = Hand::new(db).await;
        let run = it.start(two(false)).await;
        let before: Vec<String> = it
            .ask(
                &run,
                "select array_agg(up.key order by up.no) from pipeline.runs r
                 join pipeline.nodes n on n.graph = r.graph and n.key = 'second'
                 join pipeline.dependencies d on d.graph = r.graph and d.downstream = n.no
                 join pipeline.nodes up on up.graph = r.graph and up.no = d.upstream
                 where r.id = $1",
            )
            .await;
        assert_eq!(before, ["input", "merge:first"]);
    })
    .await;
}

/// Scenarios: T271
#[tokio::test]
async fn an_empty_arm_leads_straight_on() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(two(true)).await;
        it.drain(&[("first", chose("Sd")), ("second", chose("Hd"))])
            .await;
        let end = "input succeeded, first succeeded, text skipped_by_branch, merge:first succeeded, \
                   second succeeded, fast succeeded, standard skipped_by_branch, \
                   merge:second succeeded, finish succeeded";
        it.is(&run, "succeeded", end).await;
    })
    .await;
}

/// Scenarios: T280, T281
#[tokio::test]
async fn an_arm_with_work_and_one_without() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        for (arm, work) in [("Hd", "succeeded"), ("Sd", "skipped_by_branch")] {
            let run = it.start(declare(|p| undecided(p, &[]))).await;
            it.drain(&[("way", chose(arm))]).await;
            let end = format!("way succeeded, work {work}, merge:way succeeded, finish succeeded");
            it.is(&run, "succeeded", &end).await;
        }
    })
    .await;
}

/// A value that is no arm: only a job of another version can return one.
///
/// Scenarios: T251
#[tokio::test]
async fn an_answer_that_is_no_arm_fails_the_branch_and_names_the_arms() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(formats()).await;
        it.drain(&[("format", chose("Uhd"))]).await;
        let end = "analyze succeeded, format failed, hd skipped, upscale skipped, sd skipped, \
                   merge:format skipped, finish skipped";
        it.is(&run, "halted", end).await;
        let state = run.state().await.unwrap();
        let error = state.step("format").unwrap().error.clone().unwrap();
        assert!(
            error.message.contains("Hd") && error.message.contains("Sd"),
            "{error:?}"
        );
    })
    .await;
}

fn undecided(p: &PipelineBuilder, upstreams: &[Step<String>]) {
    let way = work_or_nothing(p, upstreams);
    p.following(&way).step("finish", act("finish"));
}

/// Scenarios: H092
#[tokio::test]
async fn a_decision_that_fails_at_the_root_halts_the_run() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it.start(declare(|p| undecided(p, &[]))).await;
        it.fail(&run, "way").await;
        let end = "way failed, work skipped, merge:way skipped, finish skipped";
        it.is(&run, "halted", end).await;
        let state = run.state().await.unwrap();
        let error = state.step("way").unwrap().error.clone().unwrap();
        assert_eq!((&*error.class, &*error.message), ("Broken", "made to"));
    })
    .await;
}

/// Scenarios: H094
#[tokio::test]
async fn a_decision_that_fails_later_under_continue_fails_the_run() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                p.failure_strategy(Continue);
                let start = [p.step("start", act("start"))];
                undecided(p, &start);
            }))
            .await;
        it.drain(&[("way", failure())]).await;
        let end = "start succeeded, way failed, work skipped, merge:way skipped, finish skipped";
        it.is(&run, "failed", end).await;
        let state = run.state().await.unwrap();
        assert_eq!(
            state.step("way").unwrap().error.as_ref().unwrap().class,
            "Broken"
        );
        assert_eq!(state.step("way").unwrap().job.as_deref(), Some("choose"));
    })
    .await;
}
