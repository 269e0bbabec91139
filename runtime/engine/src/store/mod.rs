//! The checkpoint store: one log of numbered entries, each created only if its number is free.
//!
//! It is *not* a database: one process writes, others look on. Nothing is ever changed in place except the heartbeat,
//! which is advice.
//!
//! ```text
//!  log/  1 lease ─ 2 checkpoint 1-1 ─ 3 resolved 1-1 ─ 4 checkpoint 1-2 ─ 5 lease ─ 6 checkpoint 5-1 ─ …
//!        └─────────── attempt 1 may append only at 5, and 5 is taken ───┘
//!  parts/1-2/…       state too large for the manifest, written before the entry that names it
//!  pieces/1-2/…      long segments while their interval grows; kept as long as a checkpoint or a savepoint names them
//!  savepoints/NAME/  a manifest and its parts, complete in itself, for the user to keep, copy and delete
//!  heartbeat/5       "attempt 5 lives": advice for a second process, no part of safety
//! ```
//!
//! **Why a takeover is safe.** The holder of a lease appends at the number behind the last one it knows. Whoever takes
//! over takes exactly that number with a lease entry, and lease entries are never deleted. So the old holder's next
//! append, however late, meets a taken number: [`StoreError::TakenOver`], and it must end before any side effect. An entry
//! directly before a lease is not deleted either: it may be one whose answer its writer never got, and a second try of it
//! must not find the number free. No clock takes part.
//!
//! **Why a lost answer is harmless.** Every entry carries its writer and a nonce. After an answer that is not plain, the
//! entry is read back. One that turns up later, from an append that seemed to have failed, is recognised by its writer, and
//! the log goes on behind it.
//!
//! **Formats.** Entries and manifests are JSON behind one line of text with format version, length and checksum: a person
//! with a damaged job must be able to read them with `cat`, and they are small. State parts are binary ([`codec`]): they
//! may be large, and their meaning is their operator's. The checksum is CRC-32, against damage, not against malice.
//!
//! **Directories.** `object_store` writes to a file beside the final one, calls `fsync`, links it to its name (which fails
//! if the name is taken) and calls `fsync` on the folder. What a crash leaves beside is never listed.
//!
//! A **savepoint** is a checkpoint of the log whose parts lie in a folder of their own, and with it a copy of the manifest.
//! It is in the log because what it covers may have become visible: a later start must go on from it, not from a checkpoint
//! before it. Deleting the folder of the newest savepoint is therefore damage, and reported as such.

mod backend;
mod choose;
pub mod codec;
mod entry;
mod error;
mod failpoint;
mod frame;
mod inspect;
mod lease;
mod log;
mod manifest;
mod part;
mod process;
mod retention;
mod savepoint;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use levada_core::{Clock, SystemClock};

pub use choose::{
    Decision, Refusal, Republished, RestoreFrom, RestorePolicy, choose, choose_savepoint, republished,
};
pub use entry::{Entry, EntryKind, LeaseRecord};
pub use error::{Holder, StoreError};
#[cfg(feature = "failpoints")]
pub use failpoint::FAIL_POINTS;
pub use frame::Flaw;
pub use inspect::{CheckpointSummary, Listing, OperatorSummary, Row};
pub use lease::{HEARTBEAT_INTERVAL, HEARTBEAT_LIMIT, Heartbeat, Lease, TakeOver};
pub use log::{Damage, Log, Piece, Recovery};
pub use manifest::{Manifest, OperatorState, Stored, SubtaskState};
pub use part::{PartHome, PartReader, PartRef, PartWriter};
pub use process::ProcessId;
pub use retention::Swept;
pub use savepoint::{Continued, Savepoint};

use backend::Backend;
use lease::Orphans;

/// A place that checkpoints are kept in. Cheap to clone; reading needs no lease.
#[derive(Clone)]
pub struct Store {
    backend: Backend,
    clock: Arc<dyn Clock>,
    process: ProcessId,
    orphans: Orphans,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.backend).finish()
    }
}

impl Store {
    /// Opens the store at `url`: `memory:`, a path or `file://` of a directory, or `s3://`, `gs://`, `az://` in builds with
    /// the feature. Directories are created. Credentials of clouds come from the environment.
    ///
    /// # Errors
    /// The place cannot be reached or written, or it does not create conditionally: that is tried, not believed.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::opened(Backend::open(url).await?).await
    }

    /// Opens the store in a directory, which is created if it is not there.
    ///
    /// # Errors
    /// Those of [`Store::open`].
    pub async fn open_folder(folder: impl Into<PathBuf>) -> Result<Self, StoreError> {
        Self::opened(Backend::open_folder(folder.into()).await?).await
    }

    async fn opened(backend: Backend) -> Result<Self, StoreError> {
        backend.probe().await?;
        Ok(Self::over(backend))
    }

    fn over(backend: Backend) -> Self {
        let (process, orphans) = (ProcessId::current(), Orphans::default());
        Self { backend, clock: Arc::new(SystemClock), process, orphans }
    }

    /// Takes the time from another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Signs leases as another process would.
    #[must_use]
    pub fn with_process(mut self, process: ProcessId) -> Self {
        self.process = process;
        self
    }
}
