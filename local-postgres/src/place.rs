//! The folders of a cluster's files.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::account::Account;
use crate::error::At as _;
use crate::{Error, Result};

/// Returns the current checkout: the nearest folder upwards that holds this crate, from the package that cargo
/// runs, else from the working folder. The search is done at run time, because a checkout may have been moved since
/// it was built.
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
    /// Why the folder is not in the checkout, if it is not.
    pub(crate) elsewhere: Option<String>,
}

impl Place {
    /// Returns the checkout's `.postgres` if the server's account can work there; else a folder under `/var/tmp`.
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

    /// Returns the folder of downloaded programs.
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

/// Checks a folder that lies where every user may write: it must belong to the current user.
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

/// Returns the FNV-1a hash of a path: it tells two checkouts apart, and does not change from build to build.
fn short_hash(path: &Path) -> u32 {
    path.as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0x811c_9dc5, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        })
}
