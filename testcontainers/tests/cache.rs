//! The cache folder: filled once, by one at a time, and never used half full. Each test has an empty one of its own.

mod observe;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use levada_testcontainers::wait_until;
use observe::printed;

const FETCHING: &str = "fetching Apache Kafka";

fn tool(cache: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada-testcontainers"));
    command.args(arguments).env("LEVADA_CACHE", cache).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The folders in the cache whose names start so.
fn folders(cache: &Path, start: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(cache) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    paths.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(start)).collect()
}

/// The sealed entry of a server: neither a partial one nor the class archives.
fn entry(cache: &Path, start: &str) -> PathBuf {
    let mut found = folders(cache, start);
    found.retain(|path| path.join("MANIFEST").is_file());
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// [TST-03] Also: a download that was killed half-way is neither used nor left.
#[test]
fn downloads_at_the_same_time_are_one_download() {
    let cache = tempfile::tempdir().unwrap();
    let mut killed = tool(cache.path(), &["prepare", "--kafka"]).spawn().unwrap();
    let partial =
        || folders(cache.path(), "kafka-").iter().any(|path| path.display().to_string().contains("partial"));
    wait_until(Duration::from_secs(30), "the beginning of a download", partial).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(partial(), "the kill came too late to test anything");

    let prepare = || tool(cache.path(), &["prepare", "--kafka"]).spawn().unwrap();
    let (first, second) = (prepare(), prepare());
    let outputs = [first.wait_with_output().unwrap(), second.wait_with_output().unwrap()];
    for output in &outputs {
        assert!(output.status.success(), "{}", printed(output));
    }
    assert_eq!(outputs.iter().filter(|output| printed(output).contains(FETCHING)).count(), 1);
    assert!(!partial());
    let jars = fs::read_dir(entry(cache.path(), "kafka-").join("lib")).unwrap().count();
    assert!(jars > 30, "{jars}");
    let used = tool(cache.path(), &["run", "--kafka", "--", "true"]).output().unwrap();
    assert!(used.status.success() && !printed(&used).contains(FETCHING), "{}", printed(&used));
}

/// [TST-03]
#[test]
fn a_damaged_entry_is_made_anew() {
    let cache = tempfile::tempdir().unwrap();
    let prepare = || {
        let output = tool(cache.path(), &["prepare", "--postgres"]).output().unwrap();
        assert!(output.status.success(), "{}", printed(&output));
        entry(cache.path(), "postgres-")
    };
    let made = prepare();
    let control = made.join("data/global/pg_control");
    let whole = fs::metadata(&control).unwrap().len();

    // Cut off, as after a full disk.
    fs::OpenOptions::new().write(true).open(&control).unwrap().set_len(whole / 2).unwrap();
    prepare();
    assert_eq!(fs::metadata(&control).unwrap().len(), whole);

    // Not sealed, as after a death between the last file and the seal.
    fs::remove_file(made.join("MANIFEST")).unwrap();
    fs::remove_file(&control).unwrap();
    prepare();
    assert_eq!(fs::metadata(&control).unwrap().len(), whole);

    // Whole: used as it is.
    let before = fs::metadata(&control).unwrap().modified().unwrap();
    prepare();
    assert_eq!(fs::metadata(&control).unwrap().modified().unwrap(), before);
}

/// What the tool says when only these programs of the machine can be found.
fn complaint_with(programs: &[&str]) -> String {
    let (cache, path) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for program in programs {
        let found = Command::new("/bin/sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        std::os::unix::fs::symlink(found.trim(), path.path().join(program)).unwrap();
    }
    let mut prepare = tool(cache.path(), &["prepare", "--kafka"]);
    let output = prepare.env("PATH", path.path()).env_remove("JAVA_HOME").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(folders(cache.path(), "kafka-").iter().all(|folder| !folder.join("MANIFEST").exists()));
    String::from_utf8(output.stderr).unwrap()
}

/// [TST-03]
#[test]
fn a_missing_program_is_one_clear_message() {
    assert_eq!(
        complaint_with(&[]),
        "levada-testcontainers: Java is missing; install it with: apt-get install --yes default-jre-headless\n"
    );
    assert_eq!(
        complaint_with(&["java"]),
        "levada-testcontainers: Maven is missing; install it with: apt-get install --yes maven\n"
    );
}
