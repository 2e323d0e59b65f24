//! Graphs as they are declared. These tests need no database: mistakes are reported before any write.
//!
//! The scenarios of the reference system on definition and validation are told by their numbers, in
//! our verbs. What concerns the untyped graph is in `pipeline/src/graph/tests/`.

mod compile_fail;
mod declared;
pub(crate) mod topologies;
