//! A server as a container: the Docker provider's side of [`Server`].

use std::process::Output;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::{Container, Spec};
use crate::Error;
use crate::server::Server;

/// A server that runs, or ran, in a container; the container is made at the first start.
#[derive(Debug)]
pub(crate) struct ContainerServer {
    spec: Spec,
    container: OnceLock<Container>,
}

impl ContainerServer {
    /// A server that is not started yet.
    pub(crate) fn new(spec: Spec) -> ContainerServer {
        ContainerServer { spec, container: OnceLock::new() }
    }

    /// Returns the container; an error before the first start.
    fn container(&self) -> Result<&Container, Error> {
        self.container.get().ok_or(Error::NotRunning { server: self.spec.server })
    }
}

impl Server for ContainerServer {
    fn start(&self) -> Result<(), Error> {
        match self.container.get() {
            Some(container) => container.start_again(),
            None => {
                let made = Container::start(self.spec.clone())?;
                // Nobody else has a handle before the first start, so there is none yet.
                self.container.set(made).ok();
                Ok(())
            }
        }
    }

    fn kill(&self) {
        // One that does not run is no error. Where the engine fails, a test must not go on without its fault.
        if let Some(Err(error)) = self.container.get().map(Container::kill) {
            panic!("{} is not killed: {}", self.spec.server, error.chain());
        }
    }

    fn stop(&self, request: Signal, patience: Duration) -> Result<(), Error> {
        match self.container.get() {
            Some(container) if container.is_running() => container.stop(request, patience),
            _ => Ok(()),
        }
    }

    fn pause(&self) -> Result<(), Error> {
        self.container()?.pause()
    }

    fn resume(&self) -> Result<(), Error> {
        self.container()?.unpause()
    }

    fn run_inside(&self, command: &[&str]) -> Result<Output, Error> {
        self.container()?.exec(command)
    }

    fn pid(&self) -> Option<i32> {
        self.container.get().and_then(Container::pid)
    }
}
