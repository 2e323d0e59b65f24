//! Runs: started, moved on, ended.

mod control;
mod reconcile;
mod shapes;
mod support;
