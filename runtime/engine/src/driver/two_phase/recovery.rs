//! The part of a restore that is done once a job, by its coordinator, before any subtask opens.
//!
//! ```text
//! states of all subtasks ─▶ JobRecovery::read ─▶ inspect ─▶ Decision
//!    CommitAll             note resolved(n),    fence, restore n: each subtask commits its own
//!    RollBack { to: n−1 }  note discarding(n),  roll_back, fence, restore n−1
//!    Torn, Unknown         stop and say so
//! ```
//! Each step can be repeated: a process that dies in the middle leaves a note, and the next one goes on from it without
//! asking again.

use std::collections::BTreeMap;

use levada_core::template::{Decision, Fate, TwoPhaseCommitSink, decide};
use levada_core::{CheckpointId, State, StateError, Storable};

use super::entry::{Entry, StoredTransaction};
use crate::driver::error::DriverError;

/// The transactions of all subtasks in the newest complete checkpoint.
#[derive(Debug, Clone)]
pub struct JobRecovery<H> {
    transactions: Vec<StoredTransaction<H>>,
}

impl<H: Storable + Clone> JobRecovery<H> {
    /// Reads what the subtasks stored.
    ///
    /// # Errors
    /// A state is damaged, or of a later version.
    pub fn read<'a>(states: impl IntoIterator<Item = &'a State>) -> Result<Self, StateError> {
        let mut transactions = Vec::new();
        for state in states {
            let entries = Entry::all_of(state)?;
            transactions.extend(entries.into_iter().flat_map(|entry| entry.pending));
        }
        Ok(Self { transactions })
    }

    /// Returns the pending transactions.
    pub fn transactions(&self) -> &[StoredTransaction<H>] {
        &self.transactions
    }

    /// Returns how many records each checkpoint has pending.
    pub fn records(&self) -> BTreeMap<CheckpointId, u64> {
        let mut records = BTreeMap::new();
        for transaction in &self.transactions {
            *records.entry(transaction.checkpoint).or_default() += transaction.records;
        }
        records
    }

    fn handles<'a>(
        &'a self,
        chosen: impl Fn(&StoredTransaction<H>) -> bool + 'a,
    ) -> impl Iterator<Item = &'a H> {
        self.transactions.iter().filter(move |transaction| chosen(transaction)).map(|found| &found.handle)
    }

    /// Asks the target what became of them, in the order of [`JobRecovery::transactions`]. A target that cannot be asked is
    /// trusted: the commits will tell.
    ///
    /// # Errors
    /// The target cannot be reached, or it refused.
    pub async fn fates<T, S>(&self, sink: &mut S) -> Result<Vec<Fate>, DriverError>
    where
        S: TwoPhaseCommitSink<T, Handle = H>,
    {
        let handles = self.handles(|_| true).cloned().collect::<Vec<_>>();
        if handles.is_empty() {
            return Ok(Vec::new());
        }
        let answer = sink.inspect(&handles).await.map_err(DriverError::sink("inspect transactions"))?;
        let Some(mut fates) = answer else { return Ok(vec![Fate::Pending; handles.len()]) };
        // A handle that the answer is too short for has no known fate.
        fates.resize(handles.len(), Fate::Unknown);
        Ok(fates)
    }

    /// Asks the target what became of them, and decides.
    ///
    /// # Errors
    /// The target cannot be reached, or it refused.
    pub async fn inspect<T, S>(
        &self,
        sink: &mut S,
        previous: Option<CheckpointId>,
    ) -> Result<Decision, DriverError>
    where
        S: TwoPhaseCommitSink<T, Handle = H>,
    {
        let fates = self.fates(sink).await?;
        let covered = self.transactions.iter().map(|transaction| transaction.checkpoint);
        Ok(decide(&covered.zip(fates).collect::<Vec<_>>(), previous))
    }

    /// Carries a decided roll-back out: drops every transaction above `to`.
    ///
    /// # Errors
    /// The target did not drop one. It can be tried again.
    pub async fn roll_back<T, S>(&self, sink: &mut S, to: Option<CheckpointId>) -> Result<(), DriverError>
    where
        S: TwoPhaseCommitSink<T, Handle = H>,
    {
        for handle in self.handles(|transaction| Some(transaction.checkpoint) > to) {
            sink.abort(handle).await.map_err(DriverError::sink("abort a transaction"))?;
        }
        Ok(())
    }

    /// Ends what earlier attempts have left behind and no checkpoint names: everything named below `first`, the first
    /// checkpoint that this start may take, but not the transactions up to `restored`, which the subtasks will commit. To be
    /// called at every start, also without a checkpoint.
    ///
    /// # Errors
    /// The target refused.
    pub async fn fence<T, S>(
        &self,
        sink: &mut S,
        first: CheckpointId,
        restored: Option<CheckpointId>,
    ) -> Result<(), DriverError>
    where
        S: TwoPhaseCommitSink<T, Handle = H>,
    {
        let kept = self.handles(|transaction| Some(transaction.checkpoint) <= restored);
        let kept = kept.cloned().collect::<Vec<_>>();
        sink.fence(first, &kept).await.map_err(DriverError::sink("fence earlier attempts"))
    }
}
