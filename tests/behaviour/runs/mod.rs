//! Runs: started, moved on, ended.

mod shapes;
