//! The graph: building, validating, compiling, drawing. Pure, no I/O.

pub mod spec;
