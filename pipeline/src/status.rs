//! The statuses of runs and steps.

jobs::text_enum! {
    /// The status of a run.
    RunStatus, "status of a run";
    /// The run waits for the runs before it in its chain.
    Pending = "pending",
    /// The steps of the run are performed.
    Running = "running",
    /// The run is being cancelled: running steps may still end.
    Cancelling = "cancelling",
    /// The run succeeded.
    Succeeded = "succeeded",
    /// A step failed, and the other steps continued as far as they could.
    Failed = "failed",
    /// A step failed, and the steps that had not started were skipped.
    Halted = "halted",
    /// The run was cancelled.
    Cancelled = "cancelled",
    /// A run before it in its chain did not succeed.
    Skipped = "skipped",
}

impl RunStatus {
    /// Returns whether this is a final status, which only a reopening changes.
    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Running | Self::Cancelling)
    }
}

jobs::text_enum! {
    /// The status of a step.
    StepStatus, "status of a step";
    /// The step waits for the steps before it.
    Pending = "pending",
    /// The job of the step is in the queue, or runs.
    Enqueued = "enqueued",
    /// The step waits for a time, a signal or a child run.
    Waiting = "waiting",
    /// The step succeeded.
    Succeeded = "succeeded",
    /// The step failed, and has no attempt left.
    Failed = "failed",
    /// The step succeeded, and ended its run early.
    EndedRun = "ended_run",
    /// The step was cancelled with its run.
    Cancelled = "cancelled",
    /// The step was skipped, because of a failure or of the end of its run.
    Skipped = "skipped",
    /// The step was skipped because a branch chose another arm, or because the failure it comes after did not happen.
    SkippedByBranch = "skipped_by_branch",
}

impl StepStatus {
    /// Returns whether this is a final status, which only a reopening changes.
    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Enqueued | Self::Waiting)
    }
}
