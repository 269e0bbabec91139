//! [TPL-18] Each flaw is found, in the scenario that is about it, with the finding that names it.

use levada_conformance::{Finding, idempotent};

use crate::memory::{Flaw, Memory};

/// Lets a flawed sink fail a scenario.
macro_rules! fails {
    ($($test:ident: $flaw:ident, $scenario:ident, $finding:pat,)*) => {$(
        /// [TPL-18]
        #[tokio::test]
        async fn $test() {
            let failure = idempotent::$scenario(&Memory::with(Flaw::$flaw)).await.unwrap_err();
            assert_eq!(failure.scenario(), stringify!($scenario));
            assert!(matches!(failure.finding(), $finding), "{failure}");
        }
    )*};
}

fails! {
    increment_is_found: Increments, last_version_of_each_key_stays, Finding::WrongVersion { .. },
    increment_is_found_by_a_replay: Increments, replay_of_any_suffix_converges, Finding::WrongVersion { .. },
    first_version_that_stays_is_found: KeepsTheFirst, last_version_of_each_key_stays, Finding::WrongVersion { .. },
    insert_is_found: Inserts, last_version_of_each_key_stays, Finding::Doubled { .. },
    insert_is_found_by_other_subtasks: Inserts, replay_by_other_subtasks_converges, Finding::Doubled { .. },
    flush_that_waits_for_the_close_is_found:
        FlushesAtTheCloseOnly, everything_is_durable_before_the_barrier_goes_on, Finding::WrongVersion { .. },
    flush_that_waits_for_the_close_is_found_by_a_crash:
        FlushesAtTheCloseOnly, crash_at_every_call_converges, Finding::WrongVersion { .. },
    flush_that_waits_for_more_is_found:
        FlushesWholeBlocksOnly, bounded_end_writes_everything, Finding::WrongVersion { .. },
    lost_deletion_is_found: LosesDeletions, last_version_of_each_key_stays, Finding::WrongVersion { .. },
    changed_order_is_found: ReversesABatch, last_version_of_each_key_stays, Finding::WrongVersion { .. },
}

/// [TPL-18]
#[tokio::test]
async fn random_histories_find_flaws() {
    for flaw in
        [Flaw::Increments, Flaw::FlushesAtTheCloseOnly, Flaw::FlushesWholeBlocksOnly, Flaw::LosesDeletions]
    {
        let failure = idempotent::random_histories_converge(&Memory::with(flaw)).await.unwrap_err();
        assert!(failure.seed().is_some());
    }
}
