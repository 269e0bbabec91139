//! Write-ahead: each record sent when its checkpoint is complete, in order, with a marker that says so.

mod committers;
mod histories;
mod kind;
mod log;
mod wrapped;

use std::future::Future;

use levada_core::template::{CheckpointCommitter, WriteAheadSink};
use levada_core::{BoxError, Storable};

use crate::history::Histories;
use crate::verify::scenario_list;

pub use committers::*;
pub use histories::*;

/// What the suite must know of a write-ahead sink, its committer and its target.
///
/// Whether records may be repeated is not asked: a committer that
/// [shares the transaction](CheckpointCommitter::shares_transaction) promises that they are not.
pub trait WriteAheadTarget: Sync {
    /// What the sink sends.
    type Item: Storable + Send + Sync + 'static;
    /// The sink.
    type Sink: WriteAheadSink<Self::Item>;
    /// Its committer.
    type Committer: CheckpointCommitter;

    /// Makes the sinks of a process that starts now, one for each subtask, each with its committer: they know nothing of
    /// earlier ones.
    fn sinks(&self, count: u32) -> Vec<(Self::Sink, Self::Committer)>;

    /// Makes the record that stands for a number, always the same.
    fn item(&self, number: u64) -> Self::Item;

    /// Reads the numbers of all visible records, each as often as it is there, in the order in which a reader finds them.
    fn visible(&self) -> impl Future<Output = Result<Vec<u64>, BoxError>> + Send;

    /// Tells whether readers find records in the order in which they were sent.
    fn keeps_order(&self) -> bool {
        true
    }

    /// Tells how many random histories are played.
    fn histories(&self) -> Histories {
        Histories::default()
    }
}

/// Hands the names of the scenarios to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! write_ahead_scenarios {
    ([$($then:tt)*] $($args:tt)*) => {
        $($then)* ! { $($args)*;
            nothing_is_sent_before_its_checkpoint_is_complete
            each_segment_is_sent_once_when_its_checkpoint_is_complete
            lost_notification_is_made_good_by_the_next
            late_and_repeated_notifications_change_nothing
            aborted_checkpoint_drops_nothing
            bounded_end_sends_everything
            records_behind_the_last_checkpoint_are_dropped
            crash_at_every_call_loses_nothing
            crash_at_every_call_of_a_recovery_loses_nothing
            segments_survive_a_change_of_parallelism
            markers_outlive_their_process_and_are_not_confused
            woken_opening_takes_no_marker_of_a_later_one_away
            random_histories_agree_with_the_model
        }
    };
}

/// Makes a test of each scenario for a [`WriteAheadTarget`]. The expression makes an empty target; it is evaluated in each
/// test, inside a tokio runtime, and may `.await`.
#[macro_export]
macro_rules! write_ahead_tests {
    ($target:expr) => {
        $crate::write_ahead_scenarios! { [$crate::scenario_tests] write_ahead, $target }
    };
}

write_ahead_scenarios! { [scenario_list] WriteAheadTarget }
