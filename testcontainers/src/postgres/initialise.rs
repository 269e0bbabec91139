//! The data folder: initialised once per machine and version, then copied.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::handle::{PASSWORD, USER};
use super::user::server_user;
use crate::Error;
use crate::cache::{copy_folder, entry, give};
use crate::error::Doing;
use crate::process::DataFolder;
use crate::programs::run_to_end;

/// Returns an initialised data folder in the cache; nothing may run in it.
pub(super) fn initialised(programs: &Path) -> Result<PathBuf, Error> {
    let version = run_to_end("postgres --version", Command::new(programs.join("postgres")).arg("--version"))?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let entry = entry(&format!("postgres-{}", as_name(&version)), |unsealed| initialise(programs, unsealed))?;
    Ok(entry.join("data"))
}

/// Runs `initdb` in a folder that the server's user may enter, which the cache need not be, and moves the result there.
fn initialise(programs: &Path, unsealed: &Path) -> Result<(), Error> {
    let user = server_user()?;
    let folder = DataFolder::create("initdb")?;
    let password = folder.path().join("password");
    fs::write(&password, PASSWORD).doing("write", &password)?;
    give(&password, user)?;
    give(folder.path(), user)?;
    let mut initdb = Command::new(programs.join("initdb"));
    initdb.args([
        "--username",
        USER,
        "--auth",
        "scram-sha-256",
        "--encoding",
        "UTF8",
        "--no-locale",
        "--no-sync",
    ]);
    initdb.arg("--pwfile").arg(&password).arg("--pgdata").arg(folder.path().join("data"));
    initdb.current_dir(folder.path());
    if let Some(user) = user {
        initdb.uid(user.uid).gid(user.gid);
    }
    run_to_end("initdb", &mut initdb)?;
    copy_folder(&folder.path().join("data"), &unsealed.join("data"), None)
}

/// Turns `postgres (PostgreSQL) 15.13 (Debian …)` into a file name that still tells versions apart.
fn as_name(version: &str) -> String {
    let words =
        version.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').filter(|word| !word.is_empty());
    words.skip(2).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::as_name;

    #[test]
    fn packages_of_one_version_have_different_names() {
        assert_eq!(
            as_name("postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)\n"),
            "15.13-Debian-15.13-0-deb12u1"
        );
        assert_eq!(as_name("postgres (PostgreSQL) 17.1\n"), "17.1");
    }
}
