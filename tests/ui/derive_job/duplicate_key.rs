//! A key that is given twice, though in two attributes.

use jobs::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "media", max_attempts = 5)]
#[job(queue = "default")]
struct Transcode;

fn main() {}
