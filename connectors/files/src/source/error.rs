//! What can go wrong in a source of lines, and what can be done about it.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use levada_core::{ErrorClass, SourceError, SplitId, StateError};
use thiserror::Error;

/// Everything that ends a source of lines.
#[derive(Debug, Error)]
pub(super) enum ReadError {
    #[error("the source of lines is not open")]
    NotOpen,
    #[error("the folder or file {} does not exist", .0.display())]
    Missing(PathBuf),
    #[error("{} is no regular file", .0.display())]
    NotAFile(PathBuf),
    #[error("{} has a name that is not UTF-8, so no position can be stored for it; rename it", .0.display())]
    Name(PathBuf),
    #[error("file {0} is listed twice")]
    Twice(String),
    #[error("a batch must hold one record and one byte at least")]
    Bounds,
    #[error("split {0} is none of this source's: its file is gone, or it is not in this folder or list")]
    Unknown(SplitId),
    #[error("{doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error(
        "{} shrank: it has {found} bytes, and byte {position} is to be read next. Put the longer file back, or start its \
         split from 0",
        path.display()
    )]
    Shrank { path: PathBuf, position: u64, found: u64 },
    #[error(
        "{} was replaced: the bytes before position {position} have the fingerprint {found}, and had {stored} when \
         the position was stored. Put the first file back, or start its split from 0",
        path.display()
    )]
    Replaced { path: PathBuf, position: u64, stored: String, found: String },
    #[error(
        "{} has grown behind a last line without a newline: what stands from byte {position} on is the rest of a \
         line whose beginning was read as a record",
        path.display()
    )]
    InsideLine { path: PathBuf, position: u64 },
    #[error("position {position} of {} cannot be understood", path.display())]
    Detail {
        path: PathBuf,
        position: u64,
        #[source]
        cause: StateError,
    },
    #[error("{place} at byte {offset} is longer than the limit of {limit} bytes", place = line_of(path, *line))]
    TooLong { path: PathBuf, line: Option<u64>, offset: u64, limit: usize },
}

/// Counts lines from 1, as editors do.
fn line_of(path: &std::path::Path, line: Option<u64>) -> String {
    match line {
        Some(line) => format!("line {} of {}", line + 1, path.display()),
        None => format!("a line of {}", path.display()),
    }
}

impl ReadError {
    pub(super) fn io(doing: &'static str, path: impl Into<PathBuf>, cause: io::Error) -> Self {
        let path = path.into();
        match cause.kind() {
            ErrorKind::NotFound => ReadError::Missing(path),
            _ => ReadError::Io { doing, path, cause },
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            ReadError::Io { cause, .. } => match cause.kind() {
                ErrorKind::TimedOut | ErrorKind::StaleNetworkFileHandle | ErrorKind::HostUnreachable => {
                    ErrorClass::Reconnect
                }
                _ => ErrorClass::Fatal,
            },
            ReadError::TooLong { .. } => ErrorClass::BadRecord,
            _ => ErrorClass::Fatal,
        }
    }
}

impl From<ReadError> for SourceError {
    fn from(error: ReadError) -> Self {
        let own = SourceError::new(error.class(), error.to_string());
        match error {
            ReadError::Io { cause, .. } => own.caused_by(cause),
            ReadError::Detail { cause, .. } => own.caused_by(cause),
            _ => own,
        }
    }
}
