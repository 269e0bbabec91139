//! From a configured start or stop to a number for each split, once what the cluster knows was asked for.

use std::collections::BTreeMap;

use levada_core::{SplitId, Timestamp};

use super::config::{Otherwise, StartAt, StopAt};
use super::error::ReadError;

/// What the cluster knows of splits.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The first offset that is still there.
    pub(super) low: BTreeMap<SplitId, u64>,
    /// The end that may be read: the last stable offset under `read_committed`.
    pub(super) high: BTreeMap<SplitId, u64>,
    /// The end of everything, open transactions included. Asked for before `at`; only where times are wanted.
    pub(super) high_watermark: BTreeMap<SplitId, u64>,
    /// The first record at or after each time that is wanted.
    pub(super) at: BTreeMap<Timestamp, BTreeMap<SplitId, u64>>,
    /// What the group has committed; only where that is wanted.
    pub(super) committed: BTreeMap<SplitId, u64>,
}

impl Known {
    /// Returns where a split starts.
    pub(super) fn start(&self, split: &SplitId, start: &StartAt) -> Result<u64, ReadError> {
        let otherwise = |otherwise: Otherwise| match otherwise {
            Otherwise::Fail => Err(ReadError::NoCommitted { split: split.clone() }),
            Otherwise::Earliest => told(&self.low, split),
            Otherwise::Latest => told(&self.high, split),
        };
        let committed = |policy| self.committed.get(split).map_or_else(|| otherwise(policy), |at| Ok(*at));
        match start {
            StartAt::Earliest => told(&self.low, split),
            StartAt::Latest => told(&self.high, split),
            StartAt::Timestamp(time) => self.at_time(split, *time),
            StartAt::Committed { otherwise } => committed(*otherwise),
            StartAt::Offsets { offsets, otherwise } => {
                offsets.get(split).map_or_else(|| committed(*otherwise), |at| Ok(*at))
            }
        }
    }

    /// Returns where reading a split ends, if it does.
    pub(super) fn stop(&self, split: &SplitId, stop: &StopAt) -> Result<Option<u64>, ReadError> {
        let none = || ReadError::NoStop { split: split.clone() };
        match stop {
            StopAt::Never => Ok(None),
            StopAt::LatestAtStart => told(&self.high, split).map(Some),
            StopAt::Timestamp(time) => self.at_time(split, *time).map(Some),
            StopAt::Committed => self.committed.get(split).copied().map(Some).ok_or_else(none),
            StopAt::Offsets(offsets) => offsets.get(split).copied().map(Some).ok_or_else(none),
        }
    }

    /// [SRC-14] Where nothing is at or after the time, everything that comes will be: the end, as it was before.
    fn at_time(&self, split: &SplitId, time: Timestamp) -> Result<u64, ReadError> {
        match self.at.get(&time).and_then(|at| at.get(split)) {
            Some(&offset) => Ok(offset),
            None => told(&self.high_watermark, split),
        }
    }
}

fn told(offsets: &BTreeMap<SplitId, u64>, split: &SplitId) -> Result<u64, ReadError> {
    offsets.get(split).copied().ok_or_else(|| ReadError::NoOffsets { split: split.clone() })
}

/// Returns the times that must be asked for.
pub(super) fn times(start: &StartAt, stop: &StopAt) -> Vec<Timestamp> {
    let start = match start {
        StartAt::Timestamp(time) => Some(*time),
        _ => None,
    };
    let stop = match stop {
        StopAt::Timestamp(time) => Some(*time),
        _ => None,
    };
    start.into_iter().chain(stop).collect()
}

/// Returns those of `splits` whose committed offset must be asked for.
pub(super) fn wants_committed(splits: &[SplitId], start: &StartAt, stop: &StopAt) -> Vec<SplitId> {
    let wants = |split: &SplitId| match start {
        StartAt::Committed { .. } => true,
        StartAt::Offsets { offsets, .. } => !offsets.contains_key(split),
        _ => false,
    };
    let is_wanted = |split: &&SplitId| *stop == StopAt::Committed || wants(split);
    splits.iter().filter(is_wanted).cloned().collect()
}

/// Returns a split that is named by its offset but does not exist.
pub(super) fn unknown<'c>(splits: &[SplitId], start: &'c StartAt, stop: &'c StopAt) -> Option<&'c SplitId> {
    let started = match start {
        StartAt::Offsets { offsets, .. } => Some(offsets),
        _ => None,
    };
    let stopped = match stop {
        StopAt::Offsets(offsets) => Some(offsets),
        _ => None,
    };
    let mut named = started.into_iter().chain(stopped).flat_map(BTreeMap::keys);
    named.find(|split| !splits.contains(split))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split() -> SplitId {
        SplitId::new("t", 0)
    }

    fn known() -> Known {
        let of = |offset| BTreeMap::from([(split(), offset)]);
        Known { low: of(3), high: of(10), high_watermark: of(12), ..Known::default() }
    }

    fn committed(offset: u64) -> Known {
        Known { committed: BTreeMap::from([(split(), offset)]), ..known() }
    }

    /// [SRC-12] with what happens when the group has committed nothing.
    #[test]
    fn committed_start_falls_back_as_told() {
        let start = |known: &Known, otherwise| known.start(&split(), &StartAt::Committed { otherwise }).ok();
        assert_eq!(start(&committed(7), Otherwise::Fail), Some(7));
        assert_eq!(start(&known(), Otherwise::Fail), None);
        assert_eq!(start(&known(), Otherwise::Earliest), Some(3));
        assert_eq!(start(&known(), Otherwise::Latest), Some(10));
    }

    /// [SRC-12] explicit, then committed, then policy.
    #[test]
    fn missing_explicit_offset_falls_back_to_the_committed_one() {
        let otherwise = Otherwise::Latest;
        let explicit = StartAt::Offsets { offsets: BTreeMap::from([(split(), 5)]), otherwise };
        let missing = StartAt::Offsets { offsets: BTreeMap::new(), otherwise };
        assert_eq!(committed(7).start(&split(), &explicit).ok(), Some(5));
        assert_eq!(committed(7).start(&split(), &missing).ok(), Some(7));
        assert_eq!(known().start(&split(), &missing).ok(), Some(10));
    }

    /// [SRC-15] a stop that is missing would be a read that never ends.
    #[test]
    fn a_missing_stop_is_refused() {
        assert!(known().stop(&split(), &StopAt::Committed).is_err());
        assert!(known().stop(&split(), &StopAt::Offsets(BTreeMap::new())).is_err());
        assert_eq!(committed(7).stop(&split(), &StopAt::Committed).ok(), Some(Some(7)));
    }
}
