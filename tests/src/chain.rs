//! Reading the chain of a run.

use pipeline::Run;

/// Returns the runs after this run in its chain, stage after stage: all runs of a stage come before the same runs.
pub async fn chain_of<O>(run: &Run<O>) -> Vec<Run> {
    let mut chain = Vec::new();
    let mut stage = run.chained().await.expect("the chain is read");
    while let Some(first) = stage.first() {
        let next = first.chained().await.expect("the chain is read");
        chain.append(&mut stage);
        stage = next;
    }
    chain
}
