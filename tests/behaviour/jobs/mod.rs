//! Jobs: declared, enqueued, run to their end whatever happens.

mod ends;
mod support;
