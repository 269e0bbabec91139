//! A server as a local process: the Process provider's side of [`Server`].

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::launch::Launch;
use super::server::{ServerProcess, ended_early};
use crate::Error;
use crate::logs::Log;
use crate::server::Server;
use crate::wait::wait_for;

/// How long a server may take until it serves clients. It takes seconds; this is patience for a busy machine, or for a
/// server with much to recover.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// How it is seen that a server serves clients.
#[derive(Clone, Debug)]
pub(crate) enum Ready {
    /// It logs this.
    Logs(&'static str),
    /// The postmaster's lock file says so.
    Postmaster(PathBuf),
}

/// A server that runs, or ran, as a process of this machine.
#[derive(Debug)]
pub(crate) struct LocalServer {
    launch: Launch,
    ready: Ready,
    /// The running process, if it runs. Held for the whole of an operation: a restart cannot overtake a stop.
    process: Mutex<Option<ServerProcess>>,
}

impl LocalServer {
    /// A server that is not started yet.
    pub(crate) fn new(launch: Launch, ready: Ready) -> LocalServer {
        LocalServer { launch, ready, process: Mutex::new(None) }
    }

    fn process(&self) -> MutexGuard<'_, Option<ServerProcess>> {
        // A thread that panicked while it held the lock left either a process or none: both are states we handle.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spawns the server and waits until it serves clients.
    fn launch_ready(&self) -> Result<ServerProcess, Error> {
        let server = self.launch.server;
        // A restart appends to the log of the start before it.
        let log = Log::from_now(server, self.launch.log.clone());
        let mut process = self.launch.spawn()?;
        let outcome = wait_for(START_PATIENCE, || match process.ended() {
            Some(status) => Some(Err(ended_early(server, status, &log))),
            None => self.is_ready(&process, &log).then_some(Ok(())),
        });
        match outcome {
            Some(result) => result.map(|()| process),
            None => Err(Error::NotReady { server, after: START_PATIENCE, log: log.tail() }),
        }
    }

    fn is_ready(&self, process: &ServerProcess, log: &Log) -> bool {
        match &self.ready {
            Ready::Logs(line) => log.read().contains(line),
            Ready::Postmaster(lock) => {
                // As pg_ctl reads it: line 1 is the process, which may be an earlier one, line 8 the state.
                let text = std::fs::read_to_string(lock).unwrap_or_default();
                let mut lines = text.lines().map(str::trim);
                lines.next() == Some(&process.identity().pid.to_string()) && lines.nth(6) == Some("ready")
            }
        }
    }

    /// Does something to a process that runs.
    fn with_running(&self, act: impl FnOnce(&ServerProcess) -> Result<(), Error>) -> Result<(), Error> {
        match self.process().as_ref().filter(|process| process.identity().is_alive()) {
            Some(process) => act(process),
            None => Err(Error::NotRunning { server: self.launch.server }),
        }
    }
}

impl Server for LocalServer {
    fn start(&self) -> Result<(), Error> {
        let mut process = self.process();
        if process.as_mut().is_some_and(|process| process.ended().is_none()) {
            return Ok(());
        }
        *process = Some(self.launch_ready()?);
        Ok(())
    }

    fn kill(&self) {
        // Dropping the process kills it with its children.
        self.process().take();
    }

    fn stop(&self, request: Signal, patience: Duration) -> Result<(), Error> {
        match self.process().take() {
            Some(mut process) => {
                // The request first: a paused server that goes on hears it at once. Paused children must go on too.
                process.signal(request);
                process.signal_all(Signal::SIGCONT);
                process.wait(patience).map(|_| ())
            }
            None => Ok(()),
        }
    }

    fn pause(&self) -> Result<(), Error> {
        self.with_running(ServerProcess::pause)
    }

    fn resume(&self) -> Result<(), Error> {
        self.with_running(|process| {
            process.signal_all(Signal::SIGCONT);
            Ok(())
        })
    }

    fn pid(&self) -> Option<i32> {
        self.process().as_ref().map(|process| process.identity().pid)
    }
}
