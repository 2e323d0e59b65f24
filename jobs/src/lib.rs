//! Background jobs on Postgres, run by apalis workers.
//!
//! This crate is the lower layer: a job and how it runs. It knows nothing of pipelines; the
//! `pipeline` crate stands on it and re-exports it.
//!
//! So far it holds the ground everything stands on: [`migrate`], which brings the schema
//! `pipeline` of a database up to date.

mod error;
mod migrate;

pub use error::{Error, Result};
pub use migrate::{MINIMUM_SERVER, migrate, migrations};
