//! Runs: started, moved on, ended.

mod control;
mod shapes;
mod support;
