//! Twelve shapes of pipelines, each in a few lines. The program draws them.
//!
//! The jobs do almost nothing, because the example is about the shapes.

use std::time::Duration;

use pipeline::Invalid;
use pipeline::prelude::*;
use serde::{Deserialize, Serialize};

/// The result of declaring a pipeline.
pub type Declared = Result<Pipeline<i64>, Invalid>;

/// A function that declares a pipeline.
pub type Declare = fn() -> Declared;

/// Returns a number.
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

/// Adds up a list of numbers.
#[derive(Debug, Serialize, Deserialize, Job)]
pub struct Sum;

impl Perform for Sum {
    type Input = Vec<i64>;
    type Output = i64;
    async fn perform(self, numbers: Vec<i64>, _: &Context) -> Result<i64, JobError> {
        Ok(numbers.iter().sum())
    }
}

/// Adds up two numbers.
#[derive(Debug, Serialize, Deserialize, Job)]
pub struct Both;

impl Perform for Both {
    type Input = (i64, i64);
    type Output = i64;
    async fn perform(self, (one, other): (i64, i64), _: &Context) -> Result<i64, JobError> {
        Ok(one + other)
    }
}

/// Returns its input, or a default if the input is absent.
#[derive(Debug, Serialize, Deserialize, Job)]
pub struct OrElse(pub i64);

impl Perform for OrElse {
    type Input = Option<i64>;
    type Output = i64;
    async fn perform(self, number: Option<i64>, _: &Context) -> Result<i64, JobError> {
        Ok(number.unwrap_or(self.0))
    }
}

/// Fails at every attempt.
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

/// Returns a value in place of a failed step.
#[derive(Debug, Serialize, Deserialize, Job)]
pub struct Mend(pub i64);

impl Perform for Mend {
    type Input = Failure;
    type Output = i64;
    async fn perform(self, _: Failure, _: &Context) -> Result<i64, JobError> {
        Ok(self.0)
    }
}

/// Whether a number is even.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, Branch)]
pub enum Parity {
    /// The number is even.
    Even,
    /// The number is odd.
    Odd,
}

/// Chooses the arm for a number.
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

/// Three steps in sequence.
pub fn linear() -> Declared {
    Pipeline::configure("linear", |p| {
        let a = p.step("a", Make(1));
        let b = a.then("b", Add(1));
        b.then("c", Add(1))
    })
}

/// One step, then several at the same time.
pub fn fan_out() -> Declared {
    Pipeline::configure("fan_out", |p| {
        let source = p.step("source", Make(1));
        for n in 1..=5 {
            source.then(&format!("worker_{n}"), Add(n));
        }
        source
    })
}

/// Several steps at the same time, then one.
pub fn fan_in() -> Declared {
    Pipeline::configure("fan_in", |p| {
        let sources: Vec<_> = (1..=5)
            .map(|n| p.step(&format!("source_{n}"), Make(n)))
            .collect();
        p.after(&sources).step("sum", Sum)
    })
}

/// A diamond whose join waits for both steps.
pub fn diamond_all() -> Declared {
    Pipeline::configure("diamond_all", |p| {
        let source = p.step("source", Make(1));
        let (left, right) = (source.then("left", Add(1)), source.then("right", Add(2)));
        p.after((&left, &right)).step("join", Both)
    })
}

/// A diamond whose join takes the first step that succeeds.
pub fn diamond_any() -> Declared {
    Pipeline::configure("diamond_any", |p| {
        let source = p.step("source", Make(1));
        let (left, right) = (source.then("left", Add(1)), source.then("right", Add(2)));
        p.after_any([&left, &right]).step("first", Add(10))
    })
}

/// A long sequence of steps.
pub fn deep_chain() -> Declared {
    Pipeline::configure("deep_chain", |p| {
        let mut last = p.step("step_0", Make(0));
        for n in 1..20 {
            last = last.then(&format!("step_{n}"), Add(1));
        }
        last
    })
}

/// A failing step, an error path, and a step that continues without the output.
pub fn error_path() -> Declared {
    Pipeline::configure("error_path", |p| {
        let source = p.step("source", Make(1));
        let risky = source.then("risky", Break).optional();
        p.after_failure(&risky).step("mend", Mend(42));
        risky.then("go_on", OrElse(7))
    })
}

/// A branch with two arms that both return a value.
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

/// A step with a delay.
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

/// A branch in which one arm has no steps.
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

/// Two phases: the second starts when all steps of the first have ended.
pub fn two_phases() -> Declared {
    Pipeline::configure("two_phases", |p| {
        let a = p.step("a", Make(1));
        let b = p.step("b", Make(2));
        p.barrier();
        let c = p.step("c", Make(3));
        p.after((&a, &b)).following(&c).step("d", Both)
    })
}

/// All shapes, with their names.
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
