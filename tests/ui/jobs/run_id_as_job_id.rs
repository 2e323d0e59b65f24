//! The id of a run is no id of a job.

use pipeline::{Client, Run};

async fn look(client: Client, run: Run) {
    let _ = client.job(run.id()).info();
}

fn main() {}
