//! Where runs and steps stand.

jobs::text_enum! {
    /// Where a run stands.
    RunStatus, "status of a run";
    /// It waits for the runs before it in its chain.
    Pending = "pending",
    /// Its steps run.
    Running = "running",
    /// It is being cancelled; what runs may still end.
    Cancelling = "cancelling",
    /// It is done.
    Succeeded = "succeeded",
    /// A step failed, and the others went on as far as they could.
    Failed = "failed",
    /// A step failed, and what had not started was skipped.
    Halted = "halted",
    /// Someone cancelled it.
    Cancelled = "cancelled",
    /// A run before it in its chain did not succeed.
    Skipped = "skipped",
}

impl RunStatus {
    /// Whether it is over; only a reopening changes it then.
    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Running | Self::Cancelling)
    }
}

jobs::text_enum! {
    /// Where a step stands.
    StepStatus, "status of a step";
    /// It waits for what comes before it.
    Pending = "pending",
    /// Its job is in the queue, or runs.
    Enqueued = "enqueued",
    /// It waits for a time, a signal or a child.
    Waiting = "waiting",
    /// It is done.
    Succeeded = "succeeded",
    /// It failed for good.
    Failed = "failed",
    /// It is done, and has ended its run early.
    EndedRun = "ended_run",
    /// Its run was cancelled.
    Cancelled = "cancelled",
    /// It could not run, or was not to any more.
    Skipped = "skipped",
    /// A branch chose otherwise, or the failure it comes after did not happen.
    SkippedByBranch = "skipped_by_branch",
}

impl StepStatus {
    /// Whether it is over; only a reopening changes it then.
    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Enqueued | Self::Waiting)
    }
}
