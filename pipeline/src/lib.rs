//! Graphs of jobs with nothing to operate but Postgres.
//!
//! This crate is the upper layer: it will hold the declaration of graphs, the coordinator that
//! moves their runs on, chains, callbacks, signals and the client. It stands on [`jobs`], which it
//! re-exports, so that an application needs one dependency. What is there and what comes next is in
//! `docs/status.md`.

// The derives write `::pipeline`, in our own examples too.
#[allow(unused_extern_crates)]
extern crate self as pipeline;

pub mod declare;
pub mod graph;

pub use declare::{
    Branch, Continue, Define, FailedStep, Failure, Halt, Ignore, Ignored, Maybe, Named, Pipeline,
    Plan, RunEnded, Step,
};
pub use jobs;
pub use pipeline_derive::{Branch, Pipeline};
pub use schemars;
