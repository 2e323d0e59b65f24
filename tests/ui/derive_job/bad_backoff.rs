//! A backoff whose longest wait is shorter than its first.

use jobs::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(backoff = "exponential(2m..60s)")]
struct Transcode;

fn main() {}
