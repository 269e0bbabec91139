//! The reaper: a process of its own that ends our servers when we are gone, in whatever way we went.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::identity::Identity;
use crate::Error;
use crate::error::Doing;

/// Run by a shell in a session of its own; its standard input is the pipe.
const SCRIPT: &str = include_str!("reaper.sh");

/// The reaper of this process. Its pipe is closed by the system when the process ends, never earlier.
static REAPER: Mutex<Option<Child>> = Mutex::new(None);

/// How the reaper ends a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndWith {
    /// At once: the process holds nothing outside its folder.
    Kill,
    /// By the signal that makes Postgres end without a checkpoint and give its shared memory back, then by force, its
    /// children too.
    Quit,
    /// By the polite signal, then by force.
    Terminate,
}

/// Tells the reaper to end this process after us.
pub(crate) fn register_process(process: Identity, end_with: EndWith) -> Result<(), Error> {
    let signal = match end_with {
        EndWith::Kill => "KILL",
        EndWith::Quit => "QUIT",
        EndWith::Terminate => "TERM",
    };
    tell(format!("process {} {} {signal}\n", process.pid, process.started).as_bytes())
}

/// Tells the reaper to remove this folder after us.
pub(crate) fn register_folder(path: &Path) -> Result<(), Error> {
    let mut line = b"folder ".to_vec();
    line.extend_from_slice(path.as_os_str().as_bytes());
    line.push(b'\n');
    tell(&line)
}

/// Sends one line, starting the reaper if there is none. The lock keeps lines whole and the reaper single.
fn tell(line: &[u8]) -> Result<(), Error> {
    // A thread that panicked in here left at most an unfinished line; there is no state to distrust.
    let mut reaper = REAPER.lock().unwrap_or_else(PoisonError::into_inner);
    if reaper.is_none() {
        *reaper = Some(spawn().doing("start", Path::new("setsid"))?);
    }
    match reaper.as_mut().and_then(|child| child.stdin.as_mut()) {
        Some(pipe) => pipe.write_all(line).doing("register with", Path::new("the reaper")),
        // The pipe was asked for at the start and is never taken.
        None => Err(Error::NotRunning { server: "the reaper" }),
    }
}

fn spawn() -> std::io::Result<Child> {
    Command::new("setsid")
        .args(["/bin/sh", "-c", SCRIPT, "levada-reaper"])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Child, Command};

    use super::{Identity, spawn};

    /// Lets a reaper see these lines and the end of its test process; returns when it has done its work.
    fn reap(lines: &str) {
        let mut reaper = spawn().unwrap();
        let mut pipe = reaper.stdin.take().unwrap();
        pipe.write_all(lines.as_bytes()).unwrap();
        drop(pipe);
        reaper.wait().unwrap();
    }

    fn sleeper() -> (Child, Identity) {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let identity = Identity::of(child.id().cast_signed()).unwrap();
        (child, identity)
    }

    /// [TST-05] The number of a process that ended long ago may be somebody else's by now.
    #[test]
    fn a_reused_process_number_is_spared() {
        let (mut stranger, identity) = sleeper();
        let (mut ours, ours_identity) = sleeper();
        reap(&format!(
            "process {} {} KILL\nprocess {} {} KILL\n",
            identity.pid,
            identity.started - 1,
            ours_identity.pid,
            ours_identity.started
        ));
        assert!(identity.is_alive());
        assert!(!ours_identity.is_alive());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        ours.wait().unwrap();
    }

    /// [TST-05]
    #[test]
    fn only_folders_with_our_name_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let (ours, theirs) = (root.path().join("levada-a b'c"), root.path().join("theirs"));
        std::fs::create_dir_all(ours.join("data/deep")).unwrap();
        std::fs::create_dir(&theirs).unwrap();
        reap(&format!("folder {}\nfolder {}\nfolder \n", ours.display(), theirs.display()));
        assert!(!ours.exists());
        assert!(theirs.exists());
    }
}
