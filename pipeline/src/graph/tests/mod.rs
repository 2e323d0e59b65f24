//! The untyped graph, shown: the reference system's scenarios by number, each rule, random graphs.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod branches;
mod build;
mod drawing;
mod fingerprint;
mod limits;
mod properties;
mod random;
mod rules;
mod scenarios;
mod shapes;
mod sizes;
