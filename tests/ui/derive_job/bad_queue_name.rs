//! A queue's name with a blank in it.

use jobs::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "media files")]
struct Transcode;

fn main() {}
