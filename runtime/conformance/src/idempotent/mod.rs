//! Idempotent: writing again changes nothing, so that every replay converges.

mod replays;
mod table;
mod wrapped;

use std::future::Future;

use levada_core::BoxError;
use levada_core::template::IdempotentSink;

use crate::history::Histories;
use crate::verify::scenario_list;

pub use replays::*;

/// What the suite must know of an idempotent sink and its target.
pub trait IdempotentTarget: Sync {
    /// What the sink takes.
    type Item: Send + 'static;
    /// The sink.
    type Sink: IdempotentSink<Self::Item>;

    /// Makes the sinks of a process that starts now, one for each subtask: they know nothing of earlier ones.
    fn sinks(&self, count: u32) -> Vec<Self::Sink>;

    /// Makes the record that writes this version under this key.
    fn item(&self, key: u64, version: u64) -> Self::Item;

    /// Makes the record that deletes this key; `None` when the sink has no deletions.
    fn deletion(&self, key: u64) -> Option<Self::Item> {
        let _ = key;
        None
    }

    /// Reads all keys with their versions, each as often as it is there.
    fn rows(&self) -> impl Future<Output = Result<Vec<(u64, u64)>, BoxError>> + Send;

    /// Tells how many random histories are played.
    fn histories(&self) -> Histories {
        Histories::default()
    }
}

/// Hands the names of the scenarios to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! idempotent_scenarios {
    ([$($then:tt)*] $($args:tt)*) => {
        $($then)* ! { $($args)*;
            last_version_of_each_key_stays
            everything_is_durable_before_the_barrier_goes_on
            bounded_end_writes_everything
            replay_of_any_suffix_converges
            replay_by_other_subtasks_converges
            crash_at_every_call_converges
            random_histories_converge
        }
    };
}

/// Makes a test of each scenario for an [`IdempotentTarget`]. The expression makes an empty target; it is evaluated in
/// each test, inside a tokio runtime, and may `.await`.
#[macro_export]
macro_rules! idempotent_tests {
    ($target:expr) => {
        $crate::idempotent_scenarios! { [$crate::scenario_tests] idempotent, $target }
    };
}

idempotent_scenarios! { [scenario_list] IdempotentTarget }
