//! An attribute on a field would say nothing of the job.

use jobs::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
struct Transcode {
    #[job(queue = "media")]
    preset: String,
}

fn main() {}
