//! Runs: started, moved on, ended.

mod batches;
mod control;
mod events;
mod kit;
mod lists;
mod outputs;
mod reconcile;
mod shapes;
mod start;
mod state;
mod support;
mod wait;
