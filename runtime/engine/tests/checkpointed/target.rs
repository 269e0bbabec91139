//! A target with transactions that outlives jobs, and a sink that records every call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use levada_core::template::{Fate, TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{Batch, CheckpointId, ErrorClass, SinkContext, SinkError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    PreCommitted,
    Committed,
    Aborted,
}

#[derive(Debug)]
pub(crate) struct Transaction {
    named_for: CheckpointId,
    pub(crate) numbers: Vec<u64>,
    pub(crate) phase: Phase,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    /// By handle: the target's name, and the transaction's.
    pub(crate) transactions: BTreeMap<String, Transaction>,
    pub(crate) visible: Vec<u64>,
    /// Every call that came through, with what it was about.
    pub(crate) calls: Vec<String>,
    /// Commits answer that the target is away.
    pub(crate) is_away: bool,
    /// Commits never answer.
    pub(crate) hangs: bool,
    /// `inspect` answers that it cannot tell, and `fence` does nothing.
    pub(crate) is_simple: bool,
    pub(crate) timeout: Option<Duration>,
    /// How many subtasks write; all unless set.
    pub(crate) writers: Option<u32>,
}

/// The target, shared by the sinks of all subtasks, attempts and jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target(Arc<Mutex<Inner>>);

impl Target {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    pub(crate) fn sink(&self, name: &'static str) -> TargetSink {
        TargetSink { target: self.clone(), name }
    }

    /// What readers see, sorted.
    pub(crate) fn visible(&self) -> Vec<u64> {
        let mut visible = self.lock().visible.clone();
        visible.sort_unstable();
        visible
    }

    pub(crate) fn in_phase(&self, phase: Phase) -> Vec<String> {
        let inner = self.lock();
        let found = inner.transactions.iter().filter(|(_, transaction)| transaction.phase == phase);
        found.map(|(handle, _)| handle.clone()).collect()
    }

    pub(crate) fn set_away(&self, is_away: bool) {
        self.lock().is_away = is_away;
    }

    /// Transactions that were pre-committed are dropped by the target itself, as after their timeout.
    pub(crate) fn expire(&self, handles: &[String]) {
        for handle in handles {
            self.lock().transactions.get_mut(handle).unwrap().phase = Phase::Aborted;
        }
    }

    pub(crate) fn forget(&self, handles: &[String]) {
        for handle in handles {
            self.lock().transactions.remove(handle).unwrap();
        }
    }

    /// Somebody else commits it.
    pub(crate) fn commit(&self, handle: &str) {
        self.lock().commit(handle).unwrap();
    }

    /// Returns the calls so far and forgets them.
    pub(crate) fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().calls)
    }
}

impl Inner {
    fn call(&mut self, verb: &str, subject: &str) {
        self.calls.push(format!("{verb} {subject}"));
    }

    fn find(&mut self, handle: &str) -> Result<&mut Transaction, SinkError> {
        let unknown = || SinkError::new(ErrorClass::Fatal, format!("no transaction {handle}"));
        self.transactions.get_mut(handle).ok_or_else(unknown)
    }

    fn commit(&mut self, handle: &str) -> Result<(), SinkError> {
        let transaction = self.find(handle)?;
        match transaction.phase {
            Phase::Committed => {}
            Phase::PreCommitted => {
                transaction.phase = Phase::Committed;
                let numbers = transaction.numbers.clone();
                self.visible.extend(numbers);
            }
            found => return Err(SinkError::new(ErrorClass::Fatal, format!("{handle} is {found:?}"))),
        }
        Ok(())
    }
}

/// A sink of the target; what is fenced is what bears its name.
#[derive(Debug)]
pub(crate) struct TargetSink {
    target: Target,
    name: &'static str,
}

impl TwoPhaseCommitSink<u64> for TargetSink {
    type Handle = String;

    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        self.target.lock().call("open", self.name);
        Ok(())
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<String, SinkError> {
        let handle = format!("{}/{name}", self.name);
        let mut inner = self.target.lock();
        inner.call("begin", &handle);
        let transaction = Transaction { named_for: name.checkpoint, numbers: Vec::new(), phase: Phase::Open };
        assert!(inner.transactions.insert(handle.clone(), transaction).is_none(), "{handle} was used before");
        Ok(handle)
    }

    async fn write(
        &mut self,
        handle: &mut String,
        batch: Batch<u64>,
        _: &WriteContext,
    ) -> Result<(), SinkError> {
        let items = batch.records().iter().map(|record| record.item);
        let mut inner = self.target.lock();
        let transaction = inner.find(handle)?;
        if transaction.phase != Phase::Open {
            return Err(SinkError::new(ErrorClass::Fenced, format!("{handle} was ended by another")));
        }
        transaction.numbers.extend(items);
        Ok(())
    }

    async fn pre_commit(&mut self, handle: &mut String) -> Result<(), SinkError> {
        let mut inner = self.target.lock();
        inner.call("pre_commit", handle);
        let transaction = inner.find(handle)?;
        if transaction.phase != Phase::Open {
            return Err(SinkError::new(ErrorClass::Fenced, format!("{handle} was ended by another")));
        }
        transaction.phase = Phase::PreCommitted;
        Ok(())
    }

    async fn commit(&mut self, handle: &String) -> Result<(), SinkError> {
        if self.target.lock().hangs {
            println!("\nhanging");
            std::future::pending::<()>().await;
        }
        let mut inner = self.target.lock();
        inner.call("commit", handle);
        if inner.is_away {
            return Err(SinkError::new(ErrorClass::Reconnect, "the target is away"));
        }
        inner.commit(handle)
    }

    async fn abort(&mut self, handle: &String) -> Result<(), SinkError> {
        let mut inner = self.target.lock();
        inner.call("abort", handle);
        if let Some(transaction) = inner.transactions.get_mut(handle) {
            assert_ne!(transaction.phase, Phase::Committed, "{handle} is visible");
            transaction.phase = Phase::Aborted;
        }
        Ok(())
    }

    async fn inspect(&mut self, handles: &[String]) -> Result<Option<Vec<Fate>>, SinkError> {
        let mut inner = self.target.lock();
        if inner.is_simple {
            return Ok(None);
        }
        inner.call("inspect", &handles.join(" "));
        let fate = |handle| match inner.transactions.get(handle).map(|found| found.phase) {
            Some(Phase::PreCommitted) => Fate::Pending,
            Some(Phase::Committed) => Fate::Committed,
            Some(Phase::Open | Phase::Aborted) => Fate::Aborted,
            None => Fate::Unknown,
        };
        Ok(Some(handles.iter().map(fate).collect()))
    }

    async fn fence(&mut self, first: CheckpointId, kept: &[String]) -> Result<(), SinkError> {
        let prefix = format!("{}/", self.name);
        let mut inner = self.target.lock();
        if inner.is_simple {
            return Ok(());
        }
        inner.call("fence", &kept.join(" "));
        for (handle, transaction) in &mut inner.transactions {
            let is_earlier = handle.starts_with(&prefix) && transaction.named_for < first;
            if is_earlier && transaction.phase != Phase::Committed && !kept.contains(handle) {
                transaction.phase = Phase::Aborted;
            }
        }
        Ok(())
    }

    fn writers(&self) -> Option<u32> {
        self.target.lock().writers
    }

    fn transaction_timeout(&self) -> Option<Duration> {
        self.target.lock().timeout
    }

    async fn close(&mut self) {}
}
