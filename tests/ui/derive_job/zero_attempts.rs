//! A job is tried at least once.

use jobs::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(max_attempts = 0)]
struct Transcode;

fn main() {}
