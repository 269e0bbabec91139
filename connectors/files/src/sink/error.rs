//! What can go wrong in a file sink, and what can be done about it.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use levada_core::{ErrorClass, SinkError};
use thiserror::Error;

use super::handle::FileHandle;

/// Everything that fails a call to the sink.
#[derive(Debug, Error)]
pub(super) enum FileError {
    #[error("the sink is not open")]
    NotOpen,
    #[error("the {what} of a file sink must not be empty")]
    Empty { what: &'static str },
    #[error("the suffix {suffix:?} has a slash or a zero byte; it is the end of a file's name")]
    Suffix { suffix: String },
    #[error(
        "names of files would have {length} bytes, file systems take {limit}: give job or sink a shorter name"
    )]
    NameTooLong { length: usize, limit: usize },
    #[error("folder {} does not exist; make it, or mount its disk", .0.display())]
    NoFolder(PathBuf),
    #[error("{} is not a folder", .0.display())]
    NotAFolder(PathBuf),
    #[error(
        "{} is on another file system than its folder, so files cannot be moved between them; remove the link or mount",
        .0.display()
    )]
    OtherFileSystem(PathBuf),
    #[error("no permission to make and remove files in {}; grant it to this user", .0.display())]
    Permission(PathBuf),
    #[error("{doing} {}{}", path.display(), advice(cause))]
    Io {
        doing: &'static str,
        path: PathBuf,
        /// What the caller can do; derived from the cause unless the verb knows better.
        class: ErrorClass,
        #[source]
        cause: io::Error,
    },
    #[error("{} exists already: another process writes as the same job, sink and attempt", .0.display())]
    NameTaken(PathBuf),
    #[error("transaction {0} is not open in this sink")]
    NotBegun(FileHandle),
    #[error("transaction {0}: an earlier call was given up before it ended; what it wrote is unknown")]
    GivenUp(FileHandle),
    #[error("transaction {0} was removed by a later attempt, which has taken over")]
    TakenOver(FileHandle),
    #[error("transaction {0} was never pre-committed, and cannot be committed")]
    NotPreCommitted(FileHandle),
    #[error(
        "transaction {0} is lost: neither its file nor what waited for the commit is there. If a reader took the file \
         away: the files of the last checkpoint must stay until the next one is complete"
    )]
    Lost(FileHandle),
    #[error("transaction {handle} is damaged: {} has {found} bytes", path.display())]
    Damaged { handle: FileHandle, path: PathBuf, found: u64 },
    #[error(
        "transaction {0} cannot be published: another file has its name. Its records are safe in {pending}; move the \
         other file away and start again",
        pending = .0.pending().display()
    )]
    Foreign(FileHandle),
}

impl FileError {
    pub(super) fn io(doing: &'static str, path: impl Into<PathBuf>, cause: io::Error) -> Self {
        FileError::Io { doing, path: path.into(), class: class_of(&cause), cause }
    }

    /// Makes it one that is tried again whatever the cause: a transaction that waits in its place is not lost.
    pub(super) fn keeping_the_transaction(mut self) -> Self {
        if let FileError::Io { class, .. } = &mut self
            && *class == ErrorClass::Fatal
        {
            *class = ErrorClass::Retry;
        }
        self
    }

    /// Makes it one that ends the transaction: what a failed sync has left on the disk nobody knows, and a second one may
    /// succeed without having written anything.
    pub(super) fn ending_the_transaction(mut self) -> Self {
        if let FileError::Io { class, .. } = &mut self {
            *class = ErrorClass::Fatal;
        }
        self
    }

    fn class(&self) -> ErrorClass {
        match self {
            FileError::Io { class, .. } => *class,
            FileError::TakenOver(_) => ErrorClass::Fenced,
            _ => ErrorClass::Fatal,
        }
    }
}

impl From<FileError> for SinkError {
    fn from(error: FileError) -> Self {
        let own = SinkError::new(error.class(), error.to_string());
        match error {
            FileError::Io { cause, .. } => own.caused_by(cause),
            _ => own,
        }
    }
}

/// Adds to an I/O error what was done, and on what.
pub(super) trait Doing<V> {
    fn doing(self, doing: &'static str, path: impl Into<PathBuf>) -> Result<V, FileError>;
}

impl<V> Doing<V> for io::Result<V> {
    fn doing(self, doing: &'static str, path: impl Into<PathBuf>) -> Result<V, FileError> {
        self.map_err(|cause| FileError::io(doing, path, cause))
    }
}

fn class_of(cause: &io::Error) -> ErrorClass {
    match cause.kind() {
        ErrorKind::StorageFull
        | ErrorKind::QuotaExceeded
        | ErrorKind::Interrupted
        | ErrorKind::WouldBlock
        | ErrorKind::ResourceBusy
        | ErrorKind::OutOfMemory => ErrorClass::Retry,
        // A file system of the network.
        ErrorKind::TimedOut
        | ErrorKind::StaleNetworkFileHandle
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown => ErrorClass::Reconnect,
        _ => match cause.raw_os_error() {
            Some(EMFILE | ENFILE) => ErrorClass::Retry,
            _ => ErrorClass::Fatal,
        },
    }
}

/// Too many open files, of the process and of the system.
const EMFILE: i32 = nix::errno::Errno::EMFILE as i32;
const ENFILE: i32 = nix::errno::Errno::ENFILE as i32;

fn advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        ErrorKind::StorageFull => "; make room on its disk",
        ErrorKind::QuotaExceeded => "; raise the quota or make room",
        ErrorKind::PermissionDenied => "; give this user the permission to write in the folder",
        ErrorKind::ReadOnlyFilesystem => "; mount the disk for writing",
        ErrorKind::NotFound => "; something on the path is missing: is its disk mounted?",
        ErrorKind::CrossesDevices => "; it is on another file system than its folder",
        _ => match cause.raw_os_error() {
            Some(EMFILE | ENFILE) => "; raise the limit of open files",
            _ => "",
        },
    }
}
