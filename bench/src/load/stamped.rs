//! A chain whose steps return when they began.

use std::time::{SystemTime, UNIX_EPOCH};

use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Pipeline, Result};
use serde::{Deserialize, Serialize};

use crate::peers::payload::CHAIN_STEPS;

/// All job types, for [`pipeline::Worker::register`].
pub(super) type All = (First, Next);

/// The time of the machine, which is also the server's, in microseconds since 1970.
fn now_micros() -> Result<u64, JobError> {
    Ok(u64::try_from(
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros(),
    )?)
}

/// The first step.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "bench.stamp_first")]
pub(super) struct First;

impl Perform for First {
    type Input = ();
    type Output = u64;

    async fn perform(self, (): (), _: &Context) -> Result<u64, JobError> {
        now_micros()
    }
}

/// A further step.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "bench.stamp_next")]
pub(super) struct Next;

impl Perform for Next {
    type Input = u64;
    type Output = u64;

    async fn perform(self, _: u64, _: &Context) -> Result<u64, JobError> {
        now_micros()
    }
}

pub(super) fn chain() -> Result<Pipeline<u64>> {
    Ok(Pipeline::configure("stamped", |p| {
        let mut last = p.step("0", First);
        for step in 1..CHAIN_STEPS {
            last = last.then(&step.to_string(), Next);
        }
        last
    })?)
}
