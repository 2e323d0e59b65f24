//! The graph: building, validating, compiling, drawing. Pure, no I/O.
//!
//! A declaration comes to a [`spec::GraphSpec`], which says what was declared and nothing else; JSON
//! is read into one too. [`Graph::compile`] judges it, with every [`Problem`] at once, and numbers
//! it: what runs is a [`Graph`].

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
pub mod spec;
#[cfg(test)]
mod tests;
mod validate;

pub use compiled::{Arm, Downstream, Graph, Node, Upstream};
pub use declaration_error::DeclarationError;
pub use fingerprint::Fingerprint;
pub use invalid::{Invalid, Place};
pub use json::ReadError;
pub(crate) use keys::{barrier_key, merge_key};
pub(crate) use limits::{TAG, TAGS, shown};
pub use problem::{Absence, Problem};
