//! The reaper: a process of its own that ends our servers when we are gone, in whatever way we went.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::identity::Identity;
use crate::Error;
use crate::error::Doing;
use crate::names::unique_name;

/// The variable that marks processes which nobody could register before they ran. What they start inherits it.
const MARK: &str = "LEVADA_ENDS_WITH";

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

/// Has the reaper end, after us, the process that this command starts, and what it starts in turn. Unlike a registration it
/// is in force from the first moment on; but a process can get rid of it, with its environment.
pub(crate) fn mark(command: &mut Command) -> Result<(), Error> {
    start_unless_running()?;
    command.env(MARK, our_mark());
    Ok(())
}

/// Takes from this command the mark of another test process, in which this one is a child: its reaper must not end what is
/// this one's to end.
pub(super) fn unmark(command: &mut Command) {
    command.env_remove(MARK);
}

/// Returns the value that no other process uses.
fn our_mark() -> &'static str {
    static OURS: OnceLock<String> = OnceLock::new();
    OURS.get_or_init(|| unique_name("levada"))
}

/// Tells the reaper to remove this folder after us.
pub(super) fn register_folder(path: &Path) -> Result<(), Error> {
    let mut line = b"folder ".to_vec();
    line.extend_from_slice(path.as_os_str().as_bytes());
    line.push(b'\n');
    tell(&line)
}

/// Tells the reaper to remove this container after us, with its volumes. To be called before it is created: the engine may
/// be about to create it when we die.
#[cfg(feature = "docker")]
pub(crate) fn register_container(name: &str, engine: &str) -> Result<(), Error> {
    crate::programs::docker()?;
    tell(format!("container {name} {engine}\n").as_bytes())
}

/// Tells the reaper that this container is gone: it need not look out for one that may still come.
#[cfg(feature = "docker")]
pub(crate) fn forget_container(name: &str) {
    // A reaper that does not hear of it looks in vain for a while.
    tell(format!("removed {name}\n").as_bytes()).ok();
}

fn start_unless_running() -> Result<(), Error> {
    tell(b"")
}

/// Sends one line, starting the reaper if there is none. The lock keeps lines whole and the reaper single.
fn tell(line: &[u8]) -> Result<(), Error> {
    // A thread that panicked in here left at most an unfinished line; there is no state to distrust.
    let mut reaper = REAPER.lock().unwrap_or_else(PoisonError::into_inner);
    if reaper.is_none() {
        *reaper = Some(spawn(our_mark()).doing("start", Path::new("setsid"))?);
    }
    match reaper.as_mut().and_then(|child| child.stdin.as_mut()) {
        Some(pipe) => pipe.write_all(line).doing("register with", Path::new("the reaper")),
        // The pipe was asked for at the start and is never taken.
        None => Err(Error::NotRunning { server: "the reaper" }),
    }
}

fn spawn(mark: &str) -> std::io::Result<Child> {
    let mut reaper = Command::new("setsid");
    unmark(&mut reaper);
    reaper
        .args(["/bin/sh", "-c", SCRIPT, "levada-reaper"])
        .arg(format!("{MARK}={mark}"))
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

    use super::{Identity, MARK, spawn};

    /// Lets a reaper see these lines and the end of its test process; returns when it has done its work.
    fn reap(lines: &str) {
        let mut reaper = spawn("nobody's").unwrap();
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

    /// [TST-05] Nobody may have been in time to register it; and what it started is nobody's child any more.
    #[test]
    fn what_carries_the_mark_is_ended_and_nothing_else() {
        let sleep_with = |mark: &str, script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]).env(MARK, mark).stdout(std::process::Stdio::piped()).spawn().unwrap()
        };
        let mut ours = sleep_with("ours", "(sleep 600 & echo $!) | head -n 1; exec sleep 600");
        let mut theirs = sleep_with("ours-not", "exec sleep 600");
        let mut orphan = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(ours.stdout.take().unwrap()), &mut orphan)
            .unwrap();
        let orphan = Identity::of(orphan.trim().parse().unwrap()).unwrap();
        let mut reaper = spawn("ours").unwrap();
        drop(reaper.stdin.take());
        reaper.wait().unwrap();
        assert!(!ours.wait().unwrap().success());
        assert!(!orphan.is_alive());
        assert!(theirs.try_wait().unwrap().is_none(), "it was ended");
        theirs.kill().unwrap();
        theirs.wait().unwrap();
    }

    /// [TST-05] The engine creates what it was asked for although the test process has gone meanwhile.
    #[cfg(feature = "docker")]
    #[test]
    #[ignore = "needs a container engine; .ci/engine run runs it"]
    fn a_container_that_comes_after_the_end_is_removed() {
        let image = crate::docker::Image::postgres(None).unwrap().reference;
        let engine =
            std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
        let docker = |arguments: &[&str]| {
            let output = Command::new("docker").args(arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let (late, gone) = (crate::unique_name("levada-late"), crate::unique_name("levada-gone"));
        let mut reaper = spawn("nobody's").unwrap();
        let mut pipe = reaper.stdin.take().unwrap();
        writeln!(pipe, "container {late} {engine}\ncontainer {gone} {engine}\nremoved {gone}").unwrap();
        drop(pipe);
        docker(&["create", "--name", &late, &image]);
        let ended = std::time::Instant::now();
        reaper.wait().unwrap();
        assert_eq!(docker(&["ps", "--all", "--quiet", "--filter", &format!("name={late}")]), "");
        assert!(ended.elapsed() < std::time::Duration::from_secs(8), "it looked for what is gone");
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
