//! The handle by which others look at the time of a running job.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_core::{Batch, Clock, Timestamp};

use super::snapshot::{SourceTimes, StageTimes, TimeSnapshot};
use super::source_report::{SourceBook, SourceReport};

/// Shows how time stands in a running job: splits, watermarks, and what is late. [TIM-21]
///
/// Cheap to clone; outlives the job, and then shows its end. Looking costs the job nothing that can be seen: its tasks note
/// changes where they happen, and what changes with every record once a tick.
#[derive(Clone)]
pub struct TimeStatus(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    sources: Mutex<BTreeMap<Subtask, Arc<Mutex<SourceBook>>>>,
    stages: Mutex<BTreeMap<Subtask, StageReport>>,
}

type Subtask = (String, u32);

impl TimeStatus {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Shared { clock, sources: Mutex::default(), stages: Mutex::default() }))
    }

    /// Takes down how time stands now.
    pub fn snapshot(&self) -> TimeSnapshot {
        let at = self.0.clock.now();
        let of_source = |((uid, subtask), book): (&Subtask, &Arc<Mutex<SourceBook>>)| {
            let (uid, subtask) = (uid.clone(), *subtask);
            locked(book).times(at, SourceTimes::new(uid, subtask))
        };
        let of_stage = |((uid, subtask), report): (&Subtask, &StageReport)| StageTimes {
            uid: uid.clone(),
            subtask: *subtask,
            watermark: report.watermark(),
            late: report.late(),
        };
        let sources = locked(&self.0.sources).iter().map(of_source).collect();
        let stages = locked(&self.0.stages).iter().map(of_stage).collect();
        TimeSnapshot { at, sources, stages }
    }

    /// Begins to report for a subtask of a source. What an earlier attempt has counted stays; its splits do not.
    pub(super) fn source(&self, uid: &str, subtask: u32) -> SourceReport {
        let mut sources = locked(&self.0.sources);
        let book = sources.entry((uid.to_owned(), subtask)).or_default();
        SourceReport::begin(Arc::clone(book))
    }

    /// Begins to report for a subtask of another stage.
    pub(crate) fn stage(&self, uid: &str, subtask: u32) -> StageReport {
        let mut stages = locked(&self.0.stages);
        let report = stages.entry((uid.to_owned(), subtask)).or_default().clone();
        report.reached(Timestamp::MIN);
        report
    }
}

impl fmt::Debug for TimeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeStatus").finish_non_exhaustive()
    }
}

/// Held for as long as it takes to note or to copy, never over an await.
pub(super) fn locked<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports for one subtask of a stage behind the source.
#[derive(Debug, Clone)]
pub(crate) struct StageReport(Arc<StageBook>);

#[derive(Debug)]
struct StageBook {
    watermark: AtomicI64,
    late: AtomicU64,
}

impl Default for StageReport {
    fn default() -> Self {
        let watermark = AtomicI64::new(Timestamp::MIN.0);
        Self(Arc::new(StageBook { watermark, late: AtomicU64::new(0) }))
    }
}

// Two numbers that nobody compares with each other: no order is needed between them.
impl StageReport {
    pub(crate) fn reached(&self, watermark: Timestamp) {
        self.0.watermark.store(watermark.0, Ordering::Relaxed);
    }

    pub(crate) fn watermark(&self) -> Timestamp {
        Timestamp(self.0.watermark.load(Ordering::Relaxed))
    }

    pub(crate) fn late(&self) -> u64 {
        self.0.late.load(Ordering::Relaxed)
    }

    pub(crate) fn add_late(&self, records: u64) {
        if records > 0 {
            self.0.late.fetch_add(records, Ordering::Relaxed);
        }
    }

    /// Counts the records of a batch that the watermark has covered.
    pub(crate) fn count_late<T>(&self, batch: &Batch<T>) {
        let watermark = self.watermark();
        if watermark > Timestamp::MIN {
            let is_late =
                |record: &&levada_core::Record<T>| record.timestamp().is_some_and(|at| at <= watermark);
            self.add_late(batch.records().iter().filter(is_late).count() as u64);
        }
    }
}
