//! What the reader of a subtask sends to its sink.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use levada_core::{Assignment, Positions, SplitId, StreamElement};
use tokio::sync::oneshot;

/// Numbers the stretches between discards. Both tasks of a subtask share it.
///
/// The reader raises it when an interval must not be committed any more; whatever was sent under an older number is
/// dropped by the sink, wherever it stands in the channel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Generation(Arc<AtomicU64>);

impl Generation {
    pub(crate) fn current(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn raise(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[derive(Debug)]
pub(crate) struct Message<T> {
    pub(crate) generation: u64,
    pub(crate) body: Body<T>,
}

#[derive(Debug)]
pub(crate) enum Body<T> {
    Element(StreamElement<T>),
    /// Give these splits up, then take `assignment`, and tell where its splits go on.
    Claim {
        release: Vec<SplitId>,
        assignment: Assignment,
        reply: oneshot::Sender<Positions>,
    },
    /// Give these splits up, after everything before is committed; tell when it is.
    Settle {
        release: Vec<SplitId>,
        reply: oneshot::Sender<()>,
    },
}

/// Why a subtask's task ended early.
#[derive(Debug)]
pub(crate) enum Stopped {
    Error(crate::error::JobError),
    /// The other task of the subtask is gone; it tells why.
    PeerGone,
    Cancelled,
}
