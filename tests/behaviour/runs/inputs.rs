//! What steps are given is measured before it is loaded. The limits are small here; by default a step
//! may be given 16 MiB.

use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Pipeline, RunStatus};
use serde::{Deserialize, Serialize};
use tests::{Database, with_database};

use super::support::{Running, act};

/// Returns a text of this length.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(max_attempts = 1)]
struct Part(usize);

impl Perform for Part {
    type Input = ();
    type Output = String;
    async fn perform(self, (): (), _: &Context) -> Result<String, JobError> {
        Ok("x".repeat(self.0))
    }
}

/// Adds up the lengths; its params are for nothing but their size.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(max_attempts = 1)]
struct Collect(String);

impl Perform for Collect {
    type Input = Vec<String>;
    type Output = usize;
    async fn perform(self, parts: Vec<String>, _: &Context) -> Result<usize, JobError> {
        Ok(parts.iter().map(String::len).sum())
    }
}

/// So many parts of this size, and after them so many steps that are given all of them.
fn collected(parts: usize, size: usize, collectors: usize) -> Pipeline<()> {
    Pipeline::configure("collected", |p| {
        let parts: Vec<_> = (0..parts)
            .map(|at| p.step(&format!("part_{at}"), Part(size)))
            .collect();
        for at in 0..collectors {
            p.after(&parts[..])
                .step(&format!("collect_{at}"), Collect("y".repeat(100)));
        }
    })
    .unwrap()
}

/// Status, class and message of the steps after the parts, each once.
async fn collectors(db: &Database) -> Vec<(String, Option<String>, Option<String>)> {
    sqlx::query_as(
        "select distinct status, error_class, error_message from pipeline.run_steps
         where step like 'collect%'",
    )
    .fetch_all(db.pool())
    .await
    .unwrap()
}

async fn refused(parts: usize, size: usize) {
    with_database(async |db| {
        let it = Running::start_with(db, |worker| {
            worker
                .register::<(Part, Collect)>()
                .input_limits(50_000, 50_000)
        });
        let run = it.client.start(collected(parts, size, 1)).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Halted);
        let [(status, class, message)] = &collectors(db).await[..] else {
            panic!("one step collects");
        };
        assert_eq!(status, "failed");
        assert_eq!(class.as_deref(), Some("InputTooLarge"));
        // The quotes of each part, and the params with theirs.
        let given = parts * (size + 2) + 102;
        let message = message.as_deref().unwrap();
        assert!(
            message.contains(&format!(" {given} bytes, and 50000 is")),
            "{message}"
        );

        // Nobody else is held up.
        let after = Pipeline::configure("after", |p| {
            p.step("a", act("a"));
        });
        let run = it.client.start(after.unwrap()).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_would_be_given_too_much_in_large_parts_ends_with_the_size() {
    refused(3, 20_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_would_be_given_too_much_in_many_small_parts_ends_with_the_size() {
    refused(60, 1_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_whose_inputs_are_large_together_take_turns_and_lose_no_attempt() {
    with_database(async |db| {
        let it = Running::start_with(db, |worker| {
            worker
                .register::<(Part, Collect)>()
                .input_limits(50_000, 60_000)
        });
        let run = it.client.start(collected(2, 20_000, 10)).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        assert_eq!(run.output_of::<usize>("collect_9").await.unwrap(), 40_000);
        assert_eq!(collectors(db).await, [("succeeded".to_owned(), None, None)]);
        let attempts: Vec<i16> =
            sqlx::query_scalar("select distinct attempt from pipeline.run_steps")
                .fetch_all(db.pool())
                .await
                .unwrap();
        assert_eq!(attempts, [1]);
        it.stop().await;
    })
    .await;
}
