//! The extension points that the `pipeline` crate builds on, and tests. Not for applications, and not stable.

pub use crate::attempt::{AttemptEnd, Claimed, OfRun};
pub use crate::engine::{
    AfterCommit, ClaimHook, Effects, EndHook, EndRow, EndSettings, Ended, FailedJob, FailedRow,
    HandOver, MaintenanceTask, Moment, Notification, OfferedSlots, Probe, SlotOffer, positions,
};
pub use crate::enqueue::Target;
pub use crate::input::{Given, Input};
pub use crate::known::Wanted;
pub use crate::part::Part;
pub use crate::registry::Fake;
