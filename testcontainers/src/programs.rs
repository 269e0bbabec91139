//! The programs of this machine that we use: where they are, and how to get them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::Error;
use crate::error::Doing;
use crate::logs::last_lines;

/// Finds Java: `$JAVA_HOME/bin/java`, else `java` in the path.
pub(crate) fn java() -> Result<PathBuf, Error> {
    let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    home.filter(|java| java.is_file())
        .or_else(|| in_path("java"))
        .ok_or(Error::Missing {
            program: "Java",
            install: "apt-get install --yes default-jre-headless",
        })
}

/// Finds Maven, needed only until Kafka's jars are in the cache.
pub(crate) fn maven() -> Result<PathBuf, Error> {
    in_path("mvn").ok_or(Error::Missing {
        program: "Maven",
        install: "apt-get install --yes maven",
    })
}

/// Finds the folder with `initdb`, `postgres` and `psql`: the path, else what `pg_config` says, else the newest version
/// where Debian puts them.
pub(crate) fn postgres_folder() -> Result<PathBuf, Error> {
    let has_server = |folder: &PathBuf| folder.join("postgres").is_file() && folder.join("initdb").is_file();
    let beside_path = in_path("postgres").and_then(|postgres| Some(postgres.parent()?.to_path_buf()));
    beside_path
        .filter(has_server)
        .or_else(|| asked_pg_config().filter(has_server))
        .or_else(|| newest_on_debian(Path::new("/usr/lib/postgresql")).filter(has_server))
        .ok_or(Error::Missing {
            program: "PostgreSQL",
            install: "apt-get install --yes postgresql",
        })
}

/// Finds `psql` beside the server, else in the path.
pub(crate) fn psql() -> Result<PathBuf, Error> {
    let beside_server = postgres_folder().ok().map(|folder| folder.join("psql"));
    beside_server
        .filter(|psql| psql.is_file())
        .or_else(|| in_path("psql"))
        .ok_or(Error::Missing {
            program: "psql",
            install: "apt-get install --yes postgresql-client",
        })
}

/// Runs a command and returns what it printed; a failure carries the end of its output.
pub(crate) fn run_to_end(name: &str, command: &mut Command) -> Result<Output, Error> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .doing("run", Path::new(command.get_program()))?;
    if output.status.success() {
        return Ok(output);
    }
    let printed = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let printed = last_lines(&String::from_utf8_lossy(&printed), 20);
    Err(Error::Failed {
        command: name.to_owned(),
        status: output.status,
        output: printed,
    })
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

fn asked_pg_config() -> Option<PathBuf> {
    let output = Command::new(in_path("pg_config")?)
        .arg("--bindir")
        .output()
        .ok()?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}

/// Returns `bin` of the highest version number; `9` is lower than `15`, so they are compared as numbers.
fn newest_on_debian(versions: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(versions).ok()?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .max()
        .map(|newest| versions.join(newest.to_string()).join("bin"))
}
