//! Runs: started, moved on, ended.

mod agree;
mod processes;
mod shapes;
mod support;
