//! What every bench shares: the server, the child processes, the counters, the closing lines.

mod child;
mod counters;
mod report;
mod server;

pub(crate) use child::{ChildArguments, Measured, answer};
pub(crate) use counters::{Counted, statements};
pub(crate) use report::{Report, median, table};
pub(crate) use server::Server;

pub(crate) type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;
