//! The programs of this machine that we use: where they are, and how to get them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::Error;
use crate::error::Doing;
use crate::logs::last_lines;
use crate::process::mark;

/// Where Debian's packages put the programs of each major version.
const DEBIAN_POSTGRES: &str = "/usr/lib/postgresql";

/// Finds Java: `$JAVA_HOME/bin/java`, else `java` in the path.
pub(crate) fn java() -> Result<PathBuf, Error> {
    let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    home.filter(|java| java.is_file())
        .or_else(|| in_path("java"))
        .ok_or_else(|| missing("Java", "apt-get install --yes default-jre-headless"))
}

/// Finds Maven, needed only until Kafka's jars are in the cache.
pub(crate) fn maven() -> Result<PathBuf, Error> {
    in_path("mvn").ok_or_else(|| missing("Maven", "apt-get install --yes maven"))
}

/// Makes sure that the client of the container engine is there: the reaper is a shell script and has no other.
#[cfg(feature = "docker")]
pub(crate) fn docker() -> Result<(), Error> {
    in_path("docker").map(|_| ()).ok_or_else(|| missing("docker", "apt-get install --yes docker.io"))
}

/// Finds the folder with `initdb`, `postgres` and `psql`: the path, else what `pg_config` says, else the newest version
/// where Debian puts them.
pub(crate) fn postgres_folder() -> Result<PathBuf, Error> {
    find_postgres(std::env::var_os("PATH"), Path::new(DEBIAN_POSTGRES))
}

/// Finds the same of one major version, where Debian puts it.
pub(crate) fn postgres_folder_of(version: &str) -> Result<PathBuf, Error> {
    let folder = Path::new(DEBIAN_POSTGRES).join(version).join("bin");
    if folder.join("postgres").is_file() {
        return Ok(folder);
    }
    Err(Error::Missing {
        program: format!("PostgreSQL {version}").into(),
        install: format!("apt-get install --yes postgresql-{version}").into(),
    })
}

fn find_postgres(path: Option<OsString>, debian: &Path) -> Result<PathBuf, Error> {
    let has_server = |folder: &PathBuf| folder.join("postgres").is_file() && folder.join("initdb").is_file();
    let folders = path.iter().flat_map(std::env::split_paths).collect::<Vec<_>>();
    let pg_config = folders.iter().map(|folder| folder.join("pg_config")).find(|file| file.is_file());
    folders
        .into_iter()
        .find(has_server)
        .or_else(|| asked_pg_config(&pg_config?).filter(has_server))
        .or_else(|| newest_on_debian(debian).filter(has_server))
        .ok_or_else(|| missing("PostgreSQL", "apt-get install --yes postgresql"))
}

/// Finds `psql`.
pub(crate) fn psql() -> Result<PathBuf, Error> {
    postgres_client("psql").ok_or_else(|| missing("psql", "apt-get install --yes postgresql-client"))
}

/// Finds `pg_basebackup`, which copies a running server.
pub(crate) fn pg_basebackup() -> Result<PathBuf, Error> {
    postgres_client("pg_basebackup")
        .ok_or_else(|| missing("pg_basebackup", "apt-get install --yes postgresql-client"))
}

/// Finds a client program beside the server, else where a link to the server leads, else in the path.
fn postgres_client(name: &str) -> Option<PathBuf> {
    let server = postgres_folder().ok().map(|folder| folder.join("postgres"));
    let linked = server.as_ref().and_then(|server| server.canonicalize().ok());
    let beside = |server: &PathBuf| Some(server.with_file_name(name)).filter(|client| client.is_file());
    server.as_ref().and_then(beside).or_else(|| linked.as_ref().and_then(beside)).or_else(|| in_path(name))
}

/// Finds PgBouncer: in the path, else where Debian puts programs for root, which is in nobody else's path.
pub(crate) fn pgbouncer() -> Result<PathBuf, Error> {
    find_pgbouncer(std::env::var_os("PATH"), Path::new("/usr/sbin"))
}

fn find_pgbouncer(path: Option<OsString>, debian: &Path) -> Result<PathBuf, Error> {
    let folders = path.iter().flat_map(std::env::split_paths).chain([debian.to_path_buf()]);
    folders
        .map(|folder| folder.join("pgbouncer"))
        .find(|file| file.is_file())
        .ok_or_else(|| missing("PgBouncer", "apt-get install --yes pgbouncer"))
}

/// Runs a command and returns what it printed; a failure carries the end of its output. It ends with this process.
pub(crate) fn run_to_end(name: &str, command: &mut Command) -> Result<Output, Error> {
    mark(command)?;
    let output = command.stdin(Stdio::null()).output().doing("run", Path::new(command.get_program()))?;
    if output.status.success() {
        return Ok(output);
    }
    let printed = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let printed = last_lines(&String::from_utf8_lossy(&printed), 20);
    Err(Error::Failed { command: name.to_owned(), status: output.status, output: printed })
}

fn missing(program: &'static str, install: &'static str) -> Error {
    Error::Missing { program: program.into(), install: install.into() }
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn asked_pg_config(pg_config: &Path) -> Option<PathBuf> {
    let output = Command::new(pg_config).arg("--bindir").output().ok()?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}

/// Returns `bin` of the highest version number; `9` is lower than `15`, so they are compared as numbers.
fn newest_on_debian(versions: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(versions).ok()?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    numbers.max().map(|newest| versions.join(newest.to_string()).join("bin"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{find_pgbouncer, find_postgres};

    /// [TST-03]
    #[test]
    fn a_missing_postgres_is_named_with_the_command_that_installs_it() {
        let nothing = tempfile::tempdir().unwrap();
        let error = find_postgres(Some(nothing.path().into()), nothing.path()).unwrap_err();
        assert!(error.is_missing_program());
        assert_eq!(
            error.to_string(),
            "PostgreSQL is missing; install it with: apt-get install --yes postgresql"
        );
    }

    /// [TST-03]
    #[test]
    fn a_missing_pgbouncer_is_named_with_the_command_that_installs_it() {
        let (nothing, debian) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let error = find_pgbouncer(Some(nothing.path().into()), nothing.path()).unwrap_err();
        assert!(error.is_missing_program());
        assert_eq!(
            error.to_string(),
            "PgBouncer is missing; install it with: apt-get install --yes pgbouncer"
        );
        let program = debian.path().join("pgbouncer");
        fs::write(&program, "").unwrap();
        assert_eq!(find_pgbouncer(Some(nothing.path().into()), debian.path()).unwrap(), program);
    }

    #[test]
    fn the_highest_version_is_taken_and_half_an_installation_is_not() {
        let debian = tempfile::tempdir().unwrap();
        for version in ["9", "15"] {
            let bin = debian.path().join(version).join("bin");
            fs::create_dir_all(&bin).unwrap();
            fs::write(bin.join("postgres"), "").unwrap();
        }
        find_postgres(None, debian.path()).unwrap_err();
        let newest = debian.path().join("15/bin");
        fs::write(newest.join("initdb"), "").unwrap();
        assert_eq!(find_postgres(None, debian.path()).unwrap(), newest);
    }
}
