//! A job that does not say how it is performed can be neither enqueued nor registered.

use jobs::{Client, Job, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
struct Transcode;

async fn enqueue(client: Client) {
    let _ = client.enqueue(Transcode).await;
    let _ = client.batch().on_finish(Transcode);
}

fn register(worker: Worker) -> Worker {
    worker.register::<Transcode>().register::<(Transcode, Transcode)>()
}

fn main() {}
