//! A run that is cancelled while it is active, and reopened.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use pipeline::prelude::*;
use serde::{Deserialize, Serialize};
use shop::studio::{Task, work};
use shop::{Result, Tree};

/// Whether the first attempt to copy has started.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Copies for a long time, but stops when it is asked to. In the second round, little is left to copy.
#[derive(Serialize, Deserialize, Job)]
struct Copy;

impl Perform for Copy {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        let left = if BEGUN.swap(true, Relaxed) {
            300
        } else {
            60_000
        };
        tokio::select! {
            () = work(left) => Ok(()),
            () = cx.cancelled() => Err(JobError::stopped()),
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let backup = Pipeline::configure("backup", |p| {
        let listed = p.step("list", Task { millis: 100 });
        let copied = p.following(&listed).step("copy", Copy);
        p.following(&copied).step("verify", Task { millis: 100 });
    })?;
    let tree = Tree::of(backup.graph());

    shop::tell(
        |worker| worker.register::<(Task, Copy)>(),
        async |client| {
            let run = client.start(backup).await?;
            while !BEGUN.load(Relaxed) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }

            run.cancel().await?; // the running step is asked to stop, the waiting steps are cancelled
            assert_eq!(run.wait().await?, RunStatus::Cancelled);
            println!("{}", tree.text(&run.state().await?));

            run.reopen().await?; // `list` has succeeded and does not run again
            assert_eq!(run.wait().await?, RunStatus::Succeeded);
            let state = run.state().await?;
            println!("round {}, {}", state.round, tree.text(&state));
            assert_eq!(state.round, 2);
            Ok(())
        },
    )
    .await
}
