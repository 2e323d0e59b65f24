//! Starting: a run, its steps and the jobs of its roots appear together.

use std::collections::BTreeMap;
use std::time::Duration;

use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Pipeline, Run, RunStatus};
use serde::{Deserialize, Serialize};
use tests::with_database;

use super::hand::{Hand, declare, named};
use crate::runs::support::{Running, act};

#[derive(Debug, Serialize, Deserialize, Job)]
struct Video {
    video_id: u64,
}

#[derive(Debug, Serialize, Deserialize, Job)]
struct Nothing;

macro_rules! quiet {
    ($($job:ident)*) => {$(
        impl Perform for $job {
            type Input = ();
            type Output = ();
            async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
                Ok(())
            }
        }
    )*};
}
quiet!(Video Nothing NoJson);

/// JSON has no such keys.
#[derive(Debug, Serialize, Deserialize, Job)]
struct NoJson {
    pairs: BTreeMap<(u8, u8), u8>,
}

/// Scenarios: H028
#[test]
fn params_that_have_no_json_are_refused_with_the_declaration() {
    let declared = Pipeline::configure("p", |p| {
        let pairs = BTreeMap::from([((1, 2), 3)]);
        p.step("bad", NoJson { pairs });
    });
    let said = declared.unwrap_err().to_string();
    assert!(said.contains("`bad`") && said.contains("no_json"), "{said}");
}

/// `(step, job, batch, what the batch's id says of run and step)` of what is in the queue.
async fn queue(it: &Hand<'_>) -> Vec<(String, i64, i64, bool)> {
    sqlx::query_as(
        "select s.step, j.id, j.batch,
                (pipeline.run_of(j.batch), pipeline.no_of(j.batch)) = (s.run, s.no)
         from pipeline.run_steps s join pipeline.all_jobs j on j.id = s.batch
         order by s.run, s.no",
    )
    .fetch_all(it.db.pool())
    .await
    .unwrap()
}

/// Scenarios: T001, T002, T003, T004, T061, T164, T236
#[tokio::test]
async fn each_root_is_enqueued_with_a_batch_of_its_own() {
    with_database(async |db| {
        let it = Hand::new(db).await;
        let run = it
            .start(declare(|p| {
                let (a, b) = (p.step("a", act("a")), p.step("b", act("b")));
                p.following((&a, &b)).step("c", act("c"));
            }))
            .await;
        it.is(&run, "running", "a enqueued, b enqueued, c pending")
            .await;
        let queue = queue(&it).await;
        let steps: Vec<&str> = queue.iter().map(|(step, ..)| &**step).collect();
        assert_eq!(steps, ["a", "b"]);
        for (step, job, batch, says) in &queue {
            // The job and its batch have one id, which says whose they are.
            assert_eq!((job, says), (batch, &true), "{step}");
        }
        assert_ne!(queue[0].2, queue[1].2);
    })
    .await;
}

/// Scenarios: T005, T006, T007, T008, T225
#[tokio::test]
async fn the_options_and_the_params_of_a_step_are_its_jobs() {
    with_database(async |db| {
        let it = Hand::new(db).await;
        it.start(declare(|p| {
            let video = p.step("video", Video { video_id: 42 });
            video.queue("critical").priority(3);
            let nothing = p.step("nothing", Nothing).queue("slow").priority(-7);
            nothing.delay(Duration::from_secs(300));
        }))
        .await;
        type Row = (String, i16, String, i64, serde_json::Value);
        let rows: Vec<Row> = sqlx::query_as(
            "select queue, priority, status::text,
                    extract(epoch from run_at - created_at)::bigint, args
             from pipeline.all_jobs order by id",
        )
        .fetch_all(db.pool())
        .await
        .unwrap();
        let row = |queue: &str, priority, status: &str, delay, args| {
            (queue.to_owned(), priority, status.to_owned(), delay, args)
        };
        assert_eq!(
            rows,
            [
                row(
                    "critical",
                    3,
                    "ready",
                    0,
                    serde_json::json!({"video_id": 42})
                ),
                row("slow", -7, "scheduled", 300, serde_json::Value::Null),
            ]
        );
    })
    .await;
}

/// Scenarios: T011
#[tokio::test]
async fn starting_nothing_is_fine() {
    with_database(async |db| {
        let it = Hand::new(db).await;
        let none: Vec<Pipeline> = Vec::new();
        assert!(it.client.start(none).await.unwrap().is_empty());
    })
    .await;
}

/// Scenarios: T102, T161, T162, T163
#[tokio::test]
async fn a_run_has_its_name_its_steps_and_their_edges() {
    with_database(async |db| {
        let it = Hand::new(db).await;
        let run = it
            .start(named("diamond", |p| {
                let a = p.step("a", Video { video_id: 7 });
                let b = p.following(&a).step("b", act("b"));
                let c = p.following(&a).step("c", act("c"));
                p.following((&b, &c)).step("d", act("d"));
            }))
            .await;
        let state = run.state().await.unwrap();
        assert_eq!(
            (&*state.pipeline, state.status),
            ("diamond", RunStatus::Running)
        );
        let steps: Vec<(&str, Option<&str>)> = state
            .steps
            .iter()
            .map(|step| (&*step.key, step.job.as_deref()))
            .collect();
        let act = Some("act");
        assert_eq!(
            steps,
            [("a", Some("video")), ("b", act), ("c", act), ("d", act)]
        );
        let params: Vec<serde_json::Value> = it
            .ask(
                &run,
                "select array_agg(params order by no) from pipeline.steps where run = $1",
            )
            .await;
        assert_eq!(params[0], serde_json::json!({"video_id": 7}));
        assert_eq!(params[3], serde_json::json!("d"));
        let edges: Vec<String> = it
            .ask(
                &run,
                "select array_agg(up.key || '>' || down.key order by up.no, down.no)
                 from pipeline.runs r
                 join pipeline.dependencies d on d.graph = r.graph
                 join pipeline.nodes up on up.graph = r.graph and up.no = d.upstream
                 join pipeline.nodes down on down.graph = r.graph and down.no = d.downstream
                 where r.id = $1",
            )
            .await;
        assert_eq!(edges, ["a>b", "a>c", "b>d", "c>d"]);
    })
    .await;
}

async fn waits(it: &Hand<'_>, run: &Run) -> Vec<String> {
    it.ask(
        run,
        "select array_agg(v.step || ' ' || s.open_edges order by s.no)
         from pipeline.steps s
         join pipeline.run_steps v on v.run = s.run and v.no = s.no
         where s.run = $1",
    )
    .await
}

/// Scenarios: T166, T167, T171
#[tokio::test]
async fn a_step_waits_for_as_many_as_come_before_it() {
    with_database(async |db| {
        let it = Hand::new(db).await;
        let first = named("first", |p| {
            p.step("first", act("first"));
        });
        let second = named("second", |p| {
            let a = p.step("a", act("a"));
            p.step("b", act("b"));
            p.following((&a, &a)).step("twice", act("twice"));
            p.barrier();
            p.step("c", act("c"));
        });
        let run = it.client.start(first).then(second).await.unwrap();
        let run = &run.chained().await.unwrap()[0];
        let found = waits(&it, run).await;
        assert_eq!(found, ["a 0", "b 0", "twice 1", "barrier:1 3", "c 1"]);
        assert_eq!(it.queued(run).await, 0);
        let state = run.state().await.unwrap();
        let kinds: Vec<&str> = state.steps.iter().map(|step| step.kind.as_str()).collect();
        assert_eq!(kinds, ["job", "job", "job", "barrier", "job"]);
    })
    .await;
}

/// Scenarios: T194, T195
#[tokio::test]
async fn a_key_is_there_once_in_a_pipeline_and_may_be_in_another() {
    with_database(async |db| {
        let it = Hand::new(db).await;
        let twice = Pipeline::configure("twice", |p| {
            p.step("a", act("a"));
            p.step("a", act("a"));
        });
        let said = twice.unwrap_err().to_string();
        assert!(said.contains("`a`"), "{said}");
        let named = |name| {
            named(name, |p| {
                p.step("a", act("a"));
            })
        };
        let runs = [named("one"), named("other"), named("one")];
        assert_eq!(it.client.start(runs).await.unwrap().len(), 3);
    })
    .await;
}

async fn rows(it: &Hand<'_>) -> i64 {
    sqlx::query_scalar(
        "select (select count(*) from pipeline.runs) + (select count(*) from pipeline.steps)
              + (select count(*) from pipeline.jobs) + (select count(*) from pipeline.events)",
    )
    .fetch_one(it.db.pool())
    .await
    .unwrap()
}

fn single() -> Pipeline {
    declare(|p| {
        p.step("a", act("a"));
    })
}

/// Scenarios: T234, T235
#[tokio::test]
async fn a_start_that_is_rolled_back_never_was_and_can_be_done_again() {
    with_database(async |db| {
        let mut it = Hand::new(db).await;
        let mut tx = db.pool().begin().await.unwrap();
        it.client.start_in(&mut tx, single()).await.unwrap();
        tx.rollback().await.unwrap();
        assert_eq!(rows(&it).await, 0);
        let mut tx = db.pool().begin().await.unwrap();
        let run = it.client.start_in(&mut tx, single()).await.unwrap();
        tx.commit().await.unwrap();
        it.is(&run, "running", "a enqueued").await;
        assert_eq!(it.queued(&run).await, 1);
        it.succeed(&run, "a").await;
    })
    .await;
}

/// Run, steps and root jobs appear together, or not at all (rule 7): there is no run that was stored and
/// not started.
///
/// Scenarios: H074, H075
#[tokio::test]
async fn a_start_that_fails_leaves_nothing_behind() {
    with_database(async |db| {
        let it = Hand::new(db).await;
        sqlx::raw_sql(
            "create function public.refuse() returns trigger language plpgsql as $$
             begin raise exception 'refused'; end $$;
             create trigger refuse before insert on pipeline.jobs for each row
             execute function public.refuse();",
        )
        .execute(db.pool())
        .await
        .unwrap();
        it.client.start(single()).await.unwrap_err();
        assert_eq!(rows(&it).await, 0);
    })
    .await;
}

/// Scenarios: T222, T223, T231, U015
#[tokio::test(flavor = "multi_thread")]
async fn whole_runs_from_start_to_end() {
    with_database(async |db| {
        let it = Running::start(db);
        let video = named("video_processing", |p| {
            let download = p.step("download", act("download"));
            let transcode = p.following(&download).step("transcode", act("transcode"));
            let thumbnail = p.following(&download).step("thumbnail", act("thumbnail"));
            let both = p.following((&transcode, &thumbnail));
            let publish = both.step("publish", act("publish"));
            p.following(&publish).step("cleanup", act("cleanup"));
            super::hand::callbacks(p);
        });
        let collected = named("collected", |p| {
            let roots = ["r1", "r2", "r3"].map(|key| p.step(key, act(key)));
            p.following(&roots).step("collect", act("collect"));
        });
        let roots = named("roots", |p| {
            p.failure_strategy(pipeline::Continue);
            for key in ["s1", "s2", "s3", "s4", "s5"] {
                p.step(key, act(key));
            }
        });
        let video = it.client.start(video).await.unwrap();
        assert!(video.is_new() && video.chained().await.unwrap().is_empty());
        let collected = it.client.start(collected).await.unwrap();
        let roots = it.client.start(roots).await.unwrap();
        for (run, count) in [(&video, 5), (&collected, 4), (&roots, 5)] {
            assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
            let steps = it.steps(run).await;
            assert_eq!(steps.len(), count);
            assert!(
                steps.iter().all(|step| step.ends_with(" succeeded")),
                "{steps:?}"
            );
            let batches: i64 = sqlx::query_scalar(
                "select count(distinct id) from pipeline.batches
                 where run = $1 and finished_at is not null",
            )
            .bind(run.id())
            .fetch_one(db.pool())
            .await
            .unwrap();
            assert_eq!(batches, i64::try_from(count).unwrap());
        }
        it.script
            .says("complete video_processing succeeded 1 []")
            .await;
        it.script
            .says("success video_processing succeeded 1 []")
            .await;
        it.stop().await;
    })
    .await;
}

/// A job that was inserted inside an open transaction is found after its commit.
///
/// Scenarios: H081
#[tokio::test(flavor = "multi_thread")]
async fn a_run_started_in_a_transaction_runs_after_its_commit() {
    with_database(async |db| {
        let it = Running::start(db);
        let mut tx = db.pool().begin().await.unwrap();
        let run = it.client.start_in(&mut tx, single()).await.unwrap();
        // The worker looks meanwhile, and finds nothing.
        let other = it.client.start(named("other", |p| {
            p.step("b", act("b"));
        }));
        let other = other.await.unwrap();
        assert_eq!(other.wait().await.unwrap(), RunStatus::Succeeded);
        assert_eq!(it.script.count("a"), 0);
        tx.commit().await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        it.stop().await;
    })
    .await;
}
