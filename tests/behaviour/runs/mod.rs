//! Runs: started, moved on, ended.

mod agree;
mod batches;
mod control;
mod events;
mod inputs;
mod keys;
mod kit;
mod lists;
mod outputs;
mod processes;
mod races;
mod reconcile;
mod shapes;
mod start;
mod state;
pub(crate) mod support;
mod wait;
mod working;
