//! A job is tried at least once.

use jobs::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(attempts = 0)]
struct Transcode;

fn main() {}
