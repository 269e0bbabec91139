//! A program under test in a process of its own, to be watched, stopped and killed.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use levada_testcontainers::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// How long anything may take that should take a moment.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A process that was started. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    status: Option<ExitStatus>,
    folder: TempDir,
}

/// How a process ended.
#[derive(Debug)]
pub struct Finished {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error: the log.
    pub log: String,
}

impl Finished {
    /// Returns the process's end, after checking its exit code.
    ///
    /// # Panics
    /// Panics with the log if the code is another.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "the process's log:\n{}", self.log);
        self
    }
}

impl Process {
    /// Starts a command. Both outputs go to files of `folder`, which is removed with the process.
    ///
    /// # Panics
    /// Panics if it cannot be started.
    pub fn start(mut command: Command, folder: TempDir) -> Self {
        let log = File::create(folder.path().join("log")).expect("a log file");
        let out = File::create(folder.path().join("out")).expect("an output file");
        let child = command.stdin(Stdio::null()).stdout(out).stderr(log).spawn().expect("the process starts");
        Self { child, status: None, folder }
    }

    /// Returns what it has logged so far.
    pub fn log(&self) -> String {
        read(&self.folder.path().join("log"))
    }

    /// Returns its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process number"));
        kill(pid, signal).expect("the process is there");
    }

    /// Kills it with -9 and waits for its end.
    pub fn kill(&mut self) {
        // An error means that it has ended by itself.
        self.child.kill().ok();
        self.status = self.child.wait().ok();
    }

    /// Tells whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("the process can be asked");
        }
        self.status.is_some()
    }

    /// Waits up to `patience` for its end and tells whether it came.
    pub fn ends_within(&mut self, patience: Duration) -> bool {
        wait_until(patience, "the end of the process", || self.has_ended()).is_ok()
    }

    /// Waits for a line of the log that holds `text`.
    #[track_caller]
    pub fn wait_for_log(&mut self, text: &str) {
        let found =
            wait_until(PATIENCE, "a line of the log", || self.log().contains(text) || self.has_ended());
        assert!(
            found.is_ok() && self.log().contains(text),
            "no {text:?} in the process's log:\n{}",
            self.log()
        );
    }

    /// Waits until a signal has stopped it.
    #[track_caller]
    pub fn wait_until_stopped(&mut self) {
        let stat = format!("/proc/{}/stat", self.child.id());
        let is_stopped = || {
            let text = fs::read_to_string(&stat).unwrap_or_default();
            text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        let stopped = wait_until(PATIENCE, "the process to be stopped", is_stopped);
        assert!(stopped.is_ok(), "the process was not stopped; its log:\n{}", self.log());
    }

    /// Waits for its end.
    #[track_caller]
    pub fn finish(mut self) -> Finished {
        assert!(self.ends_within(PATIENCE * 3), "the process did not end; its log:\n{}", self.log());
        let code = self.status.and_then(|status| status.code());
        Finished { code, out: read(&self.folder.path().join("out")), log: self.log() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.kill();
        }
    }
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}
