//! A batch tells its callback how it ended, and nothing else.

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

async fn batch(client: Client) {
    let _ = client.batch().on_finish(Transcode).open().await;
}

fn main() {}
