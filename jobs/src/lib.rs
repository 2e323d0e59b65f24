//! Background jobs on Postgres, run by apalis workers.
//!
//! A job is plain data that knows how to perform itself. It is enqueued, alone or in a transaction of
//! yours, and run to its end whatever is killed on the way.
//!
//! This crate is the lower layer: a job and how it runs. It knows nothing of pipelines; the
//! `pipeline` crate stands on it and re-exports it.
//!
//! | to | there is |
//! |---|---|
//! | declare a job | [`Job`], [`Perform`], [`JobError`], [`Context`] |
//! | enqueue it | [`Client`] |
//! | run it | [`Worker`] |
//! | let many finish as one | [`Client::batch`] |
//! | look after them | [`Client::jobs`], [`Client::retry`], [`Client::pause`] |
//! | extend a worker | [`extension`] |
//! | name the types of others in our signatures | [`sqlx`], [`chrono`] |

// `#[derive(Job)]` writes `::jobs`, in our own examples too.
#[allow(unused_extern_crates)]
extern crate self as jobs;

mod attempt;
mod backend;
mod batch;
mod batch_hook;
mod channels;
mod client;
mod context;
#[doc(hidden)]
pub mod encode;
mod engine;
mod enqueue;
mod error;
pub mod extension;
mod failure;
#[cfg(feature = "testing")]
mod fake;
mod input;
mod job;
mod known;
mod limits;
mod lock_limit;
mod manage;
mod migrate;
mod options;
mod pool;
mod prune;
mod redact;
mod registry;
mod savepoint;
mod sqlstate;
mod stored_json;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod words;
mod worker;

pub use attempt::Envelope;
pub use backend::JobsBackend;
pub use batch::{Batch, BatchEnded, BatchInput, BatchState, NewBatch};
pub use chrono;
pub use client::Client;
pub use context::{Context, MissingData};
pub use enqueue::{Enqueue, Enqueued, IntoNewJob, NewJob};
pub use error::{Error, Result};
pub use failure::JobError;
pub use job::{Job, NoInput, OnError, Perform};
pub use manage::{AttemptInfo, JobFilter, JobInfo, JobStatus, Outcome, WorkerInfo};
pub use migrate::{MINIMUM_SERVER, migrate, migrations};
pub use options::{Backoff, Growth, JobOptions};
pub use pipeline_derive::Job;
pub use pool::pool_options;
#[doc(hidden)]
pub use registry::Registering;
pub use registry::{Jobs, Output, Performer};
pub use sqlx;
pub use stored_json::JsonProblem;
pub use words::UnknownWord;
pub use worker::{Worker, shutdown_signal};
