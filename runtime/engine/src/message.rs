//! What the reader of a subtask sends to its sink.

use std::sync::Arc;

use levada_core::{Assignment, Positions, SplitId, StreamElement};
use tokio::sync::{oneshot, watch};

/// Numbers the stretches between discards. All tasks of a subtask share it.
///
/// The reader raises it when an interval must not be committed any more; whatever was sent under an older number is
/// dropped by the sink, wherever it stands between them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Generation(Arc<watch::Sender<u64>>);

impl Generation {
    pub(crate) fn current(&self) -> u64 {
        *self.0.borrow()
    }

    pub(crate) fn raise(&self) {
        self.0.send_modify(|generation| *generation += 1);
    }

    /// Tells of each raise from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
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
