//! unknown
