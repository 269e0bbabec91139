//! Which splits of a subtask are too far ahead of its group.

use std::collections::BTreeSet;

use super::split_merge::SplitMerge;
use crate::clock::Timestamp;

/// What a source does about a split that was, or is no more, too far ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriftStep<K> {
    /// Let the split rest.
    Pause(K),
    /// Let it go on.
    Resume(K),
}

/// The splits that rest because they are ahead.
///
/// [TIM-17] A split is paused after it has exceeded what is allowed, and goes on when it does not any more, even if it was
/// marked idle in between. Idle and finished splits are not paused.
#[derive(Debug, Clone)]
pub struct SplitDrift<K> {
    paused: BTreeSet<K>,
}

impl<K: Ord + Clone> Default for SplitDrift<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone> SplitDrift<K> {
    /// Starts with no split paused.
    pub fn new() -> Self {
        Self { paused: BTreeSet::new() }
    }

    /// Compares the splits with what is allowed. Its work grows with the number of splits that are ahead.
    pub fn compare(&mut self, splits: &SplitMerge<K>, allowed: Timestamp) -> Vec<DriftStep<K>> {
        let mut steps = Vec::new();
        self.paused.retain(|split| match splits.of(split) {
            Some(watermark) if watermark > allowed => true,
            Some(_) => {
                steps.push(DriftStep::Resume(split.clone()));
                false
            }
            None => false,
        });
        let ahead = splits.counting().highest_first().take_while(|(watermark, _)| *watermark > allowed);
        for (_, split) in ahead {
            if self.paused.insert(split.clone()) {
                steps.push(DriftStep::Pause(split.clone()));
            }
        }
        steps
    }

    /// Tells whether a split rests because it was ahead.
    pub fn is_paused(&self, split: &K) -> bool {
        self.paused.contains(split)
    }

    /// Walks through the splits that rest.
    pub(super) fn paused(&self) -> impl Iterator<Item = &K> {
        self.paused.iter()
    }

    /// Forgets a split that was removed: it need not be resumed.
    pub fn remove(&mut self, split: &K) {
        self.paused.remove(split);
    }
}
