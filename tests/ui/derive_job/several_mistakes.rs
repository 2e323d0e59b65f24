//! All mistakes are reported at once, and nothing else is: the job is still a job elsewhere.

use jobs::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(max_attempts = 0, backoff = "sometimes", colour = "red")]
#[job(queue = "", priority = 40000, lease = "2d")]
struct Transcode {
    preset: String,
}

fn a_job<J: Job>() {}

fn main() {
    a_job::<Transcode>();
}
