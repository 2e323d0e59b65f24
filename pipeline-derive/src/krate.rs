//! The paths of the crates `jobs` and `pipeline` in the crate that uses a derive.

use proc_macro_crate::{Error, FoundCrate, crate_name};
use proc_macro2::Span;
use syn::Path;

/// Returns the path of `jobs` by the dependencies of the crate that uses the derive: a direct dependency, or the
/// re-export of `pipeline`.
pub(crate) fn find() -> syn::Result<Path> {
    let path = choose(crate_name("jobs"), crate_name("pipeline"))
        .map_err(|message| syn::Error::new(Span::call_site(), message))?;
    syn::parse_str(&path)
}

/// Returns the path of `pipeline`.
pub(crate) fn find_pipeline() -> syn::Result<Path> {
    match crate_name("pipeline") {
        Ok(FoundCrate::Name(name)) => syn::parse_str(&format!("::{name}")),
        Ok(FoundCrate::Itself) => syn::parse_str("::pipeline"),
        Err(Error::CrateNotFound { .. }) => Err(syn::Error::new(
            Span::call_site(),
            "`pipeline` is not a dependency of this crate: add it with `cargo add pipeline`",
        )),
        // There is no `Cargo.toml`: the crate is not built by cargo.
        Err(_) => syn::parse_str("::pipeline"),
    }
}

fn choose(
    jobs: Result<FoundCrate, Error>,
    pipeline: Result<FoundCrate, Error>,
) -> Result<String, &'static str> {
    match (jobs, pipeline) {
        (Ok(FoundCrate::Name(jobs)), _) => Ok(format!("::{jobs}")),
        // An application may itself be called `jobs`; unlike this project's crate, it depends on `pipeline`.
        (_, Ok(FoundCrate::Name(pipeline))) => Ok(format!("::{pipeline}::jobs")),
        (Ok(FoundCrate::Itself), _) => Ok("::jobs".to_owned()),
        (Err(Error::CrateNotFound { .. }), _) => Err(
            "neither `jobs` nor `pipeline` is a dependency of this crate: add one, \
                or say where `jobs` is: `#[job(crate = \"path::to::jobs\")]`",
        ),
        // There is no `Cargo.toml`: the crate is not built by cargo.
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
