//! A worker takes up to 16 jobs in one tuple, and says that tuples can be nested.

use jobs::{Context, Job, JobError, Perform, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
struct J;

impl Perform for J {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

fn set_up(worker: Worker) -> Worker {
    worker
        .register::<((J, J), (J, (J, J)))>()
        .register::<(J, J, J, J, J, J, J, J, J, J, J, J, J, J, J, J, J)>()
}

fn main() {}
