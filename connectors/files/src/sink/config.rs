//! How a sink is configured.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Everything a [`FileSink`](super::FileSink) is told before it is opened.
#[derive(Debug, Clone)]
pub struct FileSinkConfig {
    pub(super) folder: PathBuf,
    pub(super) uid: String,
    pub(super) suffix: String,
    pub(super) buffer_bytes: usize,
    pub(super) live: Live,
}

impl FileSinkConfig {
    /// Writes into `folder`, which must exist: made by us, it could hide that a disk is not mounted. `uid` tells the sinks of
    /// one job apart, and must stay the same from run to run.
    ///
    /// Make one configuration a run and clone it for each subtask: clones know of each other's transactions.
    pub fn new(folder: impl Into<PathBuf>, uid: impl Into<String>) -> Self {
        Self {
            folder: folder.into(),
            uid: uid.into(),
            suffix: String::new(),
            buffer_bytes: 256 << 10,
            live: Live::default(),
        }
    }

    /// Sets what names end with, such as `.jsonl`; nothing by default.
    #[must_use]
    pub fn suffix(mut self, suffix: impl Into<String>) -> Self {
        self.suffix = suffix.into();
        self
    }

    /// Sets how many bytes a subtask collects before it writes them; default 256 KiB.
    #[must_use]
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }
}

/// The transactions of this run that are neither committed nor aborted: a fence of one subtask leaves those of the others
/// alone. Locked for single set operations only, never across a system call.
#[derive(Debug, Clone, Default)]
pub(super) struct Live(Arc<Mutex<BTreeSet<PathBuf>>>);

impl Live {
    // Single operations on a set leave it whole, also when their thread panics.
    fn paths(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, pending: PathBuf) {
        self.paths().insert(pending);
    }

    pub(super) fn remove(&self, pending: &PathBuf) {
        self.paths().remove(pending);
    }

    pub(super) fn all(&self) -> BTreeSet<PathBuf> {
        self.paths().clone()
    }
}
