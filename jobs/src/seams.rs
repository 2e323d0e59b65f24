//! What the `pipeline` crate builds on, and tests: not for others, and not kept stable.

pub use crate::backend::{Claimed, OfRun};
pub use crate::engine::{
    Came, Chore, End, LoadInput, Moment, News, Offer, Offered, Probe, Settle, Settled,
};
pub use crate::enqueue::Target;
pub use crate::input::{Given, Input};
pub use crate::known::Wanted;
pub use crate::part::Part;
pub use crate::registry::Fake;
