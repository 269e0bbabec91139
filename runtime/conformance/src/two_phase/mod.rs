//! Two-phase commit: each record visible exactly once, when its checkpoint is complete.

mod histories;
mod kind;
mod recoveries;
mod verbs;
mod wrapped;

use std::future::Future;

use levada_core::BoxError;
use levada_core::template::TwoPhaseCommitSink;

use crate::history::Histories;
use crate::verify::scenario_list;

pub use histories::*;
pub use recoveries::*;
pub use verbs::*;

/// What the suite must know of a two-phase sink and its target: the first three functions. The others say what the target
/// can do besides, or what it cannot.
pub trait TwoPhaseTarget: Sync {
    /// What the sink takes.
    type Item: Send + 'static;
    /// The sink.
    type Sink: TwoPhaseCommitSink<Self::Item>;

    /// Makes the sinks of a process that starts now, one for each subtask: they know nothing of earlier ones.
    fn sinks(&self, count: u32) -> Vec<Self::Sink>;

    /// Makes the record that stands for a number, always the same.
    fn item(&self, number: u64) -> Self::Item;

    /// Reads the numbers of all visible records, each as often as it is there, in the order in which a reader finds them.
    fn visible(&self) -> impl Future<Output = Result<Vec<u64>, BoxError>> + Send;

    /// Lists what waits in the target and readers do not see, such as temporary files and open transactions, by names for
    /// messages; `None` when it cannot be told.
    fn left_over(&self) -> impl Future<Output = Result<Option<Vec<String>>, BoxError>> + Send {
        async { Ok(None) }
    }

    /// Lets the target lose a pre-committed transaction, as by a time-out; `false` when it never does.
    fn lose(
        &self,
        handle: &<Self::Sink as TwoPhaseCommitSink<Self::Item>>::Handle,
    ) -> impl Future<Output = Result<bool, BoxError>> + Send {
        let _ = handle;
        async { Ok(false) }
    }

    /// Tells whether readers find the records of each subtask in the order in which they were written.
    fn keeps_order(&self) -> bool {
        true
    }

    /// Tells whether the sink has a `fence`.
    fn fences(&self) -> bool {
        true
    }

    /// Tells whether a commit fails when the transaction was dropped. Where the target cannot tell that from one that was
    /// committed, a loss is silent.
    fn tells_loss(&self) -> bool {
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
macro_rules! two_phase_scenarios {
    ([$($then:tt)*] $($args:tt)*) => {
        $($then)* ! { $($args)*;
            nothing_is_visible_before_its_checkpoint_is_complete
            each_record_is_visible_once_when_its_checkpoint_is_complete
            lost_notification_is_made_good_by_the_next
            late_and_repeated_notifications_change_nothing
            aborted_checkpoint_drops_nothing
            empty_intervals_leave_nothing
            bounded_end_makes_everything_visible
            close_keeps_what_is_pre_committed
            crash_at_every_call_loses_and_doubles_nothing
            crash_at_every_call_of_a_recovery_loses_and_doubles_nothing
            transactions_survive_a_change_of_parallelism
            commit_can_be_repeated_by_anyone
            stored_handle_is_enough_to_commit
            abort_can_be_repeated_by_anyone
            dropped_transaction_is_never_committed_silently
            lost_transaction_is_never_committed_silently
            inspection_tells_what_became_of_each_transaction
            fence_spares_what_is_kept_and_ends_the_rest
            woken_fence_spares_what_later_attempts_have_begun
            fence_of_a_restart_ends_what_its_own_attempt_has_left
            fence_leaves_other_jobs_alone
            random_histories_agree_with_the_model
        }
    };
}

/// Makes a test of each scenario for a [`TwoPhaseTarget`]. The expression makes an empty target; it is evaluated in each
/// test, inside a tokio runtime, and may `.await`.
#[macro_export]
macro_rules! two_phase_tests {
    ($target:expr) => {
        $crate::two_phase_scenarios! { [$crate::scenario_tests] two_phase, $target }
    };
}

two_phase_scenarios! { [scenario_list] TwoPhaseTarget }
