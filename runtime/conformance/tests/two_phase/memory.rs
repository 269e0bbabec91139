//! Transactions in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use levada_conformance::TwoPhaseTarget;
use levada_core::template::{Fate, TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{Batch, BoxError, CheckpointId, ErrorClass, SinkContext, SinkError, StateError, Storable};

/// What is wrong with a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Flaw {
    #[default]
    None,
    CommitsAtPreCommit,
    CommitsAgain,
    RefusesASecondCommit,
    CommitsAnythingUnknown,
    RetriesALoss,
    RefusesToAbortTheUnknown,
    AbortsOnlyOpenOnes,
    HandleWithoutSubtask,
    BuffersUntilTheCommit,
    KeepsThePreCommitToItself,
    CommitsOutOfOrder,
    LosesTheLastOfABatch,
    FencesWhatIsKept,
    FencesNothing,
    FencesOnlyItsOwnSubtask,
    FencesByPrefix,
    FencesLaterAttempts,
    FencesByTheWordOfTheName,
    FencesOnlyEarlierAttempts,
    LetsZombiesCommit,
    CloseAbortsWhatWaits,
    TakesCommittedForAborted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Waiting,
    Committed,
    /// Aborted by a fence; only a flawed sink remembers it.
    Fenced,
}

#[derive(Debug, Clone)]
struct Transaction {
    state: State,
    records: Vec<u64>,
}

#[derive(Debug, Default)]
struct Store {
    transactions: BTreeMap<Handle, Transaction>,
    visible: Vec<u64>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    store: Arc<Mutex<Store>>,
    flaw: Flaw,
}

impl Memory {
    pub(crate) fn with(flaw: Flaw) -> Self {
        Self { flaw, ..Self::default() }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap()
    }
}

impl TwoPhaseTarget for Memory {
    type Item = u64;
    type Sink = MemorySink;

    fn sinks(&self, count: u32) -> Vec<MemorySink> {
        let sink = |_| MemorySink { memory: self.clone(), ..MemorySink::default() };
        (0..count).map(sink).collect()
    }

    fn item(&self, number: u64) -> u64 {
        number
    }

    async fn visible(&self) -> Result<Vec<u64>, BoxError> {
        Ok(self.store().visible.clone())
    }

    async fn left_over(&self) -> Result<Option<Vec<String>>, BoxError> {
        let store = self.store();
        let left = store
            .transactions
            .iter()
            .filter(|(_, found)| matches!(found.state, State::Open | State::Waiting));
        Ok(Some(left.map(|(handle, found)| format!("{handle:?}, {:?}", found.state)).collect()))
    }

    async fn lose(&self, handle: &Handle) -> Result<bool, BoxError> {
        self.store().transactions.remove(handle);
        Ok(true)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Handle {
    job: String,
    checkpoint: String,
    subtask: String,
    /// Of the sink that made it; for the flaw that forgets a part.
    flaw: bool,
}

impl Handle {
    fn named_for(&self) -> CheckpointId {
        let (attempt, sequence) = self.checkpoint.split_once('-').unwrap();
        CheckpointId::new(attempt.parse().unwrap(), sequence.parse().unwrap())
    }
}

impl Storable for Handle {
    const VERSION: u16 = 1;

    fn store(&self, out: &mut Vec<u8>) {
        let subtask = if self.flaw { "0" } else { &self.subtask };
        out.extend_from_slice(format!("{}/{}/{subtask}", self.job, self.checkpoint).as_bytes());
    }

    fn load(_version: u16, bytes: &[u8]) -> Result<Self, StateError> {
        let text = String::from_utf8_lossy(bytes);
        let [job, checkpoint, subtask] = text.split('/').collect::<Vec<_>>()[..] else {
            return Err(StateError::new("no handle"));
        };
        let [job, checkpoint, subtask] = [job, checkpoint, subtask].map(str::to_owned);
        Ok(Self { job, checkpoint, subtask, flaw: false })
    }
}

#[derive(Debug, Default)]
pub(crate) struct MemorySink {
    memory: Memory,
    job: String,
    subtask: u32,
    buffered: BTreeMap<Handle, Vec<u64>>,
}

fn error(class: ErrorClass, what: &str) -> SinkError {
    SinkError::new(class, what)
}

impl MemorySink {
    fn has(&self, flaw: Flaw) -> bool {
        self.memory.flaw == flaw
    }

    fn publish(&self, store: &mut Store, records: &[u64]) {
        if self.has(Flaw::CommitsOutOfOrder) {
            store.visible.splice(0..0, records.iter().copied());
        } else {
            store.visible.extend(records);
        }
    }

    fn is_stale(&self, handle: &Handle, first: CheckpointId) -> bool {
        let is_earlier = match self.memory.flaw {
            Flaw::FencesLaterAttempts => true,
            Flaw::FencesByTheWordOfTheName => handle.checkpoint < first.to_string(),
            Flaw::FencesOnlyEarlierAttempts => handle.named_for().attempt < first.attempt,
            _ => handle.named_for() < first,
        };
        let is_of_job = match self.memory.flaw {
            Flaw::FencesByPrefix => handle.job.starts_with(&self.job),
            _ => handle.job == self.job,
        };
        let is_of_subtask =
            !self.has(Flaw::FencesOnlyItsOwnSubtask) || handle.subtask == self.subtask.to_string();
        is_earlier && is_of_job && is_of_subtask
    }
}

impl TwoPhaseCommitSink<u64> for MemorySink {
    type Handle = Handle;

    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        (self.job, self.subtask) = (ctx.job, ctx.subtask);
        Ok(())
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<Handle, SinkError> {
        let handle = Handle {
            job: self.job.clone(),
            checkpoint: name.checkpoint.to_string(),
            subtask: name.subtask.to_string(),
            flaw: self.has(Flaw::HandleWithoutSubtask),
        };
        let open = Transaction { state: State::Open, records: Vec::new() };
        self.memory.store().transactions.insert(handle.clone(), open);
        Ok(handle)
    }

    async fn write(
        &mut self,
        handle: &mut Handle,
        batch: Batch<u64>,
        _ctx: &WriteContext,
    ) -> Result<(), SinkError> {
        let mut records = batch.records().iter().map(|record| record.item).collect::<Vec<_>>();
        if self.has(Flaw::LosesTheLastOfABatch) && records.len() > 1 {
            records.pop();
        }
        if self.has(Flaw::BuffersUntilTheCommit) {
            self.buffered.entry(handle.clone()).or_default().extend(records);
            return Ok(());
        }
        let gone = || error(ErrorClass::Fenced, "the transaction is gone");
        let mut store = self.memory.store();
        store.transactions.get_mut(handle).ok_or_else(gone)?.records.extend(records);
        Ok(())
    }

    async fn pre_commit(&mut self, handle: &mut Handle) -> Result<(), SinkError> {
        if self.has(Flaw::KeepsThePreCommitToItself) {
            self.buffered.insert(handle.clone(), Vec::new());
            return Ok(());
        }
        let mut store = self.memory.store();
        let gone = || error(ErrorClass::Fenced, "the transaction is gone");
        let found = store.transactions.get_mut(handle).ok_or_else(gone)?;
        found.state = State::Waiting;
        if self.has(Flaw::CommitsAtPreCommit) {
            found.state = State::Committed;
            let records = found.records.clone();
            self.publish(&mut store, &records);
        }
        Ok(())
    }

    async fn commit(&mut self, handle: &Handle) -> Result<(), SinkError> {
        let is_mine = self.buffered.contains_key(handle);
        let buffered = self.buffered.remove(handle).unwrap_or_default();
        let mut store = self.memory.store();
        let unknown = match self.memory.flaw {
            Flaw::CommitsAnythingUnknown => return publish_known(self, &mut store, handle),
            Flaw::RetriesALoss => ErrorClass::Retry,
            _ => ErrorClass::Fatal,
        };
        let Some(found) = store.transactions.get_mut(handle) else {
            return Err(error(unknown, "the transaction is lost"));
        };
        match found.state {
            State::Open if !(self.memory.flaw == Flaw::KeepsThePreCommitToItself && is_mine) => {
                return Err(error(ErrorClass::Fatal, "the transaction was not pre-committed"));
            }
            State::Committed if self.memory.flaw == Flaw::RefusesASecondCommit => {
                return Err(error(ErrorClass::Fatal, "the transaction is committed"));
            }
            State::Committed if self.memory.flaw != Flaw::CommitsAgain => return Ok(()),
            _ => {}
        }
        found.state = State::Committed;
        let records = [found.records.clone(), buffered].concat();
        self.publish(&mut store, &records);
        Ok(())
    }

    async fn abort(&mut self, handle: &Handle) -> Result<(), SinkError> {
        let mut store = self.memory.store();
        match store.transactions.get(handle).map(|found| found.state) {
            None if self.has(Flaw::RefusesToAbortTheUnknown) => {
                Err(error(ErrorClass::Fatal, "no such transaction"))
            }
            Some(State::Waiting) if self.has(Flaw::AbortsOnlyOpenOnes) => Ok(()),
            None | Some(State::Committed | State::Fenced) => Ok(()),
            Some(State::Open | State::Waiting) => {
                store.transactions.remove(handle);
                Ok(())
            }
        }
    }

    async fn inspect(&mut self, handles: &[Handle]) -> Result<Option<Vec<Fate>>, SinkError> {
        let store = self.memory.store();
        let fate = |handle| match store.transactions.get(handle).map(|found| found.state) {
            Some(State::Committed) if self.has(Flaw::TakesCommittedForAborted) => Fate::Aborted,
            Some(State::Committed) => Fate::Committed,
            Some(State::Waiting | State::Open) => Fate::Pending,
            Some(State::Fenced) | None => Fate::Aborted,
        };
        Ok(Some(handles.iter().map(fate).collect()))
    }

    async fn fence(&mut self, first: CheckpointId, kept: &[Handle]) -> Result<(), SinkError> {
        if self.has(Flaw::FencesNothing) {
            return Ok(());
        }
        let mut store = self.memory.store();
        let keeps =
            |handle: &Handle| kept.iter().any(|kept| kept == handle) && !self.has(Flaw::FencesWhatIsKept);
        for (handle, found) in &mut store.transactions {
            if found.state != State::Committed && self.is_stale(handle, first) && !keeps(handle) {
                found.state = State::Fenced;
            }
        }
        if !self.has(Flaw::LetsZombiesCommit) {
            store.transactions.retain(|_, found| found.state != State::Fenced);
        }
        Ok(())
    }

    async fn close(&mut self) {
        if self.has(Flaw::CloseAbortsWhatWaits) {
            let mut store = self.memory.store();
            store.transactions.retain(|handle, found| {
                handle.job != self.job
                    || handle.subtask != self.subtask.to_string()
                    || found.state != State::Waiting
            });
        }
    }
}

/// Commits what is there, and says that all is well in any case.
fn publish_known(sink: &MemorySink, store: &mut Store, handle: &Handle) -> Result<(), SinkError> {
    let Some(found) = store.transactions.get_mut(handle) else { return Ok(()) };
    if found.state == State::Committed {
        return Ok(());
    }
    found.state = State::Committed;
    let records = found.records.clone();
    sink.publish(store, &records);
    Ok(())
}
