//! The system account that the server runs as.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::At as _;
use crate::{Error, Result};

/// The user that the server and its programs run as: the current user, unless that is root.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    /// The name of the current user, which is part of the folder's name.
    pub(crate) asker: String,
    /// The other user, if the server cannot run as the current user.
    switch_to: Option<(u32, u32)>,
}

impl Account {
    pub(crate) fn current() -> Result<Self> {
        let uid = rustix::process::geteuid();
        let asker = id(&["-un"]).unwrap_or_else(|| uid.as_raw().to_string());
        let switch_to = if uid.is_root() {
            Some(
                ["postgres", "nobody"]
                    .iter()
                    .find_map(|name| Some((number("-u", name)?, number("-g", name)?)))
                    .ok_or(Error::NoAccount)?,
            )
        } else {
            None
        };
        Ok(Self { asker, switch_to })
    }

    pub(crate) fn switches(&self) -> bool {
        self.switch_to.is_some()
    }

    /// Builds a command that runs as this account, in a folder that the account can enter.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(folder).stdin(Stdio::null());
        // Messages are parsed and shown; a PG* variable would lead the programs elsewhere.
        command.env("LC_ALL", "C");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        if let Some((uid, gid)) = self.switch_to {
            command.uid(uid).gid(gid).env("HOME", folder);
        }
        command
    }

    /// Whether the account can work in this folder. The system is asked, because permission bits of one folder do
    /// not tell: any folder above it may be closed.
    pub(crate) fn can_enter(&self, folder: &Path) -> bool {
        self.command("true", folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    /// Creates a folder that only this account and root can enter.
    pub(crate) fn make_folder(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).at("create", folder)?;
        self.give(folder, 0o700)
    }

    /// Makes the account the owner of a file or folder.
    pub(crate) fn give(&self, path: &Path, mode: u32) -> Result<()> {
        if let Some((uid, gid)) = self.switch_to {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).at("give away", path)?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).at("set the mode of", path)
    }
}

fn number(flag: &str, name: &str) -> Option<u32> {
    id(&[flag, name])?.parse().ok()
}

fn id(arguments: &[&str]) -> Option<String> {
    let output = Command::new("id").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
