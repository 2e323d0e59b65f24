//! A key that is given twice, though in two attributes.

use jobs::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "media", attempts = 5)]
#[job(queue = "default")]
struct Transcode;

fn main() {}
