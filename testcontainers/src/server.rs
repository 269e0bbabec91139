//! A server that can be ended and started again on the same data and address, whichever provider runs it.

use std::fmt::Debug;
#[cfg(feature = "docker")]
use std::process::Output;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::Error;

/// What a provider must be able to do with a server. The handles are built on this, so they are the same for all providers.
///
/// Each operation takes effect as a whole: one that comes while another runs waits for its end.
pub(crate) trait Server: Debug + Send + Sync {
    /// Starts the server and returns when it serves clients; does nothing when it runs.
    fn start(&self) -> Result<(), Error>;

    /// Kills the server with all its processes (SIGKILL) and returns when they are gone.
    ///
    /// # Panics
    ///
    /// Panics if a container engine does not do it.
    fn kill(&self);

    /// Asks the server to end and returns when it has; kills it when it has not done so in time. A paused one goes on first.
    fn stop(&self, request: Signal, patience: Duration) -> Result<(), Error>;

    /// Stops all processes of the server where they stand (SIGSTOP).
    fn pause(&self) -> Result<(), Error>;

    /// Lets all processes of the server go on (SIGCONT).
    fn resume(&self) -> Result<(), Error>;

    /// Runs a command where the server runs and it is not this machine: in its container.
    #[cfg(feature = "docker")]
    fn run_inside(&self, _command: &[&str]) -> Result<Output, Error> {
        Err(Error::Refused { what: "the server is not in a container" })
    }

    /// Returns the number of the server's first process on this machine, if it was started and not ended by us.
    fn pid(&self) -> Option<i32>;
}
