//! The derive macros of `jobs` and `pipeline`.
//!
//! Applications use the macros through `jobs` and `pipeline`, which re-export each of them with its trait.

mod attributes;
mod backoff;
mod branch;
mod declared;
mod duration;
mod job;
mod krate;
mod name;
mod pipeline;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements the trait `jobs::Job` for a job type: its stored name, the version of its data, and its options.
///
/// ```text
/// use jobs::Job;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(
///     name = "media.transcode",
///     version = 2,
///     queue = "media",
///     priority = 10,
///     max_attempts = 5,
///     backoff = "exponential(1s..60s, jitter 0.2)",
///     timeout = "10m",
///     lease = "30s"
/// )]
/// struct Transcode {
///     preset: String,
/// }
/// ```
///
/// All attributes are optional; the defaults are those of `jobs::JobOptions::DEFAULT`. `#[job(..)]` may occur more than
/// once.
///
/// | attribute | value |
/// |---|---|
/// | `name` | a name: from 1 to 128 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`. The default is the name of the type in snake case: `HTTPFetch` is stored as `http_fetch` |
/// | `version` | an integer from 1 |
/// | `queue` | a name, as above |
/// | `priority` | an integer from -32768 to 32767 |
/// | `max_attempts` | an integer from 1 to 32767 |
/// | `backoff` | `"fixed(5s)"`, `"linear(1s..60s)"` or `"exponential(1s..60s)"`; each may end in a jitter from 0 to 1, as in `"fixed(5s, jitter 0.2)"` |
/// | `timeout` | a duration above zero |
/// | `lease` | a duration from `"1s"` to `"1d"` |
/// | `crate` | the path of the crate `jobs`, as in `crate = "my_framework::jobs"`; needed only if neither `jobs` nor `pipeline` is a dependency |
///
/// A duration is written `"500ms"`, `"30s"`, `"10m"`, `"2h"`, `"1d"` or `"1m30s"`.
///
/// The type is a struct or an enum without type parameters and lifetimes: a generic type would be many types under one
/// stored name.
#[proc_macro_derive(Job, attributes(job))]
pub fn derive_job(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    job::expand(&input, krate::find).into()
}

/// Implements the trait `pipeline::Branch` for an enum whose variants are the arms of a branch.
///
/// ```text
/// #[derive(Serialize, Deserialize, Branch)]
/// enum Format {
///     Hd,
///     Sd,
/// }
///
/// source.branch("format", PickFormat, FormatArms {
///     hd: || source.then("transcode_hd", Hd),
///     sd: || source.then("transcode_sd", Sd),
/// });
/// ```
///
/// The macro also generates the struct `FormatArms`, which has a field for each variant, in snake case: code that omits
/// an arm does not compile.
#[proc_macro_derive(Branch)]
pub fn derive_branch(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    branch::expand(&input, krate::find_pipeline).into()
}

/// Makes a params struct a pipeline with a stable name. The params are what is started, and are stored with the run.
///
/// ```text
/// #[derive(Serialize, Deserialize, Pipeline)]
/// #[pipeline(name = "video_processing")]
/// struct Video {
///     id: i64,
/// }
///
/// impl Define for Video {
///     type Jobs = (Download, Transcode);
///     type Output = Step<Encoded>;
///
///     fn define(&self, p: &PipelineBuilder) -> Step<Encoded> {
///         p.step("download", Download).then("transcode", Transcode)
///     }
/// }
/// ```
///
/// The derive implements `pipeline::Named`, and `pipeline::jobs::Jobs`, so that `Worker::register::<Video>()` registers
/// every job of `Define::Jobs`. The JSON Schema of the params follows their doc comments and serde attributes; the
/// types of their fields implement `schemars::JsonSchema`.
///
/// | attribute | what it takes |
/// |---|---|
/// | `name` | a name: from 1 to 128 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`. The default is the name of the type in snake case |
/// | `crate` | the path of the crate `pipeline` |
#[proc_macro_derive(Pipeline, attributes(pipeline))]
pub fn derive_pipeline(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    pipeline::expand(&input, krate::find_pipeline).into()
}
