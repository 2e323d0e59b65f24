//! Runs: started, moved on, ended.

mod agree;
mod batches;
mod bytes;
mod control;
mod events;
mod failover;
mod first_start;
mod held;
mod inputs;
mod json_rule;
mod keys;
mod kit;
mod lists;
mod long_lines;
mod offers;
mod outputs;
mod processes;
mod races;
mod reconcile;
mod requests;
mod shapes;
mod start;
mod state;
pub(crate) mod support;
mod transactions;
mod wait;
mod working;
