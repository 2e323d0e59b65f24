//! The jobs that our chains and fans consist of.

use std::sync::atomic::{AtomicU64, Ordering};

use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Invalid, Pipeline};
use serde::{Deserialize, Serialize};

use crate::peers::payload::{CHAIN_STEPS, FAN_ARMS, Large, Payload};

/// All job types, for [`pipeline::Worker::register`].
pub(crate) type All = (First, Next, FirstLarge, NextLarge, Arm, Sum);

/// How many steps were performed in this process: before all were, the database need not be asked whether all runs
/// have ended.
pub(crate) static PERFORMED: AtomicU64 = AtomicU64::new(0);

fn performed<T>(output: T) -> Result<T, JobError> {
    PERFORMED.fetch_add(1, Ordering::Relaxed);
    Ok(output)
}

/// The first step of a chain or a fan.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "bench.first")]
pub(crate) struct First {
    n: u64,
}

impl Perform for First {
    type Input = ();
    type Output = u64;

    async fn perform(self, (): (), _: &Context) -> Result<u64, JobError> {
        performed(self.n.next())
    }
}

/// A further step of a chain.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "bench.next")]
pub(crate) struct Next;

impl Perform for Next {
    type Input = u64;
    type Output = u64;

    async fn perform(self, input: u64, _: &Context) -> Result<u64, JobError> {
        performed(input.next())
    }
}

/// The first step of a chain with 10 KB of text.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "bench.first_large")]
pub(crate) struct FirstLarge {
    value: Large,
}

impl Perform for FirstLarge {
    type Input = ();
    type Output = Large;

    async fn perform(self, (): (), _: &Context) -> Result<Large, JobError> {
        performed(self.value.next())
    }
}

/// A further step of a chain with 10 KB of text.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "bench.next_large")]
pub(crate) struct NextLarge;

impl Perform for NextLarge {
    type Input = Large;
    type Output = Large;

    async fn perform(self, input: Large, _: &Context) -> Result<Large, JobError> {
        performed(input.next())
    }
}

/// One of the steps between the first and the last one of a fan.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "bench.arm")]
pub(crate) struct Arm {
    adds: u64,
}

impl Perform for Arm {
    type Input = u64;
    type Output = u64;

    async fn perform(self, input: u64, _: &Context) -> Result<u64, JobError> {
        performed(input + self.adds)
    }
}

/// The last step of a fan.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "bench.sum")]
pub(crate) struct Sum;

impl Perform for Sum {
    type Input = Vec<u64>;
    type Output = u64;

    async fn perform(self, input: Vec<u64>, _: &Context) -> Result<u64, JobError> {
        performed(input.iter().sum())
    }
}

/// A chain that starts with this number.
pub(crate) fn chain(number: u64) -> Result<Pipeline<u64>, Invalid> {
    chain_with(number, false)
}

/// A chain that starts with this number, with or without asynchronous commits.
pub(crate) fn chain_with(number: u64, asynchronous: bool) -> Result<Pipeline<u64>, Invalid> {
    Pipeline::configure("chain", |p| {
        if asynchronous {
            p.asynchronous_commit();
        }
        let mut last = p.step("0", First { n: number });
        for step in 1..CHAIN_STEPS {
            last = last.then(&step.to_string(), Next);
        }
        last
    })
}

/// A chain that passes on 10 KB of text.
pub(crate) fn large_chain(number: u64) -> Result<Pipeline<Large>, Invalid> {
    Pipeline::configure("large_chain", |p| {
        let value = Large::new(number);
        let mut last = p.step("0", FirstLarge { value });
        for step in 1..CHAIN_STEPS {
            last = last.then(&step.to_string(), NextLarge);
        }
        last
    })
}

/// A fan that starts with this number.
pub(crate) fn fan(number: u64) -> Result<Pipeline<u64>, Invalid> {
    Pipeline::configure("fan", |p| {
        let first = p.step("first", First { n: number });
        let arms: Vec<_> = (0..FAN_ARMS)
            .map(|arm| first.then(&format!("arm_{arm}"), Arm { adds: arm }))
            .collect();
        p.after(&arms).step("last", Sum)
    })
}
