//! What only tests use: an engine that a test drives, moments that a test observes, and fakes of jobs.
//!
//! The feature `testing` turns this module on. It is not stable. Applications use `pipeline::testing`.

pub use crate::engine::manual::{ManualEngine, Outcome, Slots, Turn};
pub use crate::engine::{Moment, Probe};
pub use crate::fake::Fake;
