#![doc = include_str!("../docs/tour.md")]

// The derives write `::pipeline`, in our own examples too.
#[allow(unused_extern_crates)]
extern crate self as pipeline;

pub mod declare;
pub mod graph;

pub use declare::{
    Branch, Continue, Define, FailedStep, Failure, Halt, Ignore, Ignored, Maybe, Named, Pipeline,
    Plan, RunEnded, Step,
};
pub use graph::{Graph, Invalid, Problem};
pub use jobs;
pub use pipeline_derive::{Branch, Pipeline};
pub use schemars;
