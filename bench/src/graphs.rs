//! Graphs of any size, out of a rule for what each step comes after.

use pipeline::graph::spec::{
    Edge, GraphSpec, Join, StepKind, StepOptions, StepSpec, Strategy, Takes,
};

/// A graph of `size` steps of one job; `before` says, for a step's number, the numbers of those that
/// it comes after.
pub(crate) fn graph(
    size: usize,
    job: &str,
    takes: Takes,
    before: impl Fn(usize) -> Vec<usize>,
) -> GraphSpec {
    GraphSpec {
        name: "bench".into(),
        display_name: None,
        description: None,
        tags: Vec::new(),
        strategy: Strategy::Halt,
        deadline_ms: None,
        asynchronous_commit: false,
        steps: (0..size).map(|n| step(n, job, takes, &before(n))).collect(),
        callbacks: Vec::new(),
        output: Vec::new(),
        output_shape: None,
    }
}

fn step(n: usize, job: &str, takes: Takes, before: &[usize]) -> StepSpec {
    let edge = |before: &usize| Edge {
        step: format!("step-{before}"),
        takes,
    };
    StepSpec {
        key: format!("step-{n}"),
        kind: StepKind::Job {
            job: job.into(),
            version: 1,
        },
        after: before.iter().map(edge).collect(),
        input: None,
        join: Join::All,
        strategy: None,
        optional: false,
        arm: None,
        options: Some(StepOptions {
            queue: "default".into(),
            priority: 0,
            max_attempts: 5,
            timeout_ms: None,
            lease_ms: 30_000,
            backoff: jobs::Backoff::DEFAULT,
            delay_ms: 0,
        }),
    }
}
