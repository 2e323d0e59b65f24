//! Twelve shapes of pipelines, each in a few lines. Run it to see them drawn.
//!
//! The jobs do next to nothing: the shapes are the subject.

use std::time::Duration;

use pipeline::Invalid;
use pipeline::prelude::*;
use serde::{Deserialize, Serialize};

/// What declaring one returns.
pub type Declared = Result<Pipeline<i64>, Invalid>;

/// A function that declares one.
pub type Declare = fn() -> Declared;

/// Makes a number.
#[derive(Debug, Serialize, Deserialize, Job)]
pub struct Make(pub i64);

impl Perform for Make {
    type Input = ();
    type Output = i64;
    async fn perform(self, (): (), _: &Context) -> Result<i64, JobError> {
        Ok(self.0)
    }
}

/// Adds to a number.
#[derive(Debug, Serialize, Deserialize, Job)]
pub struct Add(pub i64);

impl Perform for Add {
    type Input = i64;
    type Output = i64;
    async fn perform(self, number: i64, _: &Context) -> Result<i64, JobError> {
        Ok(number + self.0)
    }
}

/// Adds up many.
#[derive(Debug, Serialize, Deserialize, Job)]
pub struct Sum;

impl Perform for Sum {
    type Input = Vec<i64>;
    type Output = i64;
    async fn perform(self, numbers: Vec<i64>, _: &Context) -> Result<i64, JobError> {
        Ok(numbers.iter().sum())
    }
}

/// Adds up two.
#[derive(Debug, Serialize, Deserialize, Job)]
pub struct Both;

impl Perform for Both {
    type Input = (i64, i64);
    type Output = i64;
    async fn perform(self, (one, other): (i64, i64), _: &Context) -> Result<i64, JobError> {
        Ok(one + other)
    }
}

/// Takes a number that may be absent, and then makes one.
#[derive(Debug, Serialize, Deserialize, Job)]
pub struct OrElse(pub i64);

impl Perform for OrElse {
    type Input = Option<i64>;
    type Output = i64;
    async fn perform(self, number: Option<i64>, _: &Context) -> Result<i64, JobError> {
        Ok(number.unwrap_or(self.0))
    }
}

/// Fails.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(max_attempts = 1)]
pub struct Break;

impl Perform for Break {
    type Input = i64;
    type Output = i64;
    async fn perform(self, _: i64, _: &Context) -> Result<i64, JobError> {
        Err(JobError::new("Broken", "it was made to break"))
    }
}

/// Makes good for a failure.
#[derive(Debug, Serialize, Deserialize, Job)]
pub struct Mend(pub i64);

impl Perform for Mend {
    type Input = Failure;
    type Output = i64;
    async fn perform(self, _: Failure, _: &Context) -> Result<i64, JobError> {
        Ok(self.0)
    }
}

/// Which way a number goes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, Branch)]
pub enum Parity {
    /// It can be halved.
    Even,
    /// It cannot.
    Odd,
}

/// Decides by a number.
#[derive(Debug, Serialize, Deserialize, Job)]
pub struct Decide;

impl Perform for Decide {
    type Input = i64;
    type Output = Parity;
    async fn perform(self, number: i64, _: &Context) -> Result<Parity, JobError> {
        Ok(if number % 2 == 0 {
            Parity::Even
        } else {
            Parity::Odd
        })
    }
}

/// One after the other.
pub fn linear() -> Declared {
    Pipeline::configure("linear", |p| {
        let a = p.step("a", Make(1));
        let b = a.then("b", Add(1));
        b.then("c", Add(1))
    })
}

/// One, then several at once.
pub fn fan_out() -> Declared {
    Pipeline::configure("fan_out", |p| {
        let source = p.step("source", Make(1));
        for n in 1..=5 {
            source.then(&format!("worker_{n}"), Add(n));
        }
        source
    })
}

/// Several at once, then one.
pub fn fan_in() -> Declared {
    Pipeline::configure("fan_in", |p| {
        let sources: Vec<_> = (1..=5)
            .map(|n| p.step(&format!("source_{n}"), Make(n)))
            .collect();
        p.after(&sources).step("sum", Sum)
    })
}

/// Apart and together again: the join waits for both.
pub fn diamond_all() -> Declared {
    Pipeline::configure("diamond_all", |p| {
        let source = p.step("source", Make(1));
        let (left, right) = (source.then("left", Add(1)), source.then("right", Add(2)));
        p.after((&left, &right)).step("join", Both)
    })
}

/// Apart and together again: the join takes the first that comes.
pub fn diamond_any() -> Declared {
    Pipeline::configure("diamond_any", |p| {
        let source = p.step("source", Make(1));
        let (left, right) = (source.then("left", Add(1)), source.then("right", Add(2)));
        p.after_any([&left, &right]).step("first", Add(10))
    })
}

/// A long way.
pub fn deep_chain() -> Declared {
    Pipeline::configure("deep_chain", |p| {
        let mut last = p.step("step_0", Make(0));
        for n in 1..20 {
            last = last.then(&format!("step_{n}"), Add(1));
        }
        last
    })
}

/// A step that fails, one that makes good for it, and what goes on without it.
pub fn error_path() -> Declared {
    Pipeline::configure("error_path", |p| {
        let source = p.step("source", Make(1));
        let risky = source.then("risky", Break).optional();
        p.after_failure(&risky).step("mend", Mend(42));
        risky.then("go_on", OrElse(7))
    })
}

/// One of two ways; both lead on.
pub fn conditional() -> Declared {
    Pipeline::configure("conditional", |p| {
        let number = p.step("number", Make(4));
        let way = number.branch(
            "decide",
            Decide,
            ParityArms {
                even: || number.then("halve", Add(-2)),
                odd: || number.then("raise", Add(1)),
            },
        );
        way.then("after", Add(100))
    })
}

/// A step that waits before it starts.
pub fn delay() -> Declared {
    Pipeline::configure("delay", |p| {
        let first = p.step("first", Make(1));
        first.then("later", Add(1)).delay(Duration::from_millis(50))
    })
}

/// Joins of joins.
pub fn multi_level_join() -> Declared {
    Pipeline::configure("multi_level_join", |p| {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|key| p.step(key, Make(1)));
        let left = p.after((&a, &b)).step("left", Both);
        let right = p.after((&c, &d)).step("right", Both);
        p.after((&left, &right)).step("top", Both)
    })
}

/// One of two ways, of which one does nothing.
pub fn branch_with_an_empty_arm() -> Declared {
    Pipeline::configure("branch_with_an_empty_arm", |p| {
        let number = p.step("number", Make(3));
        let halved = number.branch(
            "decide",
            Decide,
            ParityArms {
                even: || number.then("halve", Add(-1)),
                odd: || {},
            },
        );
        halved.then("after", OrElse(0))
    })
}

/// Two phases: the second starts when all of the first has ended.
pub fn two_phases() -> Declared {
    Pipeline::configure("two_phases", |p| {
        let a = p.step("a", Make(1));
        let b = p.step("b", Make(2));
        p.barrier();
        let c = p.step("c", Make(3));
        p.after((&a, &b)).following(&c).step("d", Both)
    })
}

/// All of them.
pub fn all() -> [(&'static str, Declare); 12] {
    [
        ("linear", linear),
        ("fan_out", fan_out),
        ("fan_in", fan_in),
        ("diamond_all", diamond_all),
        ("diamond_any", diamond_any),
        ("deep_chain", deep_chain),
        ("error_path", error_path),
        ("conditional", conditional),
        ("delay", delay),
        ("multi_level_join", multi_level_join),
        ("branch_with_an_empty_arm", branch_with_an_empty_arm),
        ("two_phases", two_phases),
    ]
}

#[allow(
    dead_code,
    reason = "the shapes are also used by the tests, without this program"
)]
fn main() -> std::process::ExitCode {
    for (name, declare) in all() {
        match declare() {
            Ok(pipeline) => println!("{name}\n\n{}", pipeline.graph().to_mermaid()),
            Err(invalid) => {
                eprintln!("{invalid}");
                return std::process::ExitCode::FAILURE;
            }
        }
    }
    std::process::ExitCode::SUCCESS
}
