//! Where a cluster's files lie.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::account::Account;
use crate::error::At as _;
use crate::{Error, Result};

/// The checkout we work in: the nearest folder upwards that holds this crate, seen from the package
/// that cargo runs, else from the working folder. Looked for when it is asked for: a checkout may
/// have been moved since it was built.
pub fn checkout() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    package
        .into_iter()
        .chain(std::env::current_dir())
        .find_map(|start| {
            start
                .ancestors()
                .find(|folder| folder.join("local-postgres/Cargo.toml").is_file())
                .map(Path::to_owned)
        })
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".."))
}

/// The folder that holds clusters and downloaded programs.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    /// Why it is not in the checkout, if it is not.
    pub(crate) elsewhere: Option<String>,
}

impl Place {
    /// The checkout's `.postgres`, where the server's account can work there; else a folder of our
    /// own under the system's `/var/tmp`.
    pub(crate) fn choose(account: &Account) -> Result<Self> {
        let checkout = checkout();
        let checkout = checkout.canonicalize().at("find", &checkout)?;
        let inside = checkout.join(".postgres");
        let why = match fs::create_dir_all(&inside) {
            Ok(()) if account.can_enter(&inside) && (account.switches() || writable(&inside)) => {
                return Ok(Self {
                    folder: inside,
                    elsewhere: None,
                });
            }
            Ok(()) => "the user the server runs as cannot work in the checkout".to_owned(),
            Err(error) => format!("the checkout cannot be written to: {error}"),
        };
        let name = format!(
            "pipeline-postgres-{}-{:08x}",
            account.asker,
            short_hash(&checkout)
        );
        let outside = Path::new("/var/tmp").join(name);
        own_folder(&outside)?;
        Ok(Self {
            folder: outside,
            elsewhere: Some(why),
        })
    }

    /// Where downloaded programs go.
    pub(crate) fn downloads(&self) -> PathBuf {
        self.folder.join("programs")
    }
}

fn writable(folder: &Path) -> bool {
    tempfile::Builder::new()
        .prefix(".probe")
        .tempfile_in(folder)
        .is_ok()
}

/// A folder in a place everybody may write to: it must be ours, or somebody has laid a trap.
fn own_folder(folder: &Path) -> Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(error).at("create", folder);
        }
        _ => {}
    }
    let found = fs::symlink_metadata(folder).at("look at", folder)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::NotOurs {
            folder: folder.to_owned(),
            owner: found.uid(),
        });
    }
    Ok(())
}

/// FNV-1a: keeps two checkouts apart, and stays the same from build to build.
fn short_hash(path: &Path) -> u32 {
    path.as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0x811c_9dc5, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        })
}
