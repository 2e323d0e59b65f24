//! Jobs: declared, enqueued, run to their end whatever happens.

mod bad_input;
mod batch_in;
mod batches;
mod board;
mod bytes;
mod compile_fail;
mod declare;
mod ends;
mod engine;
mod enqueue;
mod groups;
mod held;
mod held_log;
mod horizon;
mod leases;
mod lock_limit;
mod log_lines;
mod manage;
mod outages;
pub(crate) mod proxy;
mod reconnect;
mod shutdown;
mod stock;
pub(crate) mod support;
mod unknown;
mod worker_hooks;
mod workers;
