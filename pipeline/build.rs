//! Refuses a checkout without its links.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if !Path::new(".sqlx").is_dir() {
        println!(
            "cargo::error=`pipeline/.sqlx` is not a folder: this checkout was made without symbolic links. \
            Run `git config core.symlinks true`, then `git checkout -- jobs pipeline pipeline-derive` (on \
            Windows, first turn on Developer Mode)."
        );
    }
}
