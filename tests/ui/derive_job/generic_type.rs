//! A generic type would be many jobs under one stored name.

use jobs::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
struct Transcode<T> {
    preset: T,
}

fn main() {}
