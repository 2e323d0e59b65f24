//! Declaring a pipeline, with types that make steps which do not fit together not compile.

mod after;
mod branch;
mod builder;
mod callback;
mod define;
mod feeds;
mod handle;
mod output;
mod strategy;

pub use branch::Branch;
pub use builder::PipelineBuilder;
pub use callback::{Failure, RunEnded};
pub use define::{Define, Named, Pipeline};
pub use handle::{IgnoredStep, OptionalStep, Step};
pub use strategy::{Continue, Halt, Ignore};

// The types between two calls of a declaration, and the traits that only bounds and derives name.
#[doc(hidden)]
pub use after::{After, AfterAny, AfterFailure, Following, Upstreams};
#[doc(hidden)]
pub use branch::{ArmResult, Arms, BranchBuilder, Joins, Merged};
#[doc(hidden)]
pub use callback::{FailureInput, RunInput};
#[doc(hidden)]
pub use feeds::{Feeds, FromIgnored, Is, Link, NoInput};
#[doc(hidden)]
pub use handle::Handle;
#[doc(hidden)]
pub use output::PipelineOutput;
#[doc(hidden)]
pub use strategy::FailureStrategy;
