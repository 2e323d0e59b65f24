//! The two tables of statuses (§6): which status may follow which.

use std::fmt;

/// The status of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the words of §6")]
pub enum RunStatus {
    /// The run waits in a chain.
    Pending,
    Running,
    /// The run is drained, by a cancel or by its deadline.
    Cancelling,
    Succeeded,
    Failed,
    Halted,
    Skipped,
    Cancelled,
}

impl RunStatus {
    /// All of them, for tests of the table.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Running,
        Self::Cancelling,
        Self::Succeeded,
        Self::Failed,
        Self::Halted,
        Self::Skipped,
        Self::Cancelled,
    ];

    /// Whether only a reopening can change the status.
    pub fn ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Running | Self::Cancelling)
    }

    /// Rule 17: whether the run has ended, and runs that are chained to it cannot start.
    pub fn ended_otherwise(self) -> bool {
        self.ended() && self != Self::Succeeded
    }

    /// §6, in the course of a round.
    pub fn may_become(self, to: Self) -> bool {
        use RunStatus::*;
        match self {
            Pending => matches!(to, Running | Skipped | Cancelled),
            Running => matches!(to, Succeeded | Failed | Halted | Cancelling),
            Cancelling => matches!(to, Cancelled | Failed),
            Succeeded | Failed | Halted | Skipped | Cancelled => false,
        }
    }

    /// §6, by reopening only.
    pub fn may_reopen_as(self, to: Self) -> bool {
        use RunStatus::*;
        match self {
            Failed | Halted | Cancelled => matches!(to, Running | Pending),
            Skipped => to == Pending,
            Pending | Running | Cancelling | Succeeded => false,
        }
    }
}

/// The status of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the words of §6")]
pub enum StepStatus {
    Pending,
    /// The step has a job that is queued, running, scheduled, or waiting for its next attempt.
    Enqueued,
    /// The step waits for a time, a signal or a child; it holds no job.
    Waiting,
    Succeeded,
    Failed,
    /// The attempt called `cx.end_run()` and succeeded.
    EndedRun,
    Skipped,
    SkippedByBranch,
    Cancelled,
}

impl StepStatus {
    /// All of them, for tests of the table.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Enqueued,
        Self::Waiting,
        Self::Succeeded,
        Self::Failed,
        Self::EndedRun,
        Self::Skipped,
        Self::SkippedByBranch,
        Self::Cancelled,
    ];

    /// Rule 9: whether the step has ended; a run whose steps have all ended is over.
    pub fn ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Enqueued | Self::Waiting)
    }

    /// §6, in the course of a round.
    pub fn may_become(self, to: Self) -> bool {
        use StepStatus::*;
        match self {
            Pending => matches!(
                to,
                Enqueued | Waiting | Skipped | SkippedByBranch | Succeeded | Failed | Cancelled
            ),
            Enqueued => matches!(to, Waiting | Succeeded | Failed | EndedRun | Cancelled),
            Waiting => matches!(to, Succeeded | Failed | Skipped | Cancelled),
            Succeeded | Failed | EndedRun | Skipped | SkippedByBranch | Cancelled => false,
        }
    }

    /// §6, by reopening only: a reopened run resets every step that ended so. Steps of error paths are reset
    /// with the step that they watch, however they ended.
    pub fn is_reset_by_reopening(self) -> bool {
        matches!(self, Self::Failed | Self::Skipped | Self::Cancelled)
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Halted => "halted",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        })
    }
}

impl fmt::Display for StepStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Enqueued => "enqueued",
            Self::Waiting => "waiting",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::EndedRun => "ended_run",
            Self::Skipped => "skipped",
            Self::SkippedByBranch => "skipped_by_branch",
            Self::Cancelled => "cancelled",
        })
    }
}
