//! Calls that cannot be meant.

use thiserror::Error;

/// A call was refused because of what was called before it, or not. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misuse {
    /// Nobody has said which handles are noted.
    #[error(
        "call `resolve` first, with the handles that are noted, or with none: what they do not name is aborted then"
    )]
    NotResolved,
    /// It is resolved, and may be written to.
    #[error("`resolve` was called already: it decides over transactions of earlier attempts, once")]
    AlreadyResolved,
    /// A transaction is open.
    #[error("a transaction is open: `prepare` or `discard` it before the next one begins")]
    AlreadyBegun,
    /// No transaction is open.
    #[error("cannot {doing}: no transaction is open, call `begin`")]
    NotBegun {
        /// What was to be done.
        doing: &'static str,
    },
    /// The open transaction has failed.
    #[error(
        "cannot {doing}: the transaction under {id} has failed or its `prepare` was dropped; `discard` it, then write its \
         messages again"
    )]
    Broken {
        /// What was to be done.
        doing: &'static str,
        /// Its transactional id.
        id: String,
    },
    /// The handle is none that waits here.
    #[error(
        "{transaction} is not waiting in this writer: it was decided already, or somebody else has prepared it. Handles of earlier \
         runs are for `resolve`"
    )]
    NotPrepared {
        /// The handle.
        transaction: String,
    },
    /// Another one has to be decided before.
    #[error(
        "{transaction} cannot be {how} before {before}: transactions are committed oldest first and aborted newest first"
    )]
    OutOfOrder {
        /// The handle.
        transaction: String,
        /// What was to be done.
        how: &'static str,
        /// The one that comes before it.
        before: String,
    },
    /// The handle is of another writer.
    #[error("{transaction} is of another writer: ids of this one are {pattern}")]
    Foreign {
        /// The handle.
        transaction: String,
        /// How ids of this writer look.
        pattern: String,
    },
    /// The handle is of this attempt or of a later one.
    #[error(
        "{transaction} is of attempt {theirs}, and this is {ours}: each run needs an attempt above all before"
    )]
    NotEarlier {
        /// The handle.
        transaction: String,
        /// Its attempt.
        theirs: u64,
        /// Ours.
        ours: u64,
    },
    /// Brokers know ids of this attempt or of a later one.
    #[error(
        "attempt {ours} cannot begin: brokers know transactional ids of attempt {seen}. Each run needs an attempt above all \
         before; if another process runs under this name, it has taken over"
    )]
    AttemptUsed {
        /// Ours.
        ours: u64,
        /// The highest that brokers know.
        seen: u64,
    },
}
