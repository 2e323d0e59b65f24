#![doc = include_str!("../docs/tour.md")]

// The derives write `::pipeline`, in our own examples too.
#[allow(unused_extern_crates)]
extern crate self as pipeline;

mod client;
mod coordinator;
pub mod declare;
mod error;
pub mod graph;
// The doc tests of the package `examples` compile the blocks of the guides.
#[cfg(all(doc, not(doctest)))]
pub mod guides;
mod status;
#[cfg(feature = "testing")]
pub mod testing;
mod worker;

pub use chrono;
pub use client::{
    Attempt, BadCursor, Chain, Client, Cursor, Event, EventStatus, Health, History, IntoRun,
    IntoStage, NewRun, NodeKind, Page, Reopen, Run, RunFilter, RunInfo, RunState, Stage, Start,
    StepState, Wait, Why,
};
pub use declare::{
    Branch, Continue, Define, Failure, Halt, Ignore, IgnoredStep, Named, OptionalStep, Pipeline,
    PipelineBuilder, RunEnded, Step,
};
pub use error::{Error, Result};
pub use graph::{Graph, Invalid, Problem};
pub use jobs::{self, UnknownWord};
pub use pipeline_derive::{Branch, Pipeline};
pub use schemars;
pub use sqlx;
pub use status::{RunStatus, StepStatus};
pub use worker::{StepContext, Worker};
