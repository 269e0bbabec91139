//! How far the sources of a group may run ahead of each other.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ranked::Ranked;
use crate::clock::Timestamp;

/// What a subtask tells its group about its watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftReport {
    /// It never had a split: nobody waits for it.
    Nothing,
    /// It is idle: nobody waits for it.
    Idle,
    /// Its merged watermark.
    At(Timestamp),
}

/// The watermarks of a group of subtasks, and what follows for the fastest.
///
/// [TIM-17] What is allowed is the smallest watermark of the members that are not idle, plus the drift; no limit when all
/// are idle. [TIM-18] A member that has reported nothing does not count, and a report never decreases. A group belongs to
/// one process. It never waits itself, so there is nothing to interrupt when a job stops.
#[derive(Debug, Clone)]
pub struct DriftGroup<K> {
    max_drift: Duration,
    /// The last watermark of every member that has reported one.
    reported: BTreeMap<K, Timestamp>,
    /// Of those that are not idle.
    counting: Ranked<K>,
}

impl<K: Ord + Clone> DriftGroup<K> {
    /// Makes a group without members.
    pub fn new(max_drift: Duration) -> Self {
        Self { max_drift, reported: BTreeMap::new(), counting: Ranked::new() }
    }

    /// Takes in what a member reports.
    pub fn report(&mut self, member: K, report: DriftReport) {
        match report {
            DriftReport::Nothing => {}
            DriftReport::Idle => {
                self.counting.remove(&member);
            }
            DriftReport::At(watermark) => {
                let before = self.reported.get(&member).copied().unwrap_or(Timestamp::MIN);
                let watermark = watermark.max(before);
                self.reported.insert(member.clone(), watermark);
                self.counting.set(member, watermark);
            }
        }
    }

    /// Forgets a member: it has ended.
    pub fn leave(&mut self, member: &K) {
        self.reported.remove(member);
        self.counting.remove(member);
    }

    /// Returns how far a split's watermark may go; [`Timestamp::MAX`] means that there is no limit.
    pub fn allowed(&self) -> Timestamp {
        self.counting.lowest().map_or(Timestamp::MAX, |lowest| lowest.saturating_add(self.max_drift))
    }
}
