//! The paths of the crates `jobs` and `pipeline`, as seen from the code that derives.

use proc_macro_crate::{Error, FoundCrate, crate_name};
use proc_macro2::Span;
use syn::Path;

/// A library of ours: its package name on the registry, and the name that code uses.
struct Library {
    package: &'static str,
    name: &'static str,
}

const JOBS: Library = Library {
    package: "pg-pipeline-jobs",
    name: "jobs",
};
const PIPELINE: Library = Library {
    package: "pg-pipeline",
    name: "pipeline",
};

impl Library {
    fn find(&self) -> Result<FoundCrate, Error> {
        let found = crate_name(self.package)?;
        Ok(self.named(found))
    }

    /// Replaces the package's name by the library's: a dependency that the manifest does not rename
    /// is known to code by its library's name, which `proc_macro_crate` does not know.
    fn named(&self, found: FoundCrate) -> FoundCrate {
        match found {
            FoundCrate::Name(name) if name == self.package.replace('-', "_") => {
                FoundCrate::Name(self.name.to_owned())
            }
            found => found,
        }
    }
}

/// Returns the path to `jobs`, by the `Cargo.toml` of the code that derives: a dependency of its
/// own, or the re-export of `pipeline`.
pub(crate) fn find() -> syn::Result<Path> {
    let path = choose(JOBS.find(), PIPELINE.find())
        .map_err(|message| syn::Error::new(Span::call_site(), message))?;
    syn::parse_str(&path)
}

/// Returns the path to `pipeline`, for macros whose traits are only there.
pub(crate) fn find_pipeline() -> syn::Result<Path> {
    match PIPELINE.find() {
        Ok(FoundCrate::Name(name)) => syn::parse_str(&format!("::{name}")),
        Ok(FoundCrate::Itself) => syn::parse_str("::pipeline"),
        Err(Error::CrateNotFound { .. }) => Err(syn::Error::new(
            Span::call_site(),
            "`pg-pipeline` is not a dependency of this crate: add it with `cargo add pg-pipeline`",
        )),
        // There is no `Cargo.toml` to read: the build does not use cargo.
        Err(_) => syn::parse_str("::pipeline"),
    }
}

fn choose(
    jobs: Result<FoundCrate, Error>,
    pipeline: Result<FoundCrate, Error>,
) -> Result<String, &'static str> {
    match (jobs, pipeline) {
        (Ok(FoundCrate::Name(jobs)), _) => Ok(format!("::{jobs}")),
        (_, Ok(FoundCrate::Name(pipeline))) => Ok(format!("::{pipeline}::jobs")),
        (Ok(FoundCrate::Itself), _) => Ok("::jobs".to_owned()),
        (Err(Error::CrateNotFound { .. }), _) => Err(
            "neither `pg-pipeline` nor `pg-pipeline-jobs` is a dependency of this crate: add one with \
                `cargo add`, or name the path of `jobs`: `#[job(crate = \"path::to::jobs\")]`",
        ),
        // There is no `Cargo.toml` to read: the build does not use cargo.
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
            (no_cargo(), no_cargo(), "::jobs"),
        ] {
            assert_eq!(choose(jobs, pipeline).as_deref(), Ok(path));
        }
        assert!(choose(absent(), absent()).is_err());
    }

    #[test]
    fn a_dependency_that_is_not_renamed_has_the_name_of_its_library() {
        let name =
            |library: &Library, found: &str| library.named(FoundCrate::Name(found.to_owned()));
        assert_eq!(
            name(&PIPELINE, "pg_pipeline"),
            FoundCrate::Name("pipeline".into())
        );
        assert_eq!(
            name(&JOBS, "pg_pipeline_jobs"),
            FoundCrate::Name("jobs".into())
        );
        assert_eq!(name(&JOBS, "renamed"), FoundCrate::Name("renamed".into()));
        assert_eq!(PIPELINE.named(FoundCrate::Itself), FoundCrate::Itself);
    }
}
