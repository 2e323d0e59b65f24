//! The program of the peers: built when it is needed, from the workspace of its own.

use std::path::{Path, PathBuf};

use crate::frame::Result;

/// Where the sources are, from the root of the checkout.
const MANIFEST: &str = "bench/peers/Cargo.toml";
/// Where it is built, from the root of the checkout.
const TARGET: &str = "target/peers";

/// Builds the program, and returns where it is. Where nothing has changed, this takes a moment.
pub(crate) async fn build() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the bench has no folder above it")?;
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => root.join(target).join("peers"),
        None => root.join(TARGET),
    };
    let status = tokio::process::Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--release", "--locked", "--quiet"])
        .arg("--manifest-path")
        .arg(root.join(MANIFEST))
        .arg("--target-dir")
        .arg(&target)
        // In its folder, so that its own settings of cargo apply.
        .current_dir(root.join("bench/peers"))
        .status()
        .await?;
    if !status.success() {
        return Err(format!("the peers cannot be built ({status}): see {MANIFEST}").into());
    }
    Ok(target.join("release/peers"))
}
