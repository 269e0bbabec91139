//! How the process ends.

use std::process::ExitCode;

/// Exit codes of the commands. Stable: scripts and supervisors may rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The bounded read is complete, or the job stopped when it was told to.
    Done = 0,
    /// The job gave up: the cause is in the last line of the log.
    Failed = 1,
    /// The command line or the pipeline file is wrong; nothing was started.
    Config = 2,
    /// A topic, table, key or privilege is not as the pipeline needs it, or a system refused the credentials: at the
    /// start, or because that has changed since. What is committed is whole.
    Refused = 3,
    /// A record cannot be written; the log names it.
    BadRecord = 4,
    /// Another process has taken the pipeline over; this one must not be restarted beside it.
    Fenced = 5,
    /// The balance does not close: a bug, please report it.
    Unbalanced = 6,
    /// The last commit did not come in time after a stop, or a second signal ended the wait.
    Interrupted = 7,
    /// Something in a checkpoint store is missing or corrupt; the report names it.
    Damaged = 8,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}
