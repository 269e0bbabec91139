//! A target that takes segments, and committers that fail when told to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use levada_core::template::{CheckpointCommitter, Marker, Segment, WriteAheadSink};
use levada_core::{BoxError, CheckpointId, SinkContext, SinkError, Timestamp};
use levada_engine::driver::{PieceError, PieceStore, Retry, WriteAheadDriver};

use crate::scripted::{Entered, Faults};

pub(crate) type Driver = WriteAheadDriver<u64, ScriptedSink, ScriptedCommitter>;

pub(crate) const RETRY: Retry = Retry {
    first_pause: std::time::Duration::from_millis(100),
    longest_pause: std::time::Duration::from_secs(1),
    attempts: 3,
};

#[derive(Debug, Default)]
pub(crate) struct State {
    /// What readers see, in the order of the sends.
    pub(crate) visible: Vec<u64>,
    /// What was sent: subtask, checkpoint, time, numbers.
    pub(crate) sent: Vec<(u32, CheckpointId, Timestamp, Vec<u64>)>,
    markers: BTreeSet<Marker>,
    /// Also those that were forgotten.
    ever_committed: BTreeSet<Marker>,
    contents: BTreeMap<Marker, (Timestamp, Vec<u64>)>,
    /// How many sends are answered with no.
    pub(crate) refusals: u32,
    pub(crate) forgotten: Vec<CheckpointId>,
    pub(crate) pieces: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) shares_transaction: bool,
    /// The sink does not write the markers that it should.
    pub(crate) omits_marker: bool,
    /// Uid and first checkpoint of the latest opening.
    pub(crate) fenced_for: Option<(String, CheckpointId)>,
    pub(crate) faults: Faults,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Target(Arc<Mutex<State>>);

impl Target {
    /// A target that commits the marker with the data.
    pub(crate) fn sharing() -> Self {
        let target = Self::default();
        target.lock().shares_transaction = true;
        target
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn sink(&self) -> ScriptedSink {
        ScriptedSink(self.clone())
    }

    pub(crate) fn driver(&self) -> Driver {
        WriteAheadDriver::new(self.sink(), ScriptedCommitter(self.clone()), RETRY)
    }

    /// A driver that stores pieces of this many bytes apart.
    pub(crate) fn driver_with_pieces(
        &self,
        bytes: usize,
    ) -> WriteAheadDriver<u64, ScriptedSink, ScriptedCommitter, MemoryPieces> {
        let pieces = MemoryPieces { target: self.clone(), bytes };
        WriteAheadDriver::with_pieces(self.sink(), ScriptedCommitter(self.clone()), RETRY, pieces)
    }

    pub(crate) fn visible(&self) -> Vec<u64> {
        self.lock().visible.clone()
    }

    pub(crate) fn sent_checkpoints(&self) -> Vec<CheckpointId> {
        self.lock().sent.iter().map(|(_, checkpoint, ..)| *checkpoint).collect()
    }

    pub(crate) fn markers(&self) -> Vec<String> {
        self.lock().markers.iter().map(ToString::to_string).collect()
    }
}

#[derive(Debug)]
pub(crate) struct ScriptedSink(Target);

impl WriteAheadSink<u64> for ScriptedSink {
    async fn open(&mut self, _ctx: SinkContext) -> Result<(), SinkError> {
        self.0.lock().faults.enter("open")?.leave()
    }

    async fn send(&mut self, segment: &Segment<u64>) -> Result<bool, SinkError> {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let entered = state.faults.enter("send")?;
        if state.refusals > 0 {
            state.refusals -= 1;
            return Ok(false);
        }
        let Segment { marker, time, records } = segment;
        assert!(!records.is_empty(), "an empty segment was sent");
        assert!(!state.ever_committed.contains(marker), "{marker} was sent after it was committed");
        let content = (*time, records.clone());
        let before = state.contents.entry(marker.clone()).or_insert_with(|| content.clone());
        assert_eq!(*before, content, "{marker} is not what it was");

        state.visible.extend(records);
        state.sent.push((marker.subtask, marker.checkpoint, *time, records.clone()));
        if state.shares_transaction && !state.omits_marker {
            state.markers.insert(marker.clone());
            state.ever_committed.insert(marker.clone());
        }
        entered.leave()?;
        Ok(true)
    }
}

#[derive(Debug)]
pub(crate) struct ScriptedCommitter(Target);

impl CheckpointCommitter for ScriptedCommitter {
    async fn open(&mut self, _ctx: &SinkContext) -> Result<(), SinkError> {
        self.0.lock().faults.enter("open_committer")?.leave()
    }

    async fn fence(&mut self, uid: &str, first: CheckpointId) -> Result<(), SinkError> {
        let mut state = self.0.lock();
        let entered = state.faults.enter("fence")?;
        state.fenced_for = Some((uid.to_owned(), first));
        entered.leave()
    }

    async fn is_committed(&mut self, marker: &Marker) -> Result<bool, SinkError> {
        let mut state = self.0.lock();
        assert!(state.fenced_for.is_some(), "asked before earlier openings were fenced off");
        state.faults.enter("is_committed")?.leave()?;
        Ok(state.markers.contains(marker))
    }

    async fn commit(&mut self, marker: &Marker) -> Result<(), SinkError> {
        let mut state = self.0.lock();
        assert!(!state.shares_transaction, "the marker is the sink's business");
        let entered = state.faults.enter("commit")?;
        state.markers.insert(marker.clone());
        state.ever_committed.insert(marker.clone());
        entered.leave()
    }

    async fn forget(&mut self, markers: &[Marker]) -> Result<(), SinkError> {
        let mut state = self.0.lock();
        let entered = state.faults.enter("forget")?;
        for marker in markers {
            state.markers.remove(marker);
            state.forgotten.push(marker.checkpoint);
        }
        entered.leave()
    }

    fn shares_transaction(&self) -> bool {
        self.0.lock().shares_transaction
    }
}

/// A store of pieces.
#[derive(Debug)]
pub(crate) struct MemoryPieces {
    target: Target,
    bytes: usize,
}

impl PieceStore for MemoryPieces {
    fn piece_bytes(&self) -> Option<usize> {
        Some(self.bytes)
    }

    async fn put(&mut self, _: CheckpointId, piece: Vec<u8>) -> Result<Vec<u8>, BoxError> {
        let mut state = self.target.lock();
        let reference = format!("piece-{}", state.pieces.len()).into_bytes();
        state.pieces.insert(reference.clone(), piece);
        Ok(reference)
    }

    async fn get(&mut self, reference: &[u8]) -> Result<Vec<u8>, PieceError> {
        let mut state = self.target.lock();
        let entered = state.faults.enter("get_piece").and_then(Entered::leave);
        entered.map_err(|error| PieceError::Unavailable(error.into()))?;
        let piece = state.pieces.get(reference).cloned();
        piece.ok_or_else(|| PieceError::Damaged("no such piece".into()))
    }
}
