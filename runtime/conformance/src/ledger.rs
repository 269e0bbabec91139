//! The naive model: what was written, what may be visible by now, and what must be.

use std::collections::{BTreeMap, BTreeSet};

use levada_core::CheckpointId;

use crate::failure::Finding;

/// One subtask of one start.
pub(crate) type Lane = (u64, u32);

#[derive(Debug, Default)]
struct Subtask {
    /// Everything that it took since its start.
    own: Vec<u64>,
    /// What it took since the last barrier.
    open: Vec<u64>,
    told: Option<CheckpointId>,
}

/// Knows every record of a history. It knows nothing of drivers and sinks: a record may be visible once somebody was told
/// of a complete checkpoint that covers it, and must be once that call has returned.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    attempt: u64,
    subtasks: Vec<Subtask>,
    /// The last record of the checkpoint that was restored.
    restored: u64,
    /// The last record that was ever written.
    written: u64,
    /// Who wrote a record last.
    lanes: BTreeMap<u64, Lane>,
    may: BTreeSet<u64>,
    must: BTreeSet<u64>,
    intervals: BTreeMap<(u32, CheckpointId), Vec<u64>>,
    was_parallel: bool,
}

impl Ledger {
    /// Notes that a process starts. `publishes` tells whether the opening makes everything restored visible.
    pub(crate) fn starts(&mut self, attempt: u64, parallelism: u32, restored: u64, publishes: bool) {
        self.attempt = attempt;
        self.subtasks = (0..parallelism).map(|_| Subtask::default()).collect();
        self.restored = restored;
        self.was_parallel |= parallelism > 1;
        if publishes {
            self.may.extend(1..=restored);
        }
    }

    /// Notes that it has started.
    pub(crate) fn started(&mut self, publishes: bool) {
        if publishes {
            self.must.extend(1..=self.restored);
        }
    }

    pub(crate) fn writes(&mut self, subtask: usize, number: u64) {
        self.written = self.written.max(number);
        self.lanes.insert(number, (self.attempt, subtask as u32));
        self.subtasks[subtask].own.push(number);
        self.subtasks[subtask].open.push(number);
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Notes that a subtask has passed a barrier.
    pub(crate) fn barrier(&mut self, subtask: usize, checkpoint: CheckpointId) {
        let interval = std::mem::take(&mut self.subtasks[subtask].open);
        self.intervals.insert((subtask as u32, checkpoint), interval);
    }

    /// Returns what a subtask took before a barrier and behind the one before it.
    pub(crate) fn interval(&self, subtask: u32, checkpoint: CheckpointId) -> &[u64] {
        self.intervals.get(&(subtask, checkpoint)).map_or(&[], Vec::as_slice)
    }

    /// Notes that a subtask is told of a complete checkpoint, whose last record is `position`.
    pub(crate) fn tells(&mut self, subtask: usize, position: u64) {
        let own = self.subtasks[subtask].own.iter().copied();
        self.may.extend(own.filter(|number| *number <= position));
        self.may.extend(1..=self.restored.min(position));
    }

    /// Notes that the call has returned.
    pub(crate) fn told(&mut self, subtask: usize, checkpoint: CheckpointId, position: u64) {
        let one = &mut self.subtasks[subtask];
        one.told = one.told.max(Some(checkpoint));
        let own = one.own.iter().copied();
        self.must.extend(own.filter(|number| *number <= position));
        // Which subtask was dealt a restored record is not known here: all must have been told.
        if self.subtasks.iter().all(|subtask| subtask.told >= Some(checkpoint)) {
            self.must.extend(1..=self.restored.min(position));
        }
    }

    /// Checks that nothing that must be visible is missing, and nothing is there that may not be yet.
    pub(crate) fn check_bounds(&self, seen: &[u64]) -> Result<(), Finding> {
        let seen = seen.iter().copied().collect::<BTreeSet<_>>();
        let early = seen.difference(&self.may).copied().collect::<Vec<_>>();
        if !early.is_empty() {
            return Err(Finding::Early { records: early });
        }
        let lost = self.must.difference(&seen).copied().collect::<Vec<_>>();
        if !lost.is_empty() {
            return Err(Finding::Lost { records: lost });
        }
        Ok(())
    }

    /// Checks that nothing is there twice.
    pub(crate) fn check_once(seen: &[u64]) -> Result<(), Finding> {
        let mut known = BTreeSet::new();
        let doubled = seen.iter().copied().filter(|number| !known.insert(*number)).collect::<BTreeSet<_>>();
        if doubled.is_empty() {
            return Ok(());
        }
        Err(Finding::Doubled { records: doubled.into_iter().collect() })
    }

    /// Checks the order of each subtask's records, and of all as long as there was one subtask at a time.
    pub(crate) fn check_order(&self, seen: &[u64]) -> Result<(), Finding> {
        let mut last = BTreeMap::new();
        for number in seen {
            let lane = self.lanes.get(number).copied().filter(|_| self.was_parallel).unwrap_or_default();
            if let Some(after) = last.insert(lane, *number)
                && after > *number
            {
                return Err(Finding::OutOfOrder { record: *number, after });
            }
        }
        Ok(())
    }
}
