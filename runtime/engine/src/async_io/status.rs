//! The handle by which others look at the calls of a running job.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_core::async_io::CallMetrics;

/// Shows how the async steps of a running job stand. [ASY-15]
///
/// Cheap to clone; outlives the job, and then shows its end.
#[derive(Clone, Default)]
pub struct CallStatus(Arc<Mutex<BTreeMap<Subtask, Shared>>>);

type Subtask = (String, u32);
type Shared = Arc<Mutex<Book>>;

/// How one subtask of an async step stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageCalls {
    /// The step.
    pub uid: String,
    /// The subtask.
    pub subtask: u32,
    /// What was counted since the job was started, and what is there at the moment.
    pub metrics: CallMetrics,
}

#[derive(Debug, Default)]
struct Book {
    /// What earlier attempts have counted.
    before: CallMetrics,
    now: CallMetrics,
}

impl CallStatus {
    /// Takes down how the async steps stand now, by step and subtask.
    pub fn snapshot(&self) -> Vec<StageCalls> {
        let stage = |((uid, subtask), book): (&Subtask, &Shared)| {
            let book = locked(book);
            let mut metrics = book.now;
            metrics.add_counts(&book.before);
            StageCalls { uid: uid.clone(), subtask: *subtask, metrics }
        };
        locked(&self.0).iter().map(stage).collect()
    }

    /// Begins to report for a subtask. What an earlier attempt has counted stays. `late` is how many results the function has
    /// noticed to be late so far.
    pub(crate) fn begin(&self, uid: &str, subtask: u32, late: u64) -> CallReport {
        let mut stages = locked(&self.0);
        let book = Arc::clone(stages.entry((uid.to_owned(), subtask)).or_default());
        {
            let mut book = locked(&book);
            let counted = std::mem::take(&mut book.now);
            book.before.add_counts(&counted);
        }
        CallReport { book, late_before: (subtask == 0).then_some(late) }
    }
}

impl fmt::Debug for CallStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallStatus").finish_non_exhaustive()
    }
}

/// Held for as long as it takes to copy, never over an await.
fn locked<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports for one subtask.
#[derive(Debug)]
pub(crate) struct CallReport {
    book: Shared,
    /// What the function had noticed before; it is one for all subtasks, so the first one tells.
    late_before: Option<u64>,
}

impl CallReport {
    /// Makes a report that nobody looks at.
    pub(crate) fn unseen() -> Self {
        Self { book: Arc::default(), late_before: None }
    }

    pub(crate) fn publish(&self, mut metrics: CallMetrics, late: u64) {
        metrics.late += self.late_before.map_or(0, |before| late.saturating_sub(before));
        locked(&self.book).now = metrics;
    }

    pub(crate) fn metrics(&self) -> CallMetrics {
        locked(&self.book).now
    }
}
