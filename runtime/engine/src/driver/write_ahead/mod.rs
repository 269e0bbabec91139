//! Drives a sink whose records wait in the checkpoint until it is complete.
//!
//! ```text
//!  write ──▶ open body ── barrier n ──▶ segment n ── complete(≥ n) ──▶ committed? ── no ──▶ send ──▶ marker ──▶ dropped
//!              │ long: pieces               │ in the state of every       └ yes: dropped     └ no, or an error: it and
//!              ▼                            ▼ checkpoint until dropped                         those behind it wait
//!           PieceStore                    State
//! ```

mod entry;
mod marker_file;
mod pieces;

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use levada_core::template::{CheckpointCommitter, Marker, Segment, WriteAheadSink, WriteContext};
use levada_core::{
    Batch, BoxError, CheckpointId, ErrorChain, ErrorClass, SinkError, State, StateError, Storable, Timestamp,
};

use self::entry::{Body, Entry};
pub use self::marker_file::FileCommitter;
pub use self::pieces::{Inline, PieceError, PieceStore};
use super::SinkDriver;
use super::context::{DriverContext, Restored, Stage};
use super::error::DriverError;
use super::pending::Pending;
use super::retry::Retry;
use super::tally::DriverTally;
use crate::failpoint::fail_point;

/// What handing one segment over came to.
#[derive(Debug)]
enum Outcome {
    Sent,
    /// It was sent before, its marker says.
    Known,
    /// It waits, and those behind it; without a cause the sink said no.
    Held(Option<BoxError>),
}

/// A marker that was committed or found.
#[derive(Debug)]
struct Committed {
    marker: Marker,
    /// The last barrier before, or the restored checkpoint: its state still holds the segment.
    last_barrier: Option<CheckpointId>,
}

/// Drives a [`WriteAheadSink`] and its [`CheckpointCommitter`].
///
/// A segment that is not taken waits for the next notification; the task does not fail, unless a record is at fault, the
/// segment's stored records are damaged, or a later opening has taken over. Only with the last notification of a stream that has ended it is tried again at once,
/// with back-off, and then the task fails.
pub struct WriteAheadDriver<T, S, C, P = Inline> {
    sink: S,
    committer: C,
    pieces: P,
    /// For the last notification.
    retry: Retry,
    stage: Stage,
    /// The interval since the last barrier.
    open: Body,
    /// In the order in which they are to be sent. Shared, because one that is being sent stays here until it is.
    pending: VecDeque<Arc<Entry>>,
    /// Whether the first of them was handed to the sink before.
    first_was_tried: bool,
    /// Markers that some checkpoint may still be asked about.
    committed: Vec<Committed>,
    newest_complete: Option<CheckpointId>,
    restored: Option<CheckpointId>,
    tally: DriverTally,
    records: PhantomData<fn(T)>,
}

impl<T, S: fmt::Debug, C: fmt::Debug, P: fmt::Debug> fmt::Debug for WriteAheadDriver<T, S, C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteAheadDriver")
            .field("sink", &self.sink)
            .field("committer", &self.committer)
            .field("pieces", &self.pieces)
            .field("open", &self.open)
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

impl<T, S, C> WriteAheadDriver<T, S, C> {
    /// Drives `sink`; segments are kept whole in the checkpoints.
    pub fn new(sink: S, committer: C, retry: Retry) -> Self {
        Self::with_pieces(sink, committer, retry, Inline)
    }
}

impl<T, S, C, P> WriteAheadDriver<T, S, C, P> {
    /// Drives `sink`; long intervals go to `pieces` while they grow.
    pub fn with_pieces(sink: S, committer: C, retry: Retry, pieces: P) -> Self {
        Self {
            sink,
            committer,
            pieces,
            retry,
            stage: Stage::default(),
            open: Body::default(),
            pending: VecDeque::new(),
            first_was_tried: false,
            committed: Vec::new(),
            newest_complete: None,
            restored: None,
            tally: DriverTally::default(),
            records: PhantomData,
        }
    }
}

impl<T, S, C, P> WriteAheadDriver<T, S, C, P>
where
    T: Storable + Send,
    S: WriteAheadSink<T>,
    C: CheckpointCommitter,
    P: PieceStore,
{
    /// Stores what the open interval has gathered, if it is a piece's worth.
    async fn close_piece(&mut self) -> Result<(), DriverError> {
        if self.pieces.piece_bytes().is_some_and(|size| self.open.tail.len() >= size) {
            let covered_by = self.stage.next_checkpoint()?;
            let piece = std::mem::take(&mut self.open.tail);
            let reference = self.pieces.put(covered_by, piece).await.map_err(DriverError::Piece)?;
            self.open.pieces.push(reference);
        }
        Ok(())
    }

    /// Drops restored segments that were sent already; the others wait for the next notification.
    async fn drop_known(&mut self, restored: Vec<Entry>) -> Result<(), DriverError> {
        for entry in restored {
            let asked = self.committer.is_committed(&entry.marker).await;
            self.tally.restored += entry.body.records;
            if asked.map_err(DriverError::committer("tell what was sent"))? {
                self.tally.known += entry.body.records;
                self.note_committed(entry.marker);
            } else {
                self.pending.push_back(Arc::new(entry));
            }
        }
        Ok(())
    }

    /// Hands segments up to `checkpoint` over, in order, and stops at the first that has to wait: then it returns why.
    async fn hand_over_until(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Option<Option<BoxError>>, DriverError> {
        while let Some(first) = self.pending.front()
            && first.marker.checkpoint <= checkpoint
        {
            let first = Arc::clone(first);
            match self.hand_over(&first).await? {
                Outcome::Sent => self.tally.published += first.body.records,
                Outcome::Known => self.tally.known += first.body.records,
                Outcome::Held(cause) => {
                    self.note_held(&first, cause.as_ref());
                    return Ok(Some(cause));
                }
            }
            self.pending.pop_front();
            self.first_was_tried = false;
            self.note_committed(first.marker.clone());
        }
        Ok(None)
    }

    async fn hand_over(&mut self, entry: &Entry) -> Result<Outcome, DriverError> {
        match self.committer.is_committed(&entry.marker).await {
            Ok(true) if self.can_have_been_sent(entry)? => return Ok(Outcome::Known),
            Ok(true) => return Err(DriverError::MarkerTaken { marker: entry.marker.clone() }),
            Ok(false) => {}
            Err(error) => return Ok(held(error)),
        }
        let records = match self.load(entry).await? {
            Ok(records) => records,
            Err(away) => return Ok(Outcome::Held(Some(away))),
        };
        let segment = Segment { marker: entry.marker.clone(), time: entry.time, records };
        fail_point!("wal::before_send");
        self.first_was_tried = true;
        match self.sink.send(&segment).await {
            Ok(true) => {}
            Ok(false) => return Ok(Outcome::Held(None)),
            // No later notification would find the record better, or this process the owner again.
            Err(cause) if matches!(cause.class, ErrorClass::BadRecord | ErrorClass::Fenced) => {
                return Err(DriverError::Unsendable { marker: entry.marker.clone(), cause: Box::new(cause) });
            }
            Err(error) => return Ok(held(error)),
        }
        fail_point!("wal::after_send");
        self.note_sent(&entry.marker).await
    }

    /// Tells whether the first pending segment was sent, by this opening or by an earlier one. If neither, its marker is
    /// somebody else's: to take it as sent would lose its records.
    fn can_have_been_sent(&self, entry: &Entry) -> Result<bool, DriverError> {
        Ok(self.first_was_tried || entry.marker.checkpoint < self.stage.context()?.first)
    }

    /// Commits the marker of a segment that was sent, or sees that this is done.
    async fn note_sent(&mut self, marker: &Marker) -> Result<Outcome, DriverError> {
        if self.committer.shares_transaction() {
            return match self.committer.is_committed(marker).await {
                Ok(true) => Ok(Outcome::Sent),
                // Each repetition would double the records, so this is no case for the next notification.
                Ok(false) => Err(DriverError::MarkerMissing { marker: marker.clone() }),
                Err(error) => Ok(held(error)),
            };
        }
        fail_point!("wal::before_marker");
        match self.committer.commit(marker).await {
            Ok(()) => {
                fail_point!("wal::after_marker");
                Ok(Outcome::Sent)
            }
            Err(error) => Ok(held(error)),
        }
    }

    /// Reads a segment's records, or tells why they cannot be read at the moment.
    async fn load(&mut self, entry: &Entry) -> Result<Result<Vec<T>, BoxError>, DriverError> {
        let mut records = Vec::new();
        for (place, reference) in entry.body.pieces.iter().enumerate() {
            let piece = match self.pieces.get(reference).await {
                Ok(piece) => piece,
                Err(PieceError::Unavailable(cause)) => return Ok(Err(cause)),
                Err(PieceError::Damaged(cause)) => return Err(unreadable(entry, place, cause)),
            };
            let loaded = entry::load_values(entry.version, &piece, &mut records);
            loaded.map_err(|cause| unreadable(entry, place, cause.into()))?;
        }
        let loaded = entry::load_values(entry.version, &entry.body.tail, &mut records);
        loaded.map_err(|cause| unreadable(entry, entry.body.pieces.len(), cause.into()))?;
        Ok(Ok(records))
    }

    fn note_held(&mut self, entry: &Entry, cause: Option<&BoxError>) {
        self.tally.held_back += 1;
        let Entry { marker, body, .. } = entry;
        let (waiting, records) = (self.pending.len(), body.records);
        match cause {
            Some(error) => {
                let error = ErrorChain(error.as_ref());
                tracing::error!(%marker, records, waiting, %error, "segment not sent; it and those behind it wait");
            }
            None => {
                tracing::warn!(%marker, records, waiting, "segment not taken; it and those behind it wait")
            }
        }
    }

    fn note_committed(&mut self, marker: Marker) {
        let last_barrier = self.stage.last_barrier().or(self.restored);
        self.committed.push(Committed { marker, last_barrier });
    }

    /// Lets the committer forget markers of segments that neither the newest complete checkpoint nor the one before holds.
    async fn forget_markers(&mut self, complete: CheckpointId) {
        if self.newest_complete >= Some(complete) {
            return;
        }
        let Some(before) = self.newest_complete.replace(complete) else { return };
        // A barrier behind the commit is one whose state does not hold the segment.
        let (old, kept) = std::mem::take(&mut self.committed)
            .into_iter()
            .partition::<Vec<_>, _>(|committed| committed.last_barrier < Some(before));
        self.committed = kept;
        let old = old.into_iter().map(|committed| committed.marker).collect::<Vec<_>>();
        if !old.is_empty()
            && let Err(error) = self.committer.forget(&old).await
        {
            // They take some room, no more.
            tracing::warn!(markers = old.len(), error = %ErrorChain(&error), "markers not forgotten");
        }
    }

    /// Hands over what is left when the stream has ended: there is no later notification to wait for.
    async fn hand_over_last(&mut self, checkpoint: CheckpointId) -> Result<(), DriverError> {
        let mut pauses = self.retry.pauses();
        while let Some(cause) = self.hand_over_until(checkpoint).await? {
            if !pauses.wait().await {
                let records = self.pending.iter().map(|entry| entry.body.records).sum();
                let segments = self.pending.len();
                return Err(DriverError::Unsent { checkpoint, segments, records, cause });
            }
        }
        Ok(())
    }
}

/// Reads which segments a stored state holds: their markers, and how many records they have.
pub(crate) fn stored_segments(state: &State) -> Result<Vec<(Marker, u64)>, StateError> {
    let entries = Entry::all_of(state)?;
    Ok(entries.into_iter().map(|entry| (entry.marker, entry.body.records)).collect())
}

/// A piece, or the tail behind the last one, will never be read.
fn unreadable(entry: &Entry, place: usize, cause: BoxError) -> DriverError {
    let Entry { marker, body, .. } = entry;
    let (piece, pieces) = (place + 1, body.pieces.len() + 1);
    DriverError::Unreadable { marker: marker.clone(), records: body.records, piece, pieces, cause }
}

fn held(error: SinkError) -> Outcome {
    Outcome::Held(Some(error.into()))
}

impl<T, S, C, P> SinkDriver<T> for WriteAheadDriver<T, S, C, P>
where
    T: Storable + Send,
    S: WriteAheadSink<T>,
    C: CheckpointCommitter,
    P: PieceStore,
{
    async fn open(&mut self, ctx: DriverContext, restored: Option<Restored>) -> Result<(), DriverError> {
        let entries = match &restored {
            Some(restored) => Entry::all_of(&restored.state)?,
            None => Vec::new(),
        };
        self.sink.open(ctx.sink.clone()).await.map_err(DriverError::sink("open"))?;
        self.committer.open(&ctx.sink).await.map_err(DriverError::committer("open"))?;
        // Before it asks what was sent: an earlier opening may be sending still.
        let fenced = self.committer.fence(&ctx.uid, ctx.first).await;
        fenced.map_err(DriverError::committer("fence earlier openings off"))?;
        self.stage.open(ctx);
        self.restored = restored.map(|restored| restored.checkpoint);
        self.drop_known(entries).await
    }

    async fn write(&mut self, batch: Batch<T>, _ctx: &WriteContext) -> Result<(), DriverError> {
        self.stage.writing()?;
        let mut scratch = Vec::new();
        batch.records().iter().for_each(|record| self.open.push(&record.item, &mut scratch));
        self.tally.written += batch.len() as u64;
        // The segment has its own bytes now; a batch's are in the budget until it is dropped.
        drop(batch);
        self.close_piece().await
    }

    async fn barrier(
        &mut self,
        checkpoint: CheckpointId,
        triggered_at: Timestamp,
    ) -> Result<State, DriverError> {
        self.stage.barrier(checkpoint)?;
        let body = std::mem::take(&mut self.open);
        if body.records > 0 {
            let ctx = self.stage.context()?;
            let (job, uid) = (ctx.sink.job.clone(), ctx.uid.clone());
            let marker = Marker { job, uid, subtask: ctx.sink.subtask, checkpoint };
            let entry = Entry { marker, time: triggered_at, version: T::VERSION, body };
            self.pending.push_back(Arc::new(entry));
        }
        Ok(Entry::to_state(self.pending.iter().map(Arc::as_ref)))
    }

    async fn complete(&mut self, checkpoint: CheckpointId) -> Result<(), DriverError> {
        self.forget_markers(checkpoint).await;
        if self.stage.is_final(checkpoint) {
            return self.hand_over_last(checkpoint).await;
        }
        // Why a segment waits is logged; the next notification tries again.
        self.hand_over_until(checkpoint).await?;
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), DriverError> {
        self.stage.finish();
        Ok(())
    }

    async fn close(&mut self) {
        self.sink.close().await;
    }

    fn pending(&self) -> Pending {
        Pending {
            transactions: self.pending.len() as u64,
            records: self.pending.iter().map(|entry| entry.body.records).sum(),
            pieces: self.pending.iter().flat_map(|entry| entry.body.pieces.iter().cloned()).collect(),
        }
    }

    fn tally(&self) -> DriverTally {
        self.tally
    }
}
