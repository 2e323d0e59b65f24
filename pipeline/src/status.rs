//! Where runs and steps stand.

use std::fmt;

macro_rules! statuses {
    (
        $(#[$doc:meta])* $name:ident, $what:literal;
        $($(#[$variant_doc:meta])* $variant:ident = $text:literal),* $(,)?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant),*
        }

        impl $name {
            /// Every one there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name, as the database has it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),*
                }
            }
        }

        impl std::str::FromStr for $name {
            type Err = UnknownStatus;

            fn from_str(text: &str) -> Result<Self, UnknownStatus> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(UnknownStatus {
                        what: $what,
                        text: jobs::limits::shortened(text),
                        known: &[$($text),*],
                    }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

/// A text that is no status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no status of a {what}: use one of {}", .known.join(", "))]
pub struct UnknownStatus {
    what: &'static str,
    text: String,
    known: &'static [&'static str],
}

impl From<UnknownStatus> for sqlx::Error {
    fn from(error: UnknownStatus) -> Self {
        Self::Decode(Box::new(error))
    }
}

statuses! {
    /// Where a run stands.
    RunStatus, "run";
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

statuses! {
    /// Where a step stands.
    StepStatus, "step";
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
    Halted = "halted",
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
