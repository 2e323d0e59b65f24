//! Runs after runs: one after another, several after one, one after several, and one that is added later.

use pipeline::{Invalid, Pipeline, Run, RunFilter, RunStatus};
use shop::Result;
use shop::studio::Task;

fn small(name: &str) -> Result<Pipeline<()>, Invalid> {
    Pipeline::configure(name, |p| {
        p.step("work", Task { millis: 100 });
    })
}

/// Waits for a run, and prints when it ran.
async fn show(run: &Run) -> Result<()> {
    assert_eq!(run.wait().await?, RunStatus::Succeeded);
    let state = run.state().await?;
    let clock = |time: Option<chrono::DateTime<chrono::Utc>>| {
        time.map_or_else(String::new, |time| time.format("%M:%S%.3f").to_string())
    };
    let (from, to) = (clock(state.started_at), clock(state.ended_at));
    println!("{:<14} {:<10} {from} to {to}", state.pipeline, state.status);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    shop::tell(
        |worker| worker.register::<Task>(),
        async |client| {
            let run = client
                .start(small("video")?)
                .then(small("quality_check")?)
                .then((small("notify")?, small("analytics")?)) // both, after quality_check
                .then(small("archive")?) // after both
                .await?;
            show(&run).await?;
            let mut stage = run.chained().await?;
            while let Some(first) = stage.first() {
                for run in &stage {
                    show(run).await?;
                }
                stage = first.chained().await?;
            }

            // The first one ended long ago; what is chained to it now starts at once.
            show(&run.then(small("late")?).await?).await?;

            let succeeded = RunFilter::new().status(RunStatus::Succeeded);
            assert_eq!(client.runs(&succeeded).await?.items.len(), 6);
            Ok(())
        },
    )
    .await
}
