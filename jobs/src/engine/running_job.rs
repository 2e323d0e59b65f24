//! The job that a task of this process performs.

use tokio::task::Id;

use super::local::workers;

/// A job that a worker of this process performs, and the slots of its queue.
#[derive(Debug, Clone)]
pub struct RunningJob {
    /// The job's id.
    pub id: i64,
    /// The name of the job's type.
    pub job_type: String,
    /// The job's queue.
    pub queue: String,
    /// The number of slots that the worker has for the queue.
    pub slots: u32,
    /// The number of these slots that are free.
    pub free_slots: usize,
}

impl RunningJob {
    /// Returns the job that this task performs. Compares the task with every running job of the process: for rare
    /// diagnostics, not for a hot path.
    pub fn of_task(task: Id) -> Option<Self> {
        workers().into_iter().find_map(|worker| {
            let (id, job_type, queue) = worker.ledger.performed_by(task)?;
            let slots = worker.slots.get(worker.slots.pattern_of(&queue)?);
            Some(Self {
                id,
                job_type,
                slots: slots.slots,
                free_slots: slots.free_slots(),
                queue,
            })
        })
    }
}
