//! What every bench shares: the server, the child processes, the counters, the closing lines.

mod child;
mod counters;
mod protocol;
mod report;
mod server;

pub(crate) use child::stopped;
pub(crate) use counters::{Counted, statements};
pub(crate) use protocol::{ChildArguments, Measured, answer};
pub(crate) use report::{Report, median, percentile, table};
pub(crate) use server::Server;

pub(crate) type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;
