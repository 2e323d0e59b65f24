//! The derive macros of `jobs` and `pipeline`: `Job`, `Pipeline` and `Branch`.
//!
//! None of them is here yet; `docs/status.md` says what is. An application will not name this
//! crate: each macro is re-exported beside the trait it implements.
