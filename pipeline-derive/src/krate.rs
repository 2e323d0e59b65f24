//! Where the crates `jobs` and `pipeline` are, seen from the code that derives.

use proc_macro_crate::{Error, FoundCrate, crate_name};
use proc_macro2::Span;
use syn::Path;

/// The path to `jobs`, as the `Cargo.toml` of the code that derives has it: a dependency of its
/// own, or the one that `pipeline` re-exports.
pub(crate) fn find() -> syn::Result<Path> {
    let path = choose(crate_name("jobs"), crate_name("pipeline"))
        .map_err(|message| syn::Error::new(Span::call_site(), message))?;
    syn::parse_str(&path)
}

/// The path to `pipeline`, for what only it has.
pub(crate) fn find_pipeline() -> syn::Result<Path> {
    match crate_name("pipeline") {
        Ok(FoundCrate::Name(name)) => syn::parse_str(&format!("::{name}")),
        Ok(FoundCrate::Itself) => syn::parse_str("::pipeline"),
        Err(Error::CrateNotFound { .. }) => Err(syn::Error::new(
            Span::call_site(),
            "`pipeline` is not a dependency of this crate: add it with `cargo add pipeline`",
        )),
        // No `Cargo.toml` to look into: built by something else than cargo.
        Err(_) => syn::parse_str("::pipeline"),
    }
}

fn choose(
    jobs: Result<FoundCrate, Error>,
    pipeline: Result<FoundCrate, Error>,
) -> Result<String, &'static str> {
    match (jobs, pipeline) {
        (Ok(FoundCrate::Name(jobs)), _) => Ok(format!("::{jobs}")),
        // Also in an application that is itself called `jobs`: ours does not depend on `pipeline`.
        (_, Ok(FoundCrate::Name(pipeline))) => Ok(format!("::{pipeline}::jobs")),
        (Ok(FoundCrate::Itself), _) => Ok("::jobs".to_owned()),
        (Err(Error::CrateNotFound { .. }), _) => Err(
            "neither `jobs` nor `pipeline` is a dependency of this crate: add one, \
                or say where `jobs` is: `#[job(crate = \"path::to::jobs\")]`",
        ),
        // No `Cargo.toml` to look into: built by something else than cargo.
        (Err(_), _) => Ok("::jobs".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_is_found_where_the_manifest_has_it() {
        let named = |name: &str| Ok(FoundCrate::Name(name.to_owned()));
        let itself = || Ok(FoundCrate::Itself);
        let absent = || {
            Err(Error::CrateNotFound {
                crate_name: String::new(),
                path: "Cargo.toml".into(),
            })
        };
        let no_cargo = || Err(Error::CargoManifestDirNotSet);
        for (jobs, pipeline, path) in [
            (named("jobs"), absent(), "::jobs"),
            (named("renamed"), named("pipeline"), "::renamed"),
            (named("jobs"), itself(), "::jobs"),
            (absent(), named("pipeline"), "::pipeline::jobs"),
            (absent(), named("renamed"), "::renamed::jobs"),
            (itself(), absent(), "::jobs"),
            (itself(), named("pipeline"), "::pipeline::jobs"),
            (no_cargo(), no_cargo(), "::jobs"),
        ] {
            assert_eq!(choose(jobs, pipeline).as_deref(), Ok(path));
        }
        assert!(choose(absent(), absent()).is_err());
    }
}
