//! Neither in bulk, nor with options.

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
    let _ = client.enqueue_many([Transcode]).await;
    let _ = client.enqueue(jobs::NewJob::new(&Transcode).priority(1)).await;
}

fn main() {}
