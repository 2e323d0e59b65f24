//! A key that does not exist is told which do, and which was probably meant.

use jobs::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "media", max_atempts = 5)]
struct Transcode;

fn main() {}
