//! What has been sent and noted in truth: the suite stands between the driver and both.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_core::template::Marker;

use crate::failure::Finding;

#[derive(Debug, Default)]
pub(super) struct Truth {
    /// Every segment whose sending had its effect, each as often as that happened.
    pub(super) sent: Vec<Marker>,
    committed: BTreeSet<Marker>,
    forgotten: BTreeSet<Marker>,
    finding: Option<Finding>,
}

/// The truth of one history. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub(super) struct Log(Arc<Mutex<Truth>>);

impl Log {
    // Nobody panics with the lock held.
    pub(super) fn truth(&self) -> MutexGuard<'_, Truth> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Truth {
    fn find(&mut self, finding: Finding) {
        // The first one counts: what follows may come of it.
        self.finding.get_or_insert(finding);
    }

    pub(super) fn take_finding(&mut self) -> Option<Finding> {
        self.finding.take()
    }

    pub(super) fn sent(&mut self, marker: &Marker, is_marked: bool) {
        self.sent.push(marker.clone());
        if is_marked {
            self.committed.insert(marker.clone());
        }
    }

    pub(super) fn refused(&mut self, finding: Finding) {
        self.find(finding);
    }

    pub(super) fn committed(&mut self, marker: &Marker) {
        self.committed.insert(marker.clone());
    }

    pub(super) fn forgotten(&mut self, markers: &[Marker]) {
        self.forgotten.extend(markers.iter().cloned());
    }

    /// Compares an answer of the committer with the truth.
    pub(super) fn answered(&mut self, marker: &Marker, answer: bool) {
        let truth = self.committed.contains(marker);
        if answer != truth && !self.forgotten.contains(marker) {
            self.find(Finding::answer(format!("whether {marker} is committed"), truth, answer));
        }
    }
}
