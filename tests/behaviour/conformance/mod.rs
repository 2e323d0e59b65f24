//! The behaviour of the reference system, scenario by scenario: `docs/conformance.md` is the list.

mod barriers;
mod branches;
mod callbacks;
mod cancelling;
mod chains;
mod cleanup;
mod ends;
mod hand;
mod list;
mod races;
mod reruns;
mod retries;
mod start;
mod strategies;
mod withdrawn;
