//! The reference model: each rule of `docs/rules.md` by its number, on graphs small enough to see,
//! then the properties of all graphs and orders. These tests use no database.

mod branches;
mod callbacks_and_chains;
mod cancelling;
mod chain_properties;
mod coverage;
mod ends;
mod error_paths;
mod properties;
mod reopening;
mod statuses;
mod strategies;
mod support;
mod waits;
