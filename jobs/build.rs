//! Rebuilds the crate when a migration is added, and refuses a checkout without its links.

use std::path::Path;

fn main() {
    // The macro that embeds the migrations notices changed files only, not new ones.
    println!("cargo::rerun-if-changed=migrations");
    for link in ["migrations", ".sqlx"] {
        if !Path::new(link).is_dir() {
            println!(
                "cargo::error=`jobs/{link}` is not a folder: this checkout was made without symbolic links. \
                Run `git config core.symlinks true`, then `git checkout -- jobs pipeline pipeline-derive` (on \
                Windows, first turn on Developer Mode)."
            );
        }
    }
}
