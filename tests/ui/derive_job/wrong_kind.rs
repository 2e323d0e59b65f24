//! A value of another kind than the key takes, and a key without a value.

use jobs::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(max_attempts = "5", timeout = 600, queue)]
struct Transcode;

fn main() {}
