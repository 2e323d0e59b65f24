#![doc = include_str!("../docs/tour.md")]

// The derives write `::pipeline`, in our own examples too.
#[allow(unused_extern_crates)]
extern crate self as pipeline;

mod client;
mod context;
mod coordinator;
mod db;
#[doc(hidden)]
pub mod declare;
mod error;
#[doc(hidden)]
pub mod graph;
// The doc tests of the package `examples` compile the blocks of the guides.
#[cfg(all(doc, not(doctest)))]
pub mod guides;
mod ids;
pub mod prelude;
mod status;
#[cfg(feature = "testing")]
pub mod testing;
mod worker;

// The public items for runs.
pub use client::{
    Client, Event, EventLevel, EventStatus, NewRun, NodeKind, ReconcilerStats, Reopen, Run,
    RunFilter, RunInfo, RunState, Start, StepReason, StepState, Wait,
};
#[doc(hidden)]
pub use client::{IntoRun, IntoStage, Stage, Started, StartedRuns};
pub use context::StepContext;
pub use declare::{
    Branch, Continue, Define, Failure, Halt, Ignore, IgnoredStep, Named, OptionalStep, Pipeline,
    PipelineBuilder, RunEnded, Step,
};
pub use error::{Error, Result};
pub use graph::{Graph, Invalid, Problem};
pub use ids::RunId;
pub use pipeline_derive::{Branch, Pipeline};
pub use status::{RunStatus, StepStatus};
pub use worker::Worker;

// The public items for jobs.
#[doc(inline)]
pub use jobs::{
    AttemptInfo, Backoff, Batch, BatchEnded, BatchId, BatchState, Context, Cursor, Enqueue,
    Enqueued, FailedAttempt, IntoNewJob, Job, JobError, JobFilter, JobHandle, JobId, JobInfo,
    JobOptions, JobStatus, Jobs, MissingData, NewBatch, NewJob, OnError, Outcome, Page, Perform,
    UnknownVariant, WorkerInfo, WorkerQueue, pool_options, shutdown_signal,
};

#[doc(hidden)]
pub use jobs::{BadCursor, JsonProblem};

// The crates whose types are in public signatures.
pub use {chrono, jobs, schemars, sqlx};
