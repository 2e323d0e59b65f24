//! A type that is no job at all.

use jobs::{Client, Worker};

struct Transcode;

async fn enqueue(client: Client) {
    let _ = client.enqueue(Transcode).await;
}

fn register(worker: Worker) -> Worker {
    worker.register::<Transcode>()
}

fn main() {}
