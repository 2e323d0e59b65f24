//! The graph of a pipeline: validation, compiling and drawing, without I/O.
//!
//! A declaration makes a [`spec::GraphSpec`], which holds only what was declared; JSON is read into one too.
//! [`Graph::compile`] validates it, reports every [`Problem`] at once, and numbers its nodes.

mod compiled;
mod declaration_error;
mod draw;
mod fingerprint;
mod invalid;
mod json;
mod keys;
mod limits;
mod lists;
mod problem;
mod shape;
#[doc(hidden)]
pub mod spec;
#[cfg(test)]
mod tests;
mod validate;

pub use compiled::Graph;
pub use invalid::Invalid;
pub use problem::Problem;

// Types that only tests, the coordinator and the fields of `Problem` name.
#[doc(hidden)]
pub use compiled::{Arm, Downstream, Node, Upstream};
#[doc(hidden)]
pub use declaration_error::DeclarationError;
#[doc(hidden)]
pub use fingerprint::Fingerprint;
#[doc(hidden)]
pub use invalid::Place;
#[doc(hidden)]
pub use json::ReadError;
pub(crate) use keys::{barrier_key, merge_key};
pub(crate) use limits::{MAX_TAG_CHARS, MAX_TAGS, shown};
#[doc(hidden)]
pub use problem::Absence;
