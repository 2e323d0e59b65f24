//! The guides, one page each, and the guarantees. The first Rust block of each guide is a complete program.
//!
//! Start with [`first_job`] and [`first_pipeline`].

// A link between guides is a reference link. The first definition of a label counts in Markdown, so the definitions of
// `guide-links.md`, which lead to modules, replace those at the end of a guide, which lead to files.
macro_rules! guides {
    ($($name:ident $file:literal $title:literal)*) => {
        $(
            #[doc = $title]
            #[doc = ""]
            #[doc = include_str!("../docs/guide-links.md")]
            #[doc = include_str!(concat!("../docs/", $file))]
            pub mod $name {}
        )*
    };
}

guides! {
    batches "guides/batches.md" "Sets of jobs with one callback."
    branches_and_barriers "guides/branches-and-barriers.md" "One of several arms; phases; the first step that succeeds."
    callbacks "guides/callbacks.md" "Jobs that a run enqueues when it ends."
    cancelling_and_deadlines "guides/cancelling-and-deadlines.md" "Stopping a run."
    chaining "guides/chaining.md" "Runs after runs."
    data_between_steps "guides/data-between-steps.md" "Inputs and outputs of steps, absent values, limits."
    failure_strategies "guides/failure-strategies.md" "What the failure of a step means for its run."
    first_job "guides/first-job.md" "From an empty folder to a running worker."
    first_pipeline "guides/first-pipeline.md" "A graph of jobs that runs, and how to inspect it."
    guarantees "guarantees.md" "What is guaranteed, the tests that show it, and what is not guaranteed."
    operating "guides/operating.md" "Deploying, monitoring, the log, and what to do when something does not work."
    reading_type_errors "guides/reading-type-errors.md" "What the compiler says if steps do not fit together."
    retries_and_errors "guides/retries-and-errors.md" "All outcomes of an attempt; backoff; jobs that have failed for good."
    reopen_and_rerun "guides/reopen-and-rerun.md" "Reopening a failed run; what is kept."
    testing_your_pipelines "guides/testing-your-pipelines.md" "Fakes, a controlled clock, assertions."
    transactions "guides/transactions.md" "Enqueueing together with your own rows; keys; effects that must happen once."
    workers_and_shutdown "guides/workers-and-shutdown.md" "Queues and slots, leases, graceful shutdown."
}
