//! A step fails, with four strategies: what the failure means for the other steps and for the run.
//!
//! | strategy | steps after the failed step | other steps | the run |
//! |---|---|---|---|
//! | `Halt` (the default) | skipped | skipped, if they have not started | halted |
//! | `Continue` | skipped | run | failed |
//! | `Ignore` | run without its output | run | failed |
//! | `.optional()` | run without its output | run | succeeded |

use pipeline::Invalid;
use pipeline::prelude::*;
use serde::{Deserialize, Serialize};
use shop::studio::work;
use shop::{Result, Tree};

/// Fails at once.
#[derive(Serialize, Deserialize, Job)]
#[job(max_attempts = 1)]
struct Break;

impl Perform for Break {
    type Input = ();
    type Output = u32;

    async fn perform(self, (): (), _: &Context) -> Result<u32, JobError> {
        Err(JobError::new("Broken", "it was made to break"))
    }
}

/// Works for a while.
#[derive(Serialize, Deserialize, Job)]
struct Work;

impl Perform for Work {
    type Input = ();
    type Output = u32;

    async fn perform(self, (): (), _: &Context) -> Result<u32, JobError> {
        work(500).await;
        Ok(1)
    }
}

/// Takes a number that is always present.
#[derive(Serialize, Deserialize, Job)]
struct Next;

impl Perform for Next {
    type Input = u32;
    type Output = u32;

    async fn perform(self, number: u32, _: &Context) -> Result<u32, JobError> {
        Ok(number + 1)
    }
}

/// Takes a number that may be absent.
#[derive(Serialize, Deserialize, Job)]
struct OrElse;

impl Perform for OrElse {
    type Input = Option<u32>;
    type Output = u32;

    async fn perform(self, number: Option<u32>, _: &Context) -> Result<u32, JobError> {
        Ok(number.unwrap_or(0))
    }
}

/// Declares a graph with two parts: `risky` and the step after it, and `steady` and the step after it.
fn graph(name: &str, after: impl FnOnce(Step<u32>)) -> Result<Pipeline<()>, Invalid> {
    Pipeline::configure(name, |p: &PipelineBuilder| {
        let risky = p.step("risky", Break);
        after(risky);
        p.step("steady", Work).then("after_steady", Next);
    })
}

#[tokio::main]
async fn main() -> Result<()> {
    let halt = graph("halt", |risky| {
        risky.failure_strategy(Halt).then("after_risky", Next);
    })?;
    let go_on = graph("continue", |risky| {
        risky.failure_strategy(Continue).then("after_risky", Next);
    })?;
    // The output may be absent, and its type says so: with `Next`, this would not compile.
    let ignore = graph("ignore", |risky| {
        risky.failure_strategy(Ignore).then("after_risky", OrElse);
    })?;
    let optional = graph("optional", |risky| {
        risky.optional().then("after_risky", OrElse);
    })?;

    let register = |worker: pipeline::Worker| worker.register::<(Break, Work, Next, OrElse)>();
    shop::tell(register, async |client| {
        for (pipeline, expected) in [
            (halt, RunStatus::Halted),
            (go_on, RunStatus::Failed),
            (ignore, RunStatus::Failed),
            (optional, RunStatus::Succeeded),
        ] {
            let tree = Tree::of(pipeline.graph());
            let run = client.start(pipeline).await?;
            assert_eq!(run.wait().await?, expected);
            println!("{}", tree.text(&run.state().await?));
        }
        Ok(())
    })
    .await
}
