//! What can go wrong, each with what was being done and, where there is one, the command that mends it.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// A cause of somebody else's making: a caller's complaint, or the words of a library whose own types stay inside.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A failure to prepare, start, stop or ask a server, or of a crash loop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program that the servers need is not on this machine.
    #[error("{program} is missing; install it with: {install}")]
    Missing {
        /// The program looked for.
        program: Cow<'static, str>,
        /// The command that installs it.
        install: Cow<'static, str>,
    },
    /// A file, folder or process operation failed.
    #[error("cannot {action}")]
    Io {
        /// What was being done, as a verb and its object.
        action: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("{command} failed with {status}: {output}")]
    Failed {
        /// The program and what it was asked to do.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it printed.
        output: String,
    },
    /// A server ended before it was ready.
    #[error("{server} ended with {status} before it was ready; the end of its log:\n{log}")]
    EndedEarly {
        /// Which server.
        server: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// Somebody else listens on the port of a server that was to start.
    #[error("{server} could not listen on its port: somebody else does")]
    PortTaken {
        /// Which server.
        server: &'static str,
    },
    /// A server did not become ready in time.
    #[error("{server} was not ready after {after:?}; the end of its log:\n{log}")]
    NotReady {
        /// Which server.
        server: &'static str,
        /// How long it was given.
        after: Duration,
        /// The end of its log.
        log: String,
    },
    /// An operation needs a running server, and this one was stopped or killed.
    #[error("{server} is not running: it was stopped, was killed or ended by itself")]
    NotRunning {
        /// Which server.
        server: &'static str,
    },
    /// A condition did not become true in time.
    #[error("waited {after:?} in vain for {what}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
    },
    /// No folder is known in which downloads can be kept.
    #[error("no cache folder: set LEVADA_CACHE, XDG_CACHE_HOME or HOME")]
    NoCacheFolder,
    /// No port was free.
    #[error("no free port between {from} and {to} on 127.0.0.1")]
    NoFreePort {
        /// The first port tried.
        from: u16,
        /// The port after the last one tried.
        to: u16,
    },
    /// Postgres refuses to run as root, and no other user was found to run it as.
    #[error("postgres refuses to run as root, and neither the user postgres nor nobody exists")]
    NoUnprivilegedUser,
    /// A certificate could not be made.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// Only root may do it.
    #[error("only root may {action}")]
    NeedsRoot {
        /// What.
        action: &'static str,
    },
    /// It cannot be had in this way.
    #[error("refused: {what}")]
    Refused {
        /// What, and how it can be had.
        what: &'static str,
    },
    /// The server that all tests of this process share could not be started; every caller gets the same cause.
    #[error("the shared {server} could not be started")]
    Shared {
        /// Which server.
        server: &'static str,
        /// Why the first start failed.
        source: &'static Error,
    },
    /// No container engine answers.
    #[error("no container engine answers at {address}; start one, or name the socket of one in DOCKER_HOST")]
    Engine {
        /// Where it was expected.
        address: String,
        /// The client's words.
        source: Cause,
    },
    /// The container engine may be on another machine.
    #[error(
        "the container engine at {address:?} may be on another machine, where 127.0.0.1 is another one; \
         name the socket (unix://) of one on this machine in DOCKER_HOST"
    )]
    RemoteEngine {
        /// Its address.
        address: String,
    },
    /// An image is not on this machine and cannot be pulled.
    #[error("the image {image} is not on this machine and cannot be pulled; name another in {variable}")]
    Image {
        /// Its name and tag.
        image: String,
        /// The environment variable that names another.
        variable: &'static str,
        /// The engine's words.
        source: Cause,
    },
    /// The container engine refused a request.
    #[error("cannot {action} the container of {server}")]
    Container {
        /// Which server.
        server: &'static str,
        /// What was being done, as a verb.
        action: &'static str,
        /// The engine's words.
        source: Cause,
    },
    /// An address in the environment is not usable.
    #[error("the address in {variable} is not usable: {reason}")]
    Address {
        /// The environment variable.
        variable: &'static str,
        /// What is wrong with it, without the address: it may hold a password.
        reason: &'static str,
    },
    /// A variable in the environment, other than an address, is not usable.
    #[error("{variable} is not usable: {reason}")]
    Variable {
        /// The environment variable.
        variable: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A child of a crash loop ended, and nobody had killed it.
    #[error("{life} ended by itself with {status}; the end of its log:\n{log}")]
    EndedByItself {
        /// Which life: number, loop, plan and seed.
        life: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// The oracle of a crash loop found something wrong, or an action of its caller failed.
    #[error("{who} complains of {life}")]
    Complaint {
        /// Who complains.
        who: &'static str,
        /// Which life: number, loop, plan and seed.
        life: String,
        /// The complaint.
        source: Cause,
    },
    /// A crash loop is over, and at some fail points nobody was killed.
    #[error("crash loop {crash_loop}, LEVADA_SEED={seed}: nobody was killed at {}", points.join(", "))]
    NotCovered {
        /// The loop's name.
        crash_loop: String,
        /// The fail points.
        points: Vec<String>,
        /// The seed that replays it.
        seed: u64,
    },
}

impl Error {
    /// Tells whether a program that this machine lacks is the cause.
    #[must_use]
    pub fn is_missing_program(&self) -> bool {
        match self {
            Error::Missing { .. } => true,
            Error::Shared { source, .. } => source.is_missing_program(),
            _ => false,
        }
    }

    /// Returns the message with those of its causes, outermost first.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(inner) = cause {
            text.push_str(": ");
            text.push_str(&inner.to_string());
            cause = inner.source();
        }
        text
    }
}

/// Adds to an I/O error what was being done.
pub(crate) trait Doing<T> {
    fn doing(self, verb: &str, object: &Path) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, verb: &str, object: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::Io { action: format!("{verb} {}", object.display()), source })
    }
}
