//! Runs: started, moved on, ended.

mod control;
mod kit;
mod reconcile;
mod shapes;
mod support;
