//! Background jobs on Postgres, run by apalis workers.
//!
//! A job is plain data with a method that performs it. An application enqueues jobs, alone or in its own transaction,
//! and workers perform them. Every process may be killed at any time: no job is lost.
//!
//! This crate is usable on its own. The `pipeline` crate builds on its [extension points](extension) and re-exports it.
//!
//! | task | items |
//! |---|---|
//! | declare a job | [`Job`], [`Perform`], [`JobError`], [`Context`] |
//! | enqueue a job | [`Client`] |
//! | perform jobs | [`Worker`] |
//! | let many jobs finish as one | [`Client::batch`] |
//! | operate on jobs and queues | [`Client::jobs`], [`Client::job`], [`Client::pause`] |
//! | extend a worker | [`extension`] |
//! | name types of other crates that occur in signatures | [`sqlx`], [`chrono`] |

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
mod error_class;
#[doc(hidden)]
pub mod error_text;
pub mod extension;
mod failure;
#[cfg(feature = "testing")]
mod fake;
mod ids;
mod input;
mod job;
mod limits;
mod lock_limit;
mod manage;
mod migrate;
mod on_error;
mod options;
mod page;
mod pool;
mod prune;
mod redact;
mod registry;
mod routing;
mod savepoint;
mod sqlstate;
mod stored_json;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod text_enum;
mod worker;

pub use attempt::Envelope;
#[doc(hidden)]
pub use backend::JobsBackend;
#[doc(hidden)]
pub use batch::BatchInput;
pub use batch::{Batch, BatchEnded, BatchState, NewBatch};
pub use chrono;
pub use client::Client;
pub use context::{Context, MissingData};
pub use enqueue::{Enqueue, Enqueued, IntoNewJob, NewJob};
pub use error::{Error, Result};
pub use failure::JobError;
pub use ids::{BatchId, JobId};
#[doc(hidden)]
pub use job::NoInput;
pub use job::{Job, OnError, Perform};
pub use manage::{
    AttemptInfo, JobFilter, JobHandle, JobInfo, JobStatus, Outcome, WorkerInfo, WorkerQueue,
};
#[doc(hidden)]
pub use migrate::MINIMUM_SERVER;
pub use migrate::migrate;
#[doc(hidden)]
pub use migrate::migrations;
pub use on_error::FailedAttempt;
#[doc(hidden)]
pub use options::Growth;
pub use options::{Backoff, JobOptions};
#[doc(hidden)]
pub use page::BadCursor;
pub use page::{Cursor, Page};
pub use pipeline_derive::Job;
#[doc(hidden)]
pub use pool::connect_pool;
pub use pool::pool_options;
pub use registry::Jobs;
#[doc(hidden)]
pub use registry::{Output, Performer, Registering};
pub use sqlx;
#[doc(hidden)]
pub use stored_json::JsonProblem;
pub use text_enum::UnknownVariant;
pub use worker::{Worker, shutdown_signal};
