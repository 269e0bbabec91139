//! How to start a container: the same for every restart.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Image;
use crate::logs::Log;

/// What a container is started from. It uses the machine's network: its ports are the machine's, on 127.0.0.1 if it
/// listens there.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// The name in messages.
    pub(crate) server: &'static str,
    pub(crate) image: Image,
    /// What the container's name begins with: letters, digits and dashes.
    pub(crate) prefix: &'static str,
    pub(crate) env: Vec<(String, String)>,
    /// What the image's entry point gets; empty for the image's own.
    pub(crate) command: Vec<String>,
    pub(crate) files: Vec<File>,
    /// Folders in memory. They do not outlive the container's process: nothing that a restart needs belongs there.
    pub(crate) tmpfs: Vec<String>,
    /// The file that its output is appended to.
    pub(crate) log: PathBuf,
    pub(crate) ready: Ready,
    /// How long a start may take until it is ready.
    pub(crate) patience: Duration,
}

/// A file that is put into the container before it starts. It belongs to root there.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) contents: Vec<u8>,
    pub(crate) mode: u32,
}

/// How a server shows that it serves clients.
#[derive(Clone)]
pub(crate) enum Ready {
    /// By logging this, since the present start.
    Logs(&'static str),
    /// By answering a question. Postgres must be asked over TCP: the stock image runs another server, on a local socket
    /// only, before the real one, and both log the same.
    Answers(Arc<dyn Fn() -> bool + Send + Sync>),
}

impl Ready {
    pub(super) fn holds(&self, log: &Log) -> bool {
        match self {
            Ready::Logs(message) => log.read().contains(message),
            Ready::Answers(ask) => ask(),
        }
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ready::Logs(message) => formatter.debug_tuple("Logs").field(message).finish(),
            Ready::Answers(_) => formatter.write_str("Answers"),
        }
    }
}
