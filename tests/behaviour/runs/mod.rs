//! Runs: started, moved on, ended.

mod agree;
mod batches;
mod control;
mod events;
mod held;
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
mod wait;
mod working;
