//! Jobs: declared, enqueued, run to their end whatever happens.

mod batches;
mod ends;
mod enqueue;
mod support;
