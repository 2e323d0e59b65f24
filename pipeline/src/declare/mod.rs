//! Declaring a pipeline: typed, so that what does not fit together does not compile.

mod after;
mod branch;
mod callback;
mod define;
mod feeds;
mod handle;
mod output;
mod plan;
mod strategy;

pub use after::{After, AfterAny, AfterFailure, Following, Upstreams};
pub use branch::{ArmResult, Arms, Branch, Joins, Merged, Scope};
pub use callback::{FailedStep, Failure, FailureInput, RunEnded, RunInput};
pub use define::{Define, Named, Pipeline};
pub use feeds::{Feeds, FromIgnored, Is, NoInput};
pub use handle::{Handle, Ignored, Maybe, Step};
pub use output::PipelineOutput;
pub use plan::Plan;
pub use strategy::{Continue, FailureStrategy, Halt, Ignore};
