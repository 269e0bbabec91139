//! Write-ahead as a job of the suite.

use std::collections::BTreeMap;
use std::time::Duration;

use levada_core::template::CheckpointCommitter;
use levada_core::{CheckpointId, SinkContext};
use levada_engine::driver::{Retry, WriteAheadDriver};

use super::WriteAheadTarget;
use super::log::Log;
use super::wrapped::{Noter, Sender};
use crate::failure::Finding;
use crate::fuse::Fuse;
use crate::job::{Complete, Kind};
use crate::ledger::Ledger;
use crate::numbers::Range;

pub(super) struct WriteAhead<'a, T> {
    target: &'a T,
    log: Log,
}

impl<'a, T> WriteAhead<'a, T> {
    pub(super) fn new(target: &'a T) -> Self {
        Self { target, log: Log::default() }
    }
}

/// For the last notification alone; a process that has died in it is tried as often.
fn retry() -> Retry {
    Retry { first_pause: Duration::from_millis(1), longest_pause: Duration::from_millis(20), attempts: 6 }
}

/// Reads what is visible of a history.
pub(super) async fn seen<T: WriteAheadTarget>(target: &T, range: Range) -> Result<Vec<u64>, Finding> {
    Ok(range.records(target.visible().await.map_err(Finding::Target)?))
}

fn counted(records: &[u64]) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    records.iter().for_each(|record| *counts.entry(*record).or_default() += 1);
    counts
}

impl<T: WriteAheadTarget> WriteAhead<'_, T> {
    /// Checks that what is visible is what was sent, as often as it was sent.
    fn check_sent(&self, seen: &[u64], ledger: &Ledger) -> Result<(), Finding> {
        let sent = self.log.truth().sent.clone();
        let sent = sent.iter().flat_map(|marker| ledger.interval(marker.subtask, marker.checkpoint));
        let sent = sent.copied().collect::<Vec<_>>();
        let (visible, expected) = (counted(seen), counted(&sent));
        let differing = |is_wrong: fn(usize, usize) -> bool| {
            let records = visible.keys().chain(expected.keys());
            let count = |counts: &BTreeMap<u64, usize>, record| counts.get(record).copied().unwrap_or(0);
            let wrong = records.filter(|record| is_wrong(count(&visible, record), count(&expected, record)));
            wrong.copied().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        let lost = differing(|visible, expected| visible < expected);
        if !lost.is_empty() {
            return Err(Finding::Lost { records: lost });
        }
        let doubled = differing(|visible, expected| visible > expected);
        if !doubled.is_empty() {
            return Err(Finding::Doubled { records: doubled });
        }
        match seen.iter().zip(&sent).find(|(found, expected)| found != expected) {
            Some((found, expected)) if self.target.keeps_order() => {
                Err(Finding::OutOfOrder { record: *expected, after: *found })
            }
            _ => Ok(()),
        }
    }
}

impl<T: WriteAheadTarget> Kind for WriteAhead<'_, T> {
    type Item = T::Item;
    type Driver = WriteAheadDriver<T::Item, Sender<T::Sink>, Noter<T::Committer>>;
    type Coordinator = ();

    const OPENING_PUBLISHES: bool = false;

    fn start(&self, fuse: &Fuse, parallelism: u32) -> ((), Vec<Self::Driver>) {
        let drivers = self.target.sinks(parallelism).into_iter().map(|(sink, committer)| {
            let (fuse, log, marks) = (fuse.clone(), self.log.clone(), committer.shares_transaction());
            let sink = Sender { sink, marks, fuse: fuse.clone(), log: log.clone() };
            WriteAheadDriver::new(sink, Noter { committer, fuse, log }, retry())
        });
        ((), drivers.collect())
    }

    fn item(&self, number: u64) -> T::Item {
        self.target.item(number)
    }

    async fn recover(
        &self,
        (): (),
        _ctx: SinkContext,
        _first: CheckpointId,
        _complete: &[Complete],
    ) -> Result<(), Finding> {
        Ok(())
    }

    async fn check(&self, range: Range, ledger: &Ledger) -> Result<(), Finding> {
        if let Some(finding) = self.log.truth().take_finding() {
            return Err(finding);
        }
        let seen = seen(self.target, range).await?;
        if self.target.sinks(1).iter().all(|(_, committer)| committer.shares_transaction()) {
            Ledger::check_once(&seen)?;
        }
        ledger.check_bounds(&seen)?;
        self.check_sent(&seen, ledger)
    }

    async fn check_end(&self) -> Result<(), Finding> {
        Ok(())
    }
}
