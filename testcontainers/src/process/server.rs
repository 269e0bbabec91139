//! One running server process.

use std::process::{Child, ExitStatus};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::children::children_of;
use super::identity::Identity;
use crate::Error;
use crate::logs::Log;
use crate::wait::{wait_for, wait_until};

/// A process that we started and must wait for. Dropping it kills it with its children.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    server: &'static str,
    child: Child,
    identity: Identity,
}

impl ServerProcess {
    pub(crate) fn new(server: &'static str, mut child: Child) -> Result<ServerProcess, Error> {
        // A process number fits: the kernel's type is a positive 32-bit integer.
        match Identity::of(child.id().cast_signed()) {
            Some(identity) => Ok(ServerProcess { server, child, identity }),
            // A child that was not waited for keeps its entry, so this is a system without /proc.
            None => {
                child.kill().ok();
                child.wait().ok();
                Err(Error::Io {
                    action: "read /proc".to_owned(),
                    source: std::io::Error::other("the entry of a child process is missing"),
                })
            }
        }
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns how the process ended, or `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal to the process alone.
    pub(super) fn signal(&self, signal: Signal) {
        self.identity.signal(signal);
    }

    /// Sends a signal to the process, then to its children.
    pub(super) fn signal_all(&self, signal: Signal) {
        self.identity.signal(signal);
        for child in children_of(self.identity) {
            child.signal(signal);
        }
    }

    /// Stops the process and its children where they stand (SIGSTOP), and returns when they do.
    ///
    /// # Errors
    /// They do not, on a machine that is too busy.
    pub(super) fn pause(&self) -> Result<(), Error> {
        self.signal_all(Signal::SIGSTOP);
        let mut all = children_of(self.identity);
        all.push(self.identity);
        let what = format!("the standstill of {}", self.server);
        wait_until(Duration::from_secs(10), &what, || all.iter().all(|one| one.is_stopped()))
    }

    /// Waits until the process has ended by itself or by an earlier signal.
    pub(crate) fn wait(&mut self, patience: Duration) -> Result<ExitStatus, Error> {
        wait_for(patience, || self.ended())
            .ok_or_else(|| Error::TimedOut { what: format!("the end of {}", self.server), after: patience })
    }

    /// Kills the process and its children (SIGKILL) and returns when all of them are gone.
    ///
    /// The process is stopped first, so that it neither notices the death of its children nor starts new ones.
    pub(crate) fn kill(&mut self) {
        self.identity.signal(Signal::SIGSTOP);
        let children = children_of(self.identity);
        self.identity.signal(Signal::SIGKILL);
        for child in &children {
            child.signal(Signal::SIGKILL);
        }
        self.child.wait().ok();
        // A killed process in an uninterruptible call goes when the call returns; nothing is gained by giving up early.
        wait_for(Duration::from_secs(10), || children.iter().all(|child| !child.is_alive()).then_some(()));
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill();
        }
    }
}

/// Returns why a server ended before it was ready, from what it logged since its start. Its last words are about the
/// shutdown, so the whole of it is searched for a port that somebody took.
pub(crate) fn ended_early(server: &'static str, status: ExitStatus, log: &Log) -> Error {
    if log.read().contains("Address already in use") {
        Error::PortTaken { server }
    } else {
        Error::EndedEarly { server, status, log: log.tail() }
    }
}
