//! A job that takes an input cannot be enqueued on its own: nobody would give it one.

use jobs::{Client, Context, Job, JobError, Perform};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Source;

#[derive(Serialize, Deserialize, Job)]
struct Transcode;

impl Perform for Transcode {
    type Input = Source;
    type Output = ();

    async fn perform(self, _: Source, _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

async fn enqueue(client: Client) {
    let _ = client.enqueue(Transcode).await;
}

fn main() {}
