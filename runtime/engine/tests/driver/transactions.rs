//! A target with transactions, and a sink that records every call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use levada_core::template::{Fate, TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{Batch, CheckpointId, ErrorClass, SinkContext, SinkError};
use levada_engine::driver::{Retry, TwoPhaseDriver, TwoPhaseOptions};

use crate::scripted::Faults;

pub(crate) type Driver = TwoPhaseDriver<u64, ScriptedSink>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    PreCommitted,
    Committed,
    Aborted,
}

#[derive(Debug)]
struct Transaction {
    named_for: CheckpointId,
    numbers: Vec<u64>,
    phase: Phase,
}

/// What is left of the target when the process has died: everything.
#[derive(Debug, Default)]
pub(crate) struct State {
    transactions: BTreeMap<String, Transaction>,
    /// What readers see, in the order of the commits.
    pub(crate) visible: Vec<u64>,
    /// Every call that came through, with what it was about.
    pub(crate) calls: Vec<String>,
    pub(crate) faults: Faults,
    pub(crate) context: Option<Vec<u8>>,
    pub(crate) restored_contexts: Vec<Vec<u8>>,
    pub(crate) timeout: Option<Duration>,
}

/// The target, shared by the sinks of all subtasks and of all attempts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target(Arc<Mutex<State>>);

impl Target {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn sink(&self) -> ScriptedSink {
        ScriptedSink(self.clone())
    }

    pub(crate) fn driver(&self) -> Driver {
        self.driver_with(TwoPhaseOptions::default())
    }

    pub(crate) fn driver_with(&self, options: TwoPhaseOptions) -> Driver {
        let retry = Retry { attempts: 3, ..options.retry };
        TwoPhaseDriver::new(self.sink(), TwoPhaseOptions { retry, ..options })
    }

    pub(crate) fn visible(&self) -> Vec<u64> {
        self.lock().visible.clone()
    }

    /// Returns the calls so far and forgets them.
    pub(crate) fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().calls)
    }

    fn in_phase(&self, phase: Phase) -> Vec<String> {
        let state = self.lock();
        let found = state.transactions.iter().filter(|(_, transaction)| transaction.phase == phase);
        found.map(|(handle, _)| handle.clone()).collect()
    }

    /// Transactions that are open, and those that wait for their commit.
    pub(crate) fn left_over(&self) -> (Vec<String>, Vec<String>) {
        (self.in_phase(Phase::Open), self.in_phase(Phase::PreCommitted))
    }

    /// The target drops a transaction by itself, as after its timeout.
    pub(crate) fn expire(&self, handle: &str) {
        self.lock().transactions.get_mut(handle).unwrap().phase = Phase::Aborted;
    }
}

impl State {
    fn call<R>(
        &mut self,
        verb: &'static str,
        subject: &str,
        effect: impl FnOnce(&mut Self) -> Result<R, SinkError>,
    ) -> Result<R, SinkError> {
        let entered = self.faults.enter(verb)?;
        self.calls.push(format!("{verb} {subject}"));
        let done = effect(self)?;
        entered.leave()?;
        Ok(done)
    }

    fn find(&mut self, handle: &str) -> Result<&mut Transaction, SinkError> {
        let unknown = || SinkError::new(ErrorClass::Fatal, format!("no transaction {handle}"));
        self.transactions.get_mut(handle).ok_or_else(unknown)
    }

    fn in_phase(&mut self, handle: &str, phase: Phase) -> Result<&mut Transaction, SinkError> {
        let transaction = self.find(handle)?;
        let found = transaction.phase;
        if found == phase {
            return Ok(transaction);
        }
        Err(SinkError::new(ErrorClass::Fatal, format!("{handle} is {found:?}, not {phase:?}")))
    }
}

#[derive(Debug)]
pub(crate) struct ScriptedSink(Target);

impl TwoPhaseCommitSink<u64> for ScriptedSink {
    type Handle = String;

    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        self.0.lock().call("open", &format!("{}/{}", ctx.subtask, ctx.parallelism), |_| Ok(()))
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<String, SinkError> {
        let handle = name.to_string();
        self.0.lock().call("begin", &handle, |state| {
            let transaction =
                Transaction { named_for: name.checkpoint, numbers: Vec::new(), phase: Phase::Open };
            let taken = state.transactions.insert(handle.clone(), transaction);
            assert!(taken.is_none(), "the name {handle} was used before");
            Ok(handle.clone())
        })
    }

    async fn write(
        &mut self,
        handle: &mut String,
        batch: Batch<u64>,
        _ctx: &WriteContext,
    ) -> Result<(), SinkError> {
        assert!(!batch.is_empty(), "a transaction is there for records");
        let numbers = batch.records().iter().map(|record| record.item);
        let mut state = self.0.lock();
        state.call("write", handle, |state| {
            state.in_phase(handle, Phase::Open)?.numbers.extend(numbers);
            Ok(())
        })
    }

    async fn pre_commit(&mut self, handle: &mut String) -> Result<(), SinkError> {
        self.0.lock().call("pre_commit", handle, |state| {
            state.in_phase(handle, Phase::Open)?.phase = Phase::PreCommitted;
            Ok(())
        })
    }

    async fn commit(&mut self, handle: &String) -> Result<(), SinkError> {
        self.0.lock().call("commit", handle, |state| {
            if state.find(handle)?.phase != Phase::Committed {
                let transaction = state.in_phase(handle, Phase::PreCommitted)?;
                transaction.phase = Phase::Committed;
                let numbers = transaction.numbers.clone();
                assert!(!numbers.is_empty(), "an empty transaction was committed");
                state.visible.extend(numbers);
            }
            Ok(())
        })
    }

    async fn abort(&mut self, handle: &String) -> Result<(), SinkError> {
        self.0.lock().call("abort", handle, |state| {
            if let Some(transaction) = state.transactions.get_mut(handle) {
                assert_ne!(transaction.phase, Phase::Committed, "{handle} is visible");
                transaction.phase = Phase::Aborted;
            }
            Ok(())
        })
    }

    async fn inspect(&mut self, handles: &[String]) -> Result<Option<Vec<Fate>>, SinkError> {
        let mut state = self.0.lock();
        state.call("inspect", &handles.join(" "), |state| {
            let fate = |handle| match state.transactions.get(handle).map(|found| found.phase) {
                Some(Phase::PreCommitted) => Fate::Pending,
                Some(Phase::Committed) => Fate::Committed,
                Some(Phase::Open | Phase::Aborted) => Fate::Aborted,
                None => Fate::Unknown,
            };
            Ok(Some(handles.iter().map(fate).collect()))
        })
    }

    async fn fence(&mut self, first: CheckpointId, kept: &[String]) -> Result<(), SinkError> {
        self.0.lock().call("fence", &kept.join(" "), |state| {
            for (handle, transaction) in &mut state.transactions {
                let is_earlier = transaction.named_for < first;
                if is_earlier && transaction.phase != Phase::Committed && !kept.contains(handle) {
                    transaction.phase = Phase::Aborted;
                }
            }
            Ok(())
        })
    }

    fn context(&self) -> Option<Vec<u8>> {
        self.0.lock().context.clone()
    }

    fn restore_context(&mut self, contexts: &[Vec<u8>]) -> Result<(), SinkError> {
        self.0.lock().restored_contexts = contexts.to_vec();
        Ok(())
    }

    fn transaction_timeout(&self) -> Option<Duration> {
        self.0.lock().timeout
    }

    async fn close(&mut self) {
        self.0.lock().calls.push(String::from("close"));
    }
}
