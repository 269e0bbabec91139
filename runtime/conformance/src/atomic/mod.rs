//! Atomic: rows and source positions become visible together, and only for the owner of the splits.

mod claims;
mod commits;
mod deaths;
mod log;
mod wrapped;

use std::future::Future;

use levada_core::{AtomicSink, BoxError};

use crate::history::Histories;
use crate::verify::scenario_list;

pub use claims::*;
pub use commits::*;
pub use deaths::*;

/// What the suite must know of an atomic sink and its target. Stored positions are read by claims alone.
pub trait AtomicTarget: Sync {
    /// What the sink takes.
    type Item: Send + 'static;
    /// The sink.
    type Sink: AtomicSink<Self::Item>;

    /// Makes the sinks of a process that starts now, one for each subtask: they know nothing of earlier ones.
    fn sinks(&self, count: u32) -> Vec<Self::Sink>;

    /// Makes the record that stands for a number, always the same. A sink with keys takes the number as the key.
    fn item(&self, number: u64) -> Self::Item;

    /// Reads the numbers of all visible records, each as often as it is there.
    fn visible(&self) -> impl Future<Output = Result<Vec<u64>, BoxError>> + Send;

    /// Tells how many random histories are played.
    fn histories(&self) -> Histories {
        Histories::default()
    }
}

/// Hands the names of the scenarios to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! atomic_scenarios {
    ([$($then:tt)*] $($args:tt)*) => {
        $($then)* ! { $($args)*;
            nothing_is_visible_before_a_commit
            rows_and_positions_are_committed_together
            interval_without_rows_commits_its_positions
            discard_drops_the_whole_interval
            first_claim_stores_the_start_of_every_split
            subtasks_commit_their_own_splits
            claim_fences_the_earlier_owner
            lost_split_takes_the_whole_interval_with_it
            claim_of_a_split_that_was_lost_is_refused
            sink_stays_usable_when_it_was_fenced
            released_split_goes_on_where_it_was
            splits_move_with_a_change_of_parallelism
            crash_at_every_call_loses_and_doubles_nothing
            commit_that_is_cut_off_is_all_or_nothing
            random_histories_agree_with_the_model
        }
    };
}

/// Makes a test of each scenario for an [`AtomicTarget`]. The expression makes an empty target; it is evaluated in each
/// test, inside a tokio runtime, and may `.await`.
#[macro_export]
macro_rules! atomic_tests {
    ($target:expr) => {
        $crate::atomic_scenarios! { [$crate::scenario_tests] atomic, $target }
    };
}

atomic_scenarios! { [scenario_list] AtomicTarget }
