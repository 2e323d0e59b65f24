//! A duration with a unit that does not exist.

use jobs::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(timeout = "10 minutes")]
struct Transcode;

fn main() {}
