//! Statuses of runs and steps.

jobs::text_enum! {
    /// The status of a run.
    RunStatus, "status of a run";
    /// The run waits for the runs before it in its chain.
    Pending = "pending",
    /// Steps of the run are waiting or running.
    Running = "running",
    /// The run is being cancelled: running steps may still end.
    Cancelling = "cancelling",
    /// The run succeeded.
    Succeeded = "succeeded",
    /// A step failed, and steps that do not depend on it continued; or the run's deadline passed.
    Failed = "failed",
    /// A step failed, and the steps that had not started were skipped.
    Halted = "halted",
    /// The run was cancelled.
    Cancelled = "cancelled",
    /// The run was skipped, because a run before it in its chain did not succeed.
    Skipped = "skipped",
}

impl RunStatus {
    /// Returns whether the run has ended. Only reopening the run changes the status after that.
    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Running | Self::Cancelling)
    }
}

jobs::text_enum! {
    /// The status of a step.
    StepStatus, "status of a step";
    /// The step waits for its upstream steps.
    Pending = "pending",
    /// The step's job is in the queue, or runs.
    Enqueued = "enqueued",
    /// The step waits for a time, a signal or a child pipeline.
    Waiting = "waiting",
    /// The step succeeded.
    Succeeded = "succeeded",
    /// The step failed, and no attempts are left.
    Failed = "failed",
    /// The step succeeded and ended its run early.
    EndedRun = "ended_run",
    /// The step was cancelled with its run.
    Cancelled = "cancelled",
    /// The step was skipped: an upstream step did not succeed, or the run ended first.
    Skipped = "skipped",
    /// The step was skipped, because a branch chose another arm or the failure it waits for did not happen.
    SkippedByBranch = "skipped_by_branch",
}

impl StepStatus {
    /// Returns whether the step has ended. Only reopening the run changes the status after that.
    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Enqueued | Self::Waiting)
    }
}
