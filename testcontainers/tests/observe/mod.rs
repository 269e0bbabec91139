//! Looking at processes, ports and folders from outside, without the crate's own eyes.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

/// The fields of `/proc/PID/stat` after the command: state first, parent second.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = text.rsplit_once(") ")?;
    Some(after.split_whitespace().map(str::to_owned).collect())
}

/// Whether a process runs; one that ended and was not waited for does not.
pub fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] != "Z" && fields[0] != "X")
}

pub fn children_of(parent: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|fields| fields[1] == parent.to_string())).collect()
}

/// The children of a process, and theirs.
pub fn descendants_of(pid: i32) -> Vec<i32> {
    let mut found = children_of(pid);
    let mut next = 0;
    while next < found.len() {
        found.extend(children_of(found[next]));
        next += 1;
    }
    found
}

pub fn listens(address: &str) -> bool {
    TcpStream::connect(address).is_ok()
}

/// Whether a process may do what only root may: any of its user ids is root's.
pub fn is_root(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    users.split_whitespace().any(|user| user == "0")
}

/// Whether the segment of System V shared memory with this id exists.
pub fn segment_exists(id: &str) -> bool {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    table.lines().skip(1).any(|line| line.split_whitespace().nth(1) == Some(id))
}

/// The segment that the lock file in a Postgres folder names.
pub fn segment_of(folder: &Path) -> String {
    let lock = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
    lock.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned()
}

/// A command that runs one ignored test of the calling test binary in a process of its own.
pub fn child_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--test-threads=1"]);
    command
}

/// Both outputs as one text.
pub fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
