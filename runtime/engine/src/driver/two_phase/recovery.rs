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

use levada_core::template::{Fate, TwoPhaseCommitSink};
use levada_core::{CheckpointId, State, StateError, Storable};

use super::entry::{Entry, StoredTransaction};
use crate::driver::error::DriverError;

/// What to do with the transactions of the newest complete checkpoint n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// All are visible or can be made so: restore n.
    CommitAll,
    /// Some of what n added is gone and none of it visible: drop the rest of it, restore the checkpoint before, and read
    /// again.
    RollBack {
        /// The checkpoint before; none when n was the first.
        to: Option<CheckpointId>,
    },
    /// Some records are visible and others of the same checkpoint gone for good: only a human can say what now.
    Torn {
        /// How many transactions are gone.
        aborted: usize,
        /// How many transactions that cannot be taken back are visible.
        committed: usize,
    },
    /// The target has forgotten some transactions, and the others do not tell what became of these.
    Unknown {
        /// How many.
        unknown: usize,
    },
}

#[derive(Debug, Default)]
struct Count {
    committed: usize,
    aborted: usize,
    unknown: usize,
}

impl Count {
    fn of<'a>(fates: impl Iterator<Item = &'a (CheckpointId, Fate)>) -> Self {
        let mut count = Self::default();
        for (_, fate) in fates {
            match fate {
                Fate::Pending => {}
                Fate::Committed => count.committed += 1,
                Fate::Aborted => count.aborted += 1,
                // A fate that this version does not know is none to build on.
                _ => count.unknown += 1,
            }
        }
        count
    }
}

/// Decides what becomes of checkpoint n from the fates of all its transactions, each with the checkpoint that covers it.
///
/// `previous` is the complete checkpoint before n. Transactions up to it are covered by it, too: they cannot be rolled
/// back, because its restore does not repeat their records. Those above it are what n added.
pub fn decide(fates: &[(CheckpointId, Fate)], previous: Option<CheckpointId>) -> Decision {
    let is_old = |checkpoint: CheckpointId| previous.is_some_and(|previous| checkpoint <= previous);
    let old = Count::of(fates.iter().filter(|(checkpoint, _)| is_old(*checkpoint)));
    let new = Count::of(fates.iter().filter(|(checkpoint, _)| !is_old(*checkpoint)));

    let aborted = old.aborted + new.aborted;
    let unknown = old.unknown + new.unknown;
    if old.aborted > 0 || (new.aborted > 0 && new.committed > 0) {
        return Decision::Torn { aborted, committed: old.committed + new.committed };
    }
    if unknown > 0 {
        return Decision::Unknown { unknown };
    }
    if new.aborted > 0 {
        return Decision::RollBack { to: previous };
    }
    Decision::CommitAll
}

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
