//! What steps pass on: a number, alone or with 10 KB of text.
//!
//! Two programs include this file: the bench itself, and the program of the peers (`bench/peers`).

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Steps of a chain, one after the other. Each adds one to the number that it is given.
pub(crate) const CHAIN_STEPS: u64 = 5;
/// Steps between the first and the last step of a fan. Step `k` of them adds `k` to the first step's output.
pub(crate) const FAN_ARMS: u64 = 10;
/// All steps of a fan.
pub(crate) const FAN_STEPS: u64 = FAN_ARMS + 2;
/// The size of the text of a [`Large`] payload.
const LARGE_BYTES: usize = 10_000;

/// Returns what a chain that starts with this number returns.
pub(crate) fn chain_output(start: u64) -> u64 {
    start + CHAIN_STEPS
}

/// Returns what a fan that starts with this number returns: the first step adds one, the last one adds up.
pub(crate) fn fan_output(start: u64) -> u64 {
    FAN_ARMS * (start + 1) + (0..FAN_ARMS).sum::<u64>()
}

/// What the steps of a chain pass on.
pub(crate) trait Payload:
    Serialize + DeserializeOwned + Clone + Debug + Send + Sync + Unpin + 'static
{
    fn new(number: u64) -> Self;
    fn number(&self) -> u64;
    /// What a step makes of its input.
    fn next(self) -> Self;
}

impl Payload for u64 {
    fn new(number: u64) -> Self {
        number
    }

    fn number(&self) -> u64 {
        *self
    }

    fn next(self) -> Self {
        self + 1
    }
}

/// A number with 10 KB of text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Large {
    n: u64,
    text: String,
}

impl Payload for Large {
    fn new(number: u64) -> Self {
        Self {
            n: number,
            text: text(number),
        }
    }

    fn number(&self) -> u64 {
        self.n
    }

    fn next(mut self) -> Self {
        self.n += 1;
        self
    }
}

/// Text that Postgres cannot compress much: letters and digits by a linear congruential generator.
fn text(seed: u64) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = seed;
    let mut letter = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(letters[(state >> 58) as usize])
    };
    (0..LARGE_BYTES).map(|_| letter()).collect()
}
