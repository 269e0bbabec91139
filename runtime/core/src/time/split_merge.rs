//! Merges the splits of one source into one watermark.

use super::ranked::Ranked;
use super::signal::{LastSaid, TimeSignal};
use crate::clock::Timestamp;
use crate::element::StreamStatus;

/// The watermarks of the splits that one subtask reads.
///
/// Changes are only noted; [`emit`](Self::emit) says what follows from all of them at once. A source calls it at every
/// tick, and also between two ticks where a split's watermark must not wait. Its work does not grow with the number of
/// splits that are idle.
///
/// [TIM-09] The merged watermark is the smallest of the splits that are not idle, and a split that has reported nothing
/// holds it back. [TIM-10] When the last one becomes idle, the highest of all splits is emitted, then the status: the
/// order in which they became idle does not matter. [TIM-12] Finished splits are left out; the maximum comes when no split
/// is left and [none will come](Self::no_more_splits).
#[derive(Debug, Clone)]
pub struct SplitMerge<K> {
    /// Splits that are neither finished nor removed.
    live: Ranked<K>,
    /// Those of them that are not idle.
    counting: Ranked<K>,
    has_all_splits: bool,
    said: LastSaid,
}

impl<K: Ord + Clone> Default for SplitMerge<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone> SplitMerge<K> {
    /// Merges no splits yet: idle from the first [`emit`](Self::emit) on, until one is added.
    pub fn new() -> Self {
        let (live, counting) = (Ranked::new(), Ranked::new());
        Self { live, counting, has_all_splits: false, said: LastSaid::NOTHING }
    }

    /// Adds a split that has reported nothing. Tells whether it is new; one that is there already is left as it is.
    pub fn add(&mut self, split: K) -> bool {
        let is_new = !self.live.contains(&split);
        if is_new {
            self.live.set(split.clone(), Timestamp::MIN);
            self.counting.set(split, Timestamp::MIN);
        }
        is_new
    }

    /// Notes a split's watermark and makes it active. A lower one than before changes only the status.
    pub fn watermark(&mut self, split: &K, watermark: Timestamp) {
        if let Some(before) = self.live.get(split) {
            let watermark = watermark.max(before);
            self.live.set(split.clone(), watermark);
            self.counting.set(split.clone(), watermark);
        }
    }

    /// Leaves a split out of the minimum until it is active again.
    pub fn idle(&mut self, split: &K) {
        self.counting.remove(split);
    }

    /// Counts an idle split again, with the last watermark that it had. [TIM-11]
    pub fn active(&mut self, split: &K) {
        if let Some(watermark) = self.live.get(split) {
            self.counting.set(split.clone(), watermark);
        }
    }

    /// Forgets a split: it has come to its end, or belongs to somebody else. Nothing that was emitted is taken back.
    pub fn remove(&mut self, split: &K) {
        self.live.remove(split);
        self.counting.remove(split);
    }

    /// Notes that no split will be added any more. [TIM-04] When the last one has been removed, the maximum is emitted.
    ///
    /// Not to be called while splits can still come, from a discovery or from another member of a group: their records
    /// would all be late.
    pub fn no_more_splits(&mut self) {
        self.has_all_splits = true;
    }

    /// Says what follows from the changes since the last call, in order.
    pub fn emit(&mut self) -> Vec<TimeSignal> {
        let mut signals = Vec::new();
        if let Some(lowest) = self.counting.lowest() {
            self.said.status(StreamStatus::Active, &mut signals);
            self.said.watermark(lowest, &mut signals);
        } else if let Some(highest) = self.live.highest() {
            self.said.watermark(highest, &mut signals);
            self.said.status(StreamStatus::Idle, &mut signals);
        } else if self.has_all_splits {
            self.said.watermark(Timestamp::MAX, &mut signals);
        } else {
            self.said.status(StreamStatus::Idle, &mut signals);
        }
        signals
    }

    /// Returns the watermark emitted last; [`Timestamp::MIN`] before the first.
    pub fn merged(&self) -> Timestamp {
        self.said.watermark
    }

    /// Returns the status emitted last.
    pub fn status(&self) -> StreamStatus {
        self.said.status
    }

    /// Returns a split's own watermark, if the split is there.
    pub fn of(&self, split: &K) -> Option<Timestamp> {
        self.live.get(split)
    }

    /// Tells whether a split is there and counts.
    pub fn is_counting(&self, split: &K) -> bool {
        self.counting.contains(split)
    }

    /// The splits that count.
    pub(super) fn counting(&self) -> &Ranked<K> {
        &self.counting
    }
}
