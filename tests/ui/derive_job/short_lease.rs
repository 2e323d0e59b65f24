//! A lease that would end before it can be renewed.

use jobs::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(lease = "200ms")]
struct Transcode;

fn main() {}
