//! What a test may do to its own container.

use std::time::Duration;

use nix::sys::signal::Signal;
use testcontainers::bollard::errors::Error as Refusal;
use testcontainers::bollard::query_parameters::{KillContainerOptionsBuilder, StartContainerOptions};

use super::Container;
use crate::Error;

/// How long the engine may take to end a container by force. It is a matter of milliseconds on an idle machine.
const FORCE: Duration = Duration::from_secs(30);

impl Container {
    /// Kills every process of the container as `kill -9` does and returns when they are gone; does nothing when it is not
    /// running.
    pub(super) fn kill(&self) -> Result<(), Error> {
        let mut life = self.life();
        self.end_by_force()?;
        Container::settle(&mut life)
    }

    /// Sends a signal to the container's main process and returns when the container has ended; does nothing when it is
    /// not running.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] when it has not ended within `patience`; it is killed then.
    pub(super) fn stop(&self, signal: Signal, patience: Duration) -> Result<(), Error> {
        let mut life = self.life();
        // A paused server could not hear the request.
        self.resume_if_paused()?;
        self.signal(signal)?;
        let ended = self.ended_within(patience)?.is_some();
        if !ended {
            self.end_by_force()?;
        }
        Container::settle(&mut life)?;
        if ended { Ok(()) } else { Err(self.still_runs(patience)) }
    }

    /// Starts the container again on the same data and ports, and returns when its server is ready.
    ///
    /// # Errors
    ///
    /// As [`Container::start`].
    pub(super) fn start_again(&self) -> Result<(), Error> {
        let mut life = self.life();
        if self.is_running() {
            return Ok(());
        }
        // One that ended by itself.
        Container::settle(&mut life)?;
        let (client, name) = (self.client.clone(), self.name.clone());
        self.ask("start", async move { client.start_container(&name, None::<StartContainerOptions>).await })?;
        self.become_ready(&mut life)
    }

    /// Pauses every process of the container: its connections stay open and nothing answers.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub(super) fn pause(&self) -> Result<(), Error> {
        let _life = self.life();
        self.must_run()?;
        let (client, name) = (self.client.clone(), self.name.clone());
        self.ask("pause", async move { unless_so_already(client.pause_container(&name).await) })
    }

    /// Lets a paused container go on.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub(super) fn unpause(&self) -> Result<(), Error> {
        let _life = self.life();
        self.must_run()?;
        self.resume_if_paused()
    }

    fn end_by_force(&self) -> Result<(), Error> {
        self.signal(Signal::SIGKILL)?;
        match self.ended_within(FORCE)? {
            Some(_) => Ok(()),
            None => Err(self.still_runs(FORCE)),
        }
    }

    fn still_runs(&self, after: Duration) -> Error {
        Error::TimedOut { what: format!("the end of {}", self.spec.server), after }
    }

    fn must_run(&self) -> Result<(), Error> {
        if self.is_running() { Ok(()) } else { Err(Error::NotRunning { server: self.spec.server }) }
    }

    fn resume_if_paused(&self) -> Result<(), Error> {
        if !self.state()?.paused.unwrap_or_default() {
            return Ok(());
        }
        let (client, name) = (self.client.clone(), self.name.clone());
        self.ask("unpause", async move { unless_so_already(client.unpause_container(&name).await) })
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        let (client, name) = (self.client.clone(), self.name.clone());
        let options = KillContainerOptionsBuilder::new().signal(signal.as_str()).build();
        self.ask(
            "signal",
            async move { unless_so_already(client.kill_container(&name, Some(options)).await) },
        )
    }
}

/// The engine calls a conflict what needs no doing: the end of what has ended, the pause of what is paused.
fn unless_so_already(answer: Result<(), Refusal>) -> Result<(), Refusal> {
    match answer {
        Err(Refusal::DockerResponseServerError { status_code: 409, .. }) => Ok(()),
        other => other,
    }
}
