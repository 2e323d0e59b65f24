//! The search for Postgres's programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::account::Account;
use crate::error::NoPostgres;
use crate::{Error, Result};

const MINIMUM: u32 = 14;
const VARIABLE: &str = "PIPELINE_POSTGRES_BIN";

/// A folder with Postgres's programs, which were tried out.
#[derive(Debug, Clone)]
pub struct Programs {
    bin: PathBuf,
    major: u32,
}

impl Programs {
    /// Finds the programs: in the folder that `PIPELINE_POSTGRES_BIN` names, on `PATH`, where `pg_config` says, in the
    /// usual system folders, and among earlier downloads.
    pub fn find() -> Result<Self> {
        let account = Account::current()?;
        let place = crate::place::Place::choose(&account)?;
        Self::find_for(&account, &place.downloads())
    }

    pub(crate) fn find_for(account: &Account, downloads: &Path) -> Result<Self> {
        if let Some(folder) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            let folder = PathBuf::from(folder);
            return Self::try_folder(&folder, account)
                .map_err(|reason| Error::BadVariable { folder, reason });
        }
        let mut looked = Vec::new();
        let sources: [(&str, Vec<PathBuf>); 4] = [
            ("PATH", on_path(std::env::var_os("PATH"))),
            ("pg_config --bindir", from_pg_config()),
            (
                "the usual folders (/usr/lib/postgresql/*/bin and the like)",
                usual_folders(),
            ),
            (
                "what was downloaded before",
                versions_below(downloads, "bin"),
            ),
        ];
        for (name, folders) in sources {
            if folders.is_empty() {
                looked.push(format!("{name}: nothing"));
            }
            for folder in folders {
                match Self::try_folder(&folder, account) {
                    Ok(programs) => return Ok(programs),
                    Err(reason) => looked.push(format!("{name}, {}: {reason}", folder.display())),
                }
            }
        }
        looked.insert(0, format!("{VARIABLE}: not set"));
        Err(Error::NoPostgres(NoPostgres { looked }))
    }

    /// Returns the programs of a folder, or why they cannot be used.
    fn try_folder(folder: &Path, account: &Account) -> Result<Self, String> {
        for program in ["postgres", "initdb", "pg_ctl"] {
            if !folder.join(program).is_file() {
                return Err(format!("it holds no `{program}`"));
            }
        }
        let output = account
            .command(folder.join("postgres"), Path::new("/"))
            .arg("--version")
            .output()
            .map_err(|error| format!("its `postgres` does not run: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let major = major_of(&text).ok_or_else(|| {
            format!(
                "its `postgres --version` gives no version ({}): `{text}`",
                output.status
            )
        })?;
        if major < MINIMUM {
            return Err(format!("{text} is older than {MINIMUM}"));
        }
        Ok(Self {
            bin: folder.to_owned(),
            major,
        })
    }

    /// Returns the folder of the programs.
    pub fn folder(&self) -> &Path {
        &self.bin
    }

    /// Returns the server's major version.
    pub fn major(&self) -> u32 {
        self.major
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// Whether the server can preload this library.
    pub(crate) fn has_library(&self, name: &str) -> bool {
        let told = Command::new(self.program("pg_config"))
            .arg("--pkglibdir")
            .output()
            .ok()
            .filter(|output| output.status.success())
            .map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
        let beside = ["../lib", "../lib/postgresql"].map(|path| self.bin.join(path));
        told.iter().chain(&beside).any(|folder| {
            ["so", "dylib"]
                .iter()
                .any(|ending| folder.join(format!("{name}.{ending}")).is_file())
        })
    }
}

/// Returns the major version in `postgres (PostgreSQL) 15.18 (Debian ..)`, `17beta1` or `18devel`.
fn major_of(text: &str) -> Option<u32> {
    let version = text.split_whitespace().nth(2)?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Returns the folders on `PATH`. Links are followed: often `PATH` has only a link to one of the programs.
fn on_path(path: Option<OsString>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in path.iter().flat_map(std::env::split_paths) {
        for program in ["postgres", "pg_ctl"] {
            if let Ok(real) = folder.join(program).canonicalize()
                && let Some(parent) = real.parent()
                && !found.iter().any(|known| known == parent)
            {
                found.push(parent.to_owned());
            }
        }
    }
    found
}

fn from_pg_config() -> Vec<PathBuf> {
    Command::new("pg_config")
        .arg("--bindir")
        .output()
        .ok()
        .filter(|output| output.status.success())
        .map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
        .filter(|folder| folder.is_dir())
        .into_iter()
        .collect()
}

fn usual_folders() -> Vec<PathBuf> {
    let mut found = versions_below(Path::new("/usr/lib/postgresql"), "bin");
    found.extend(versions_below(
        Path::new("/Applications/Postgres.app/Contents/Versions"),
        "bin",
    ));
    for parent in [
        "/usr",
        "/opt/homebrew/opt",
        "/usr/local/opt",
        "/usr/libexec",
    ] {
        found.extend(
            versions_below(Path::new(parent), "bin")
                .into_iter()
                .filter(|folder| {
                    folder.components().any(|part| {
                        part.as_os_str().to_string_lossy().starts_with("postgresql")
                            || part.as_os_str().to_string_lossy().starts_with("pgsql-")
                    })
                }),
        );
    }
    found.push(PathBuf::from("/usr/local/pgsql/bin"));
    found.retain(|folder| folder.join("postgres").is_file());
    found
}

/// Returns `parent/*/name` for every subfolder with a number in its name, the highest first.
fn versions_below(parent: &Path, name: &str) -> Vec<PathBuf> {
    let mut folders: Vec<(Vec<u32>, PathBuf)> = std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| {
            let numbers = entry
                .file_name()
                .to_string_lossy()
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|part| part.parse().ok())
                .collect();
            (numbers, entry.path().join(name))
        })
        .filter(|(_, folder)| folder.is_dir())
        .collect();
    folders.sort_by(|a, b| b.cmp(a));
    folders.into_iter().map(|(_, folder)| folder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_programs_print_them() {
        assert_eq!(
            major_of("postgres (PostgreSQL) 15.18 (Debian 15.18-0)"),
            Some(15)
        );
        assert_eq!(major_of("postgres (PostgreSQL) 18devel"), Some(18));
        assert_eq!(major_of("postgres (PostgreSQL) 9.6.2"), Some(9));
        assert_eq!(major_of(""), None);
    }

    #[test]
    fn a_link_on_the_path_leads_to_the_folder_it_points_into() -> std::io::Result<()> {
        let root = tempfile::tempdir()?;
        let (real, linked) = (root.path().join("real"), root.path().join("linked"));
        std::fs::create_dir_all(&real)?;
        std::fs::create_dir_all(&linked)?;
        std::fs::write(real.join("postgres"), "")?;
        std::os::unix::fs::symlink(real.join("postgres"), linked.join("postgres"))?;
        assert_eq!(on_path(Some(linked.into())), [real.canonicalize()?]);
        Ok(())
    }

    #[test]
    fn the_highest_version_comes_first() -> std::io::Result<()> {
        let root = tempfile::tempdir()?;
        for version in ["9.6", "15", "14", "16"] {
            std::fs::create_dir_all(root.path().join(version).join("bin"))?;
        }
        let order: Vec<_> = versions_below(root.path(), "bin");
        assert_eq!(
            order,
            ["16", "15", "14", "9.6"].map(|version| root.path().join(version).join("bin"))
        );
        Ok(())
    }
}
