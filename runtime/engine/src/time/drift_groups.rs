//! The groups of sources that wait for each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levada_core::Timestamp;
use levada_core::time::{DriftGroup, DriftLimit, DriftReport};

/// The groups of sources that keep within a drift of each other, by name. [TIM-17]
///
/// All subtasks of a job share one. Jobs of a process that are to wait for each other are given the same, by
/// [`Job::drift_groups`](crate::Job::drift_groups). Other processes know nothing of it.
///
/// Every member has the limit of its own strategy, counted from the group's smallest watermark. A member looks at the group
/// once in an interval of its strategy: that is how long it may run on.
#[derive(Debug, Clone, Default)]
pub struct DriftGroups(Arc<Mutex<Groups>>);

#[derive(Debug, Default)]
struct Groups {
    joined: u64,
    by_name: BTreeMap<Arc<str>, Group>,
}

#[derive(Debug)]
struct Group {
    /// Without a drift of its own: it knows the smallest watermark.
    drift: DriftGroup<u64>,
    members: usize,
}

impl DriftGroups {
    /// Makes a set of groups that has no member.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn join(&self, limit: &DriftLimit) -> Member {
        let mut groups = self.lock();
        groups.joined += 1;
        let id = groups.joined;
        let empty = || Group { drift: DriftGroup::new(Duration::ZERO), members: 0 };
        groups.by_name.entry(Arc::clone(&limit.group)).or_insert_with(empty).members += 1;
        Member { groups: self.clone(), limit: limit.clone(), id }
    }

    /// Held for a few comparisons, once a tick.
    fn lock(&self) -> MutexGuard<'_, Groups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subtask in its group; it leaves when dropped, however its task ends.
#[derive(Debug)]
pub(crate) struct Member {
    groups: DriftGroups,
    limit: DriftLimit,
    id: u64,
}

impl Member {
    /// Reports, and returns how far this member may go.
    pub(crate) fn report(&self, report: DriftReport) -> Timestamp {
        let mut groups = self.groups.lock();
        let Some(group) = groups.by_name.get_mut(&self.limit.group) else { return Timestamp::MAX };
        group.drift.report(self.id, report);
        group.drift.allowed().saturating_add(self.limit.max_drift)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut groups = self.groups.lock();
        let Some(group) = groups.by_name.get_mut(&self.limit.group) else { return };
        group.drift.leave(&self.id);
        group.members -= 1;
        if group.members == 0 {
            groups.by_name.remove(&self.limit.group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(group: &str, max_drift: u64) -> DriftLimit {
        DriftLimit { group: group.into(), max_drift: Duration::from_millis(max_drift) }
    }

    /// [TIM-17]
    #[test]
    fn members_of_a_group_share_its_minimum_and_keep_their_own_limits() {
        let groups = DriftGroups::new();
        let (first, second) = (groups.join(&limit("g", 10)), groups.clone().join(&limit("g", 100)));
        let other = groups.join(&limit("another", 1));
        assert_eq!(first.report(DriftReport::At(Timestamp(42))), Timestamp(52));
        assert_eq!(second.report(DriftReport::At(Timestamp(44))), Timestamp(142));
        assert_eq!(other.report(DriftReport::Idle), Timestamp::MAX);
        drop(first);
        assert_eq!(
            second.report(DriftReport::At(Timestamp(44))),
            Timestamp(144),
            "nobody waits for one that left"
        );
        drop((second, other));
        assert!(groups.lock().by_name.is_empty());
    }
}
