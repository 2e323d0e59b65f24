//! How the system behaves, shown against a real Postgres. A test's name is the behaviour.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod clock;
mod cluster;
mod conformance;
mod graphs;
mod guide_links;
mod guide_messages;
mod guide_queries;
mod harness;
mod jobs;
mod log_table;
mod logged;
mod migrations;
mod model;
mod modules;
mod processes;
mod runs;
mod secrets;
mod state_machine;
