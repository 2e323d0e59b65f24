//! The reference model: each rule of `design.md` §§5-8 by its number, on graphs small enough to see,
//! then what must hold of all graphs and orders. No database.

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
