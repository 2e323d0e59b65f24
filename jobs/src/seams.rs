//! The extension points that the `pipeline` crate builds on, and tests. Not for applications, and not stable.

pub use crate::attempt::{AttemptEnd, Claimed, OfRun, Outcome};
pub use crate::engine::{
    AfterCommit, ClaimHook, Effects, EndHook, FailureLabel, HandOver, MaintenanceTask, Moment,
    Notification, OfferedSlots, Probe, SlotOffer,
};
pub use crate::enqueue::Target;
pub use crate::input::{Given, Input};
pub use crate::known::Wanted;
pub use crate::part::Part;
pub use crate::registry::Fake;
