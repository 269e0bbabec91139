//! Starting a server behind the gate.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::reaper::{self, EndWith};
use super::server::ServerProcess;
use crate::Error;
use crate::error::Doing;

/// Waits for one line, then becomes the server; ends at once if the line never comes.
///
/// Files that the test process itself inherited, such as the job server of a build, are closed: a server must not keep
/// somebody's pipe open.
const GATE: &str = "read -r go && exec \"$@\" </dev/null 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-";

/// The user that a server runs as, when it is not ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// How to start a server: the same for every restart.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The name in messages.
    pub(crate) server: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// The working folder: where a crash would leave its dumps.
    pub(crate) folder: PathBuf,
    /// The file that its output is appended to.
    pub(crate) log: PathBuf,
    pub(crate) user: Option<User>,
    pub(crate) end_with: EndWith,
}

impl Launch {
    /// Starts the server in a process group of its own, known to the reaper. It is not ready yet.
    pub(super) fn spawn(&self) -> Result<ServerProcess, Error> {
        let log =
            OpenOptions::new().create(true).append(true).open(&self.log).doing("open the log", &self.log)?;
        let errors = log.try_clone().doing("open the log", &self.log)?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", GATE, "gate"]).arg(&self.program).args(&self.arguments);
        command.current_dir(&self.folder).env("LC_ALL", "C").process_group(0);
        // Files of whoever runs the tests are none of the server's: as another user it could not even read them.
        command.env("HOME", &self.folder);
        reaper::unmark(&mut command);
        command.stdin(Stdio::piped()).stdout(log).stderr(errors);
        if let Some(user) = self.user {
            command.uid(user.uid).gid(user.gid);
        }
        let mut child = command.spawn().map_err(|error| self.not_started(error))?;
        let gate = child.stdin.take();
        let server = ServerProcess::new(self.server, child)?;
        reaper::register_process(server.identity(), self.end_with)?;
        open_gate(gate).doing("start", &self.program)?;
        Ok(server)
    }

    fn not_started(&self, source: io::Error) -> Error {
        let action = match self.user {
            // The folder is that user's own, so it is one above it.
            Some(_) if source.kind() == io::ErrorKind::PermissionDenied => {
                let folder = self.folder.display();
                format!(
                    "enter {folder} as the user that {} runs as; set TMPDIR to a folder of everybody's",
                    self.server
                )
            }
            _ => format!("start {}", self.program.display()),
        };
        Error::Io { action, source }
    }
}

/// Sends the line, once the reaper knows the process. On failure the dropped `ServerProcess` of the caller ends the gate.
fn open_gate(gate: Option<impl Write>) -> io::Result<()> {
    match gate {
        Some(mut line) => line.write_all(b"go\n"),
        // The command above asks for a pipe, so there is one.
        None => Err(io::Error::other("the gate has no pipe")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::{EndWith, Launch, User};

    /// [TST-01] Root's own folder for temporary files, as `mktemp --directory` makes it, is closed to the server's user.
    #[test]
    fn a_folder_that_the_server_s_user_may_not_enter_is_named() {
        let closed = tempfile::tempdir().unwrap();
        fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let folder = closed.path().join("open");
        fs::create_dir(&folder).unwrap();
        let launch = Launch {
            server: "Postgres",
            program: "/bin/true".into(),
            arguments: Vec::new(),
            log: folder.join("server.log"),
            folder: folder.clone(),
            user: Some(User { uid: 65534, gid: 65534 }),
            end_with: EndWith::Kill,
        };
        let error = launch.spawn().unwrap_err().to_string();
        assert!(error.contains(folder.to_str().unwrap()) && error.contains("TMPDIR"), "{error}");
    }
}
