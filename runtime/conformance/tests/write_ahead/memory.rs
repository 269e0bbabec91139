//! Segments and markers in memory.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use levada_conformance::WriteAheadTarget;
use levada_core::template::{CheckpointCommitter, Marker, Segment, WriteAheadSink};
use levada_core::{BoxError, ErrorClass, SinkContext, SinkError};

/// What is wrong with a sink or its committer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Flaw {
    #[default]
    None,
    TrueTooEarly,
    LosesTheLastRecord,
    ReversesARecordPair,
    SendsTwice,
    TakesNoSecondSegment,
    FailsToSendAgain,
    MarkersDieWithTheProcess,
    RemembersTheLastOnly,
    IgnoresTheSubtask,
    IgnoresTheAttempt,
    ForgetsEverything,
    ReplacesTheListOfOthers,
    ForgetsToWriteTheMarker,
}

#[derive(Debug, Default)]
struct Store {
    visible: Vec<u64>,
    markers: BTreeSet<Marker>,
    segments: BTreeSet<Marker>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    store: Arc<Mutex<Store>>,
    flaw: Flaw,
    shares: bool,
}

impl Memory {
    pub(crate) fn sharing() -> Self {
        Self { shares: true, ..Self::default() }
    }

    pub(crate) fn with(flaw: Flaw) -> Self {
        Self { flaw, ..Self::default() }
    }

    pub(crate) fn sharing_with(flaw: Flaw) -> Self {
        Self { flaw, ..Self::sharing() }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap()
    }
}

impl WriteAheadTarget for Memory {
    type Item = u64;
    type Sink = MemorySink;
    type Committer = MemoryCommitter;

    fn sinks(&self, count: u32) -> Vec<(MemorySink, MemoryCommitter)> {
        let one = |_| {
            let sink = MemorySink { memory: self.clone(), ..MemorySink::default() };
            (sink, MemoryCommitter { memory: self.clone(), ..MemoryCommitter::default() })
        };
        (0..count).map(one).collect()
    }

    fn item(&self, number: u64) -> u64 {
        number
    }

    async fn visible(&self) -> Result<Vec<u64>, BoxError> {
        Ok(self.store().visible.clone())
    }
}

#[derive(Debug, Default)]
pub(crate) struct MemorySink {
    memory: Memory,
    buffered: Vec<u64>,
    sent: u32,
}

impl WriteAheadSink<u64> for MemorySink {
    async fn open(&mut self, _ctx: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn send(&mut self, segment: &Segment<u64>) -> Result<bool, SinkError> {
        let flaw = self.memory.flaw;
        let mut store = self.memory.store();
        let mut records = segment.records.clone();
        self.sent += 1;
        let is_again = !store.segments.insert(segment.marker.clone());
        match flaw {
            Flaw::TrueTooEarly => std::mem::swap(&mut records, &mut self.buffered),
            Flaw::LosesTheLastRecord => drop(records.pop()),
            Flaw::ReversesARecordPair if records.len() > 1 => records.swap(0, 1),
            Flaw::SendsTwice => records.extend(records.clone()),
            Flaw::TakesNoSecondSegment if self.sent > 1 => return Ok(false),
            Flaw::FailsToSendAgain if is_again => {
                return Err(SinkError::new(ErrorClass::Fatal, "the segment is there"));
            }
            _ => {}
        }
        store.visible.extend(records);
        if self.memory.shares && flaw != Flaw::ForgetsToWriteTheMarker {
            store.markers.insert(segment.marker.clone());
        }
        Ok(true)
    }
}

#[derive(Debug, Default)]
pub(crate) struct MemoryCommitter {
    memory: Memory,
    /// For the flaw of markers that are in the process alone.
    own: BTreeSet<Marker>,
    /// All markers, as they were when the first was asked for; for the flaw of a list that is written as a whole.
    read: Option<BTreeSet<Marker>>,
}

impl CheckpointCommitter for MemoryCommitter {
    async fn open(&mut self, _ctx: &SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn is_committed(&mut self, marker: &Marker) -> Result<bool, SinkError> {
        let store = self.memory.store();
        self.read.get_or_insert_with(|| store.markers.clone());
        let is_of_sink = |known: &&Marker| known.job == marker.job && known.uid == marker.uid;
        let mut known = store.markers.iter().filter(is_of_sink);
        Ok(match self.memory.flaw {
            Flaw::MarkersDieWithTheProcess => self.own.contains(marker),
            Flaw::RemembersTheLastOnly => {
                known.any(|known| known.subtask == marker.subtask && known.checkpoint >= marker.checkpoint)
            }
            Flaw::IgnoresTheSubtask => known.any(|known| known.checkpoint == marker.checkpoint),
            Flaw::IgnoresTheAttempt => known.any(|known| {
                known.subtask == marker.subtask && known.checkpoint.sequence == marker.checkpoint.sequence
            }),
            _ => store.markers.contains(marker),
        })
    }

    async fn commit(&mut self, marker: &Marker) -> Result<(), SinkError> {
        self.own.insert(marker.clone());
        let mut store = self.memory.store();
        if let (Flaw::ReplacesTheListOfOthers, Some(read)) = (self.memory.flaw, &mut self.read) {
            read.insert(marker.clone());
            store.markers = read.clone();
        }
        store.markers.insert(marker.clone());
        Ok(())
    }

    async fn forget(&mut self, markers: &[Marker]) -> Result<(), SinkError> {
        let mut store = self.memory.store();
        let forgets_all = self.memory.flaw == Flaw::ForgetsEverything;
        store.markers.retain(|known| !forgets_all && !markers.contains(known));
        Ok(())
    }

    fn shares_transaction(&self) -> bool {
        self.memory.shares
    }
}
