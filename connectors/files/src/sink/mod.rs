//! The sink: records become visible file by file, each file whole, when its checkpoint is complete.
//!
//! ```text
//!   begin        make .pending/NAME
//!   write        collect lines, append them in blocks
//!   pre_commit   sync the file, sync .pending                     ── the handle goes into the checkpoint ──
//!   commit       link to NAME · sync the folder · unlink .pending/NAME
//!   abort        unlink .pending/NAME
//! ```
//!
//! One verb a file: `begin`, `write`, `pre_commit`, `commit`, `abort`, `inspect`, `fence`. `judge` is the decision they
//! share, a function over what stands in the two places; `name` makes the names.
//!
//! # Killed in between
//! | killed | is left | what the next start does |
//! |---|---|---|
//! | before the end of `pre_commit` | a waiting file that no handle names | `fence` removes it, the records come again |
//! | before the link | the waiting file | `commit` by the stored handle |
//! | after the link | both names of one file | `commit` sees its own work and removes the first name |
//! | after the unlink | the published file | `commit` finds it done |

mod abort;
mod begin;
mod commit;
mod config;
mod error;
mod failpoint;
mod fence;
mod folder;
mod handle;
mod inspect;
mod judge;
mod lines;
mod name;
mod pre_commit;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use levada_core::template::{Fate, TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{Batch, CheckpointId, SinkContext, SinkError, WriteOrder};

pub use config::FileSinkConfig;
#[cfg(feature = "failpoints")]
pub use failpoint::FAIL_POINTS;
pub use handle::FileHandle;
pub use lines::{Lines, PlainLines};

use crate::blocking;
use error::{Doing, FileError};
use name::Naming;
use write::Writer;

/// Writes records as lines into files of a folder, exactly once.
///
/// A [`TwoPhaseCommitSink`] of the records `T` that `L` makes [`Lines`] of. Its calls need a tokio runtime around them, for its
/// blocking threads. `begin`, `write` and `pre_commit` are not cancel safe: when one is dropped, its
/// transaction goes no further. The others can be repeated.
pub struct FileSink<T, L = PlainLines> {
    config: FileSinkConfig,
    lines: L,
    place: Option<Place>,
    open: BTreeMap<PathBuf, Writer>,
    /// What this sink has begun and not brought to its end: its part of the run's live transactions.
    begun: BTreeSet<PathBuf>,
    /// The type of its records: without it, a call could be that of any.
    takes: PhantomData<fn(T)>,
}

/// Where an open sink writes, and under which names.
#[derive(Debug, Clone)]
struct Place {
    folder: PathBuf,
    naming: Naming,
}

impl<T: AsRef<[u8]>> FileSink<T> {
    /// Makes a sink of records that are lines already: `String`, `Vec<u8>`, whatever is `AsRef<[u8]>`.
    pub fn new(config: FileSinkConfig) -> Self {
        Self::with_lines(config, PlainLines)
    }
}

impl<T, L> FileSink<T, L> {
    /// Makes a sink whose records `lines` turns into lines.
    pub fn with_lines(config: FileSinkConfig, lines: L) -> Self {
        Self { config, lines, place: None, open: BTreeMap::new(), begun: BTreeSet::new(), takes: PhantomData }
    }

    fn place(&self) -> Result<Place, FileError> {
        self.place.clone().ok_or(FileError::NotOpen)
    }

    fn naming(&self, job: &str) -> Result<Naming, FileError> {
        let FileSinkConfig { uid, suffix, .. } = &self.config;
        for (what, text) in [("job's name", job), ("uid", uid)] {
            if text.is_empty() {
                return Err(FileError::Empty { what });
            }
        }
        if suffix.contains(['/', '\0']) {
            return Err(FileError::Suffix { suffix: suffix.clone() });
        }
        let naming = Naming::new(job, uid, suffix);
        match naming.too_long() {
            Some((length, limit)) => Err(FileError::NameTooLong { length, limit }),
            None => Ok(naming),
        }
    }

    async fn opened(&mut self, ctx: SinkContext) -> Result<(), FileError> {
        let naming = self.naming(&ctx.job)?;
        let folder = self.config.folder.clone();
        let folder = performed("open", self.config.folder.clone(), move || folder::opened(&folder)).await?;
        self.place = Some(Place { folder, naming });
        Ok(())
    }

    async fn begun(&mut self, name: &TransactionName) -> Result<FileHandle, FileError> {
        let Place { folder, naming } = self.place()?;
        let handle = FileHandle::new(folder, naming.file_of(name));
        let (pending, made) = (handle.pending(), handle.clone());
        // Before it is there: a fence in between must not take it for a left-over.
        self.config.live.add(pending.clone());
        self.begun.insert(pending.clone());
        match performed("make", pending.clone(), move || begin::begun(&made)).await {
            Ok(writer) => {
                self.open.insert(pending, writer);
                Ok(handle)
            }
            Err(error) => {
                self.forget(&handle);
                Err(error)
            }
        }
    }

    fn writer(&mut self, handle: &FileHandle) -> Result<&mut Writer, FileError> {
        let writer =
            self.open.get_mut(&handle.pending()).ok_or_else(|| FileError::NotBegun(handle.clone()))?;
        match writer.is_away() {
            true => Err(FileError::GivenUp(handle.clone())),
            false => Ok(writer),
        }
    }

    async fn pre_committed(&mut self, handle: &mut FileHandle) -> Result<(), FileError> {
        let pending = handle.pending();
        if !self.open.contains_key(&pending) {
            let handle = handle.clone();
            return performed("look at", pending, move || pre_commit::repeated(&handle)).await;
        }
        let writer = self.writer(handle)?;
        writer.flush(handle).await?;
        let (file, bytes, records) = (Arc::clone(&writer.file), writer.written, writer.records);
        let synced = handle.clone();
        performed("sync", pending.clone(), move || pre_commit::synced(&file, &synced)).await?;
        self.open.remove(&pending);
        (handle.is_pre_committed, handle.bytes, handle.records) = (true, bytes, records);
        Ok(())
    }

    /// Forgets a transaction that is at its end.
    fn forget(&mut self, handle: &FileHandle) {
        let pending = handle.pending();
        self.open.remove(&pending);
        self.begun.remove(&pending);
        self.config.live.remove(&pending);
    }

    /// Leaves everything as it is on the disk: what no checkpoint names, the next fence removes.
    fn let_go(&mut self) {
        self.open.clear();
        for pending in std::mem::take(&mut self.begun) {
            self.config.live.remove(&pending);
        }
    }
}

/// Runs a step on a blocking thread.
async fn performed<V: Send + 'static>(
    doing: &'static str,
    path: PathBuf,
    step: impl FnOnce() -> Result<V, FileError> + Send + 'static,
) -> Result<V, FileError> {
    blocking::ended(blocking::started(step).await).doing(doing, path)?
}

impl<T, L> TwoPhaseCommitSink<T> for FileSink<T, L>
where
    T: Send + Sync + 'static,
    L: Lines<T>,
{
    type Handle = FileHandle;

    /// Every record has a line of its own.
    fn write_order(&self) -> WriteOrder {
        WriteOrder::Any
    }

    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        Ok(self.opened(ctx).await?)
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<FileHandle, SinkError> {
        Ok(self.begun(name).await?)
    }

    /// After an I/O error the batch counts as taken over: what could not be written goes with the next call. A record that
    /// has no line leaves its batch untaken.
    async fn write(
        &mut self,
        handle: &mut FileHandle,
        batch: Batch<T>,
        _ctx: &WriteContext,
    ) -> Result<(), SinkError> {
        let limit = self.config.buffer_bytes;
        self.writer(handle)?;
        // Looked up again for the sake of the borrow of `lines` beside it; it was there in the line before.
        let Some(writer) = self.open.get_mut(&handle.pending()) else { return Ok(()) };
        writer.collect(&mut self.lines, &batch)?;
        drop(batch);
        if writer.collected() >= limit {
            writer.flush(handle).await?;
        }
        Ok(())
    }

    async fn pre_commit(&mut self, handle: &mut FileHandle) -> Result<(), SinkError> {
        Ok(self.pre_committed(handle).await?)
    }

    async fn commit(&mut self, handle: &FileHandle) -> Result<(), SinkError> {
        let published = handle.clone();
        performed("publish", handle.target(), move || commit::committed(&published)).await?;
        self.forget(handle);
        Ok(())
    }

    async fn abort(&mut self, handle: &FileHandle) -> Result<(), SinkError> {
        let dropped = handle.clone();
        performed("remove", handle.pending(), move || abort::aborted(&dropped)).await?;
        self.forget(handle);
        Ok(())
    }

    async fn inspect(&mut self, handles: &[FileHandle]) -> Result<Option<Vec<Fate>>, SinkError> {
        let Place { folder, .. } = self.place()?;
        let handles = handles.to_vec();
        Ok(Some(performed("look at", folder, move || inspect::fates(&handles)).await?))
    }

    /// `kept` names every transaction of the job that may still be committed, whichever subtask wrote it; a file's name tells
    /// whether it is older than `first`.
    async fn fence(&mut self, first: CheckpointId, kept: &[FileHandle]) -> Result<(), SinkError> {
        let Place { folder, naming } = self.place()?;
        let mut spared = self.config.live.all();
        spared.extend(kept.iter().map(FileHandle::pending));
        performed("list", folder.clone(), move || fence::fenced(&folder, &naming, first, &spared)).await?;
        Ok(())
    }

    async fn close(&mut self) {
        self.place = None;
        self.let_go();
    }
}

impl<T, L> Drop for FileSink<T, L> {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl<T, L> fmt::Debug for FileSink<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSink")
            .field("config", &self.config)
            .field("place", &self.place)
            .field("open", &self.open.keys())
            .finish_non_exhaustive()
    }
}
