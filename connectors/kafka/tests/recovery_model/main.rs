//! Every order in which processes, brokers and the store can act around a crash, over the code that decides.
//!
//! ```text
//!  two or three processes ── lease, choose, inspect, note, abort, fence, commit, resolved ──▶ log, created only if free
//!    each may stand still                write, pre-commit, checkpoint, commit, resolved ──▶ coordinator: times out,
//!    anywhere, or for ever                                                                   somebody initialises an id
//! ```
//! What is checked is the real code: the fate of a transaction, the decision over all, what an answer to `EndTxn` means,
//! which ids are fenced, whether a transaction is prepared, and which checkpoint the engine chooses from its log. Made up
//! are the coordinator, the log's puts and the order of the steps, which is that of the engine's recovery and drivers.
//!
//! A crash is a process that does not go on; a zombie one that does. Both are in every order, as the model knows no
//! difference: whoever has not ended may act next or never.

mod broker;
mod names;
mod process;
mod promises;
mod store;
mod world;

use std::num::NonZeroUsize;

use stateright::{Checker, HasDiscoveries, Model};

use promises::{
    ALWAYS, COMES_TO_AN_END, COMMITTED_AFTER_TAKEOVER, FENCED_OFF, NO_DOUBLE, NO_EARLY, NO_LOSS, ROLLED_BACK,
    STOP_HAS_CAUSE, TORN, UNTOLD, ZOMBIE,
};
use world::{Recovery, Terms, WHOLE};

/// Goes through every state there is. Prints how many, and how long it took.
fn explored(what: &str, terms: Terms) -> impl Checker<Terms> {
    explored_until(what, terms, HasDiscoveries::All)
}

fn explored_until(what: &str, terms: Terms, enough: HasDiscoveries) -> impl Checker<Terms> {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let checker = terms.checker().threads(threads).finish_when(enough).spawn_bfs().join();
    println!(
        "{what}: {} states, {} of them different, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    checker
}

/// Checks that every promise holds, and that what is named was reached.
fn holds(what: &str, terms: Terms, reached: &[&'static str]) {
    let checker = explored(what, terms);
    for promise in ALWAYS.into_iter().chain([COMES_TO_AN_END]) {
        if let Some(path) = checker.discovery(promise) {
            let world = path.last_state().clone();
            panic!("{what}: not kept: {promise}: by {:?}, to {world:#?}", path.into_actions());
        }
    }
    for place in reached {
        assert!(checker.discovery(place).is_some(), "{what}: never reached: {place}");
    }
}

/// Checks that a promise is broken, and prints by which steps. Looks no further then: without its protections a world may
/// have no end.
fn breaks(what: &str, terms: Terms, promise: &'static str) {
    let checker = explored_until(what, terms, HasDiscoveries::AllOf([promise].into()));
    let Some(path) = checker.discovery(promise) else { panic!("{what}: {promise} holds without it") };
    let steps = path.into_actions().iter().map(|action| format!("{action:?}")).collect::<Vec<_>>();
    println!("{what}: not kept: {promise}, by {}", steps.join(", "));
}

/// [KSK-11] [KSK-12] [KSK-16] [KSK-18] in the model: crashes and zombies anywhere, checkpoints declined.
#[test]
fn crashes_and_zombies_lose_and_double_nothing() {
    let terms = Terms { declines: 1, ..WHOLE };
    holds("crashes", terms, &[COMMITTED_AFTER_TAKEOVER, ZOMBIE]);
}

/// Without timeouts and strangers nobody ever has to ask a human.
#[test]
fn crashes_alone_never_stop_a_start() {
    let checker = explored("crashes alone", Terms { has_markers: false, ..WHOLE });
    assert!(checker.discovery(TORN).is_none());
    assert!(checker.discovery(UNTOLD).is_none());
}

/// [KSK-13] [KSK-14] in the model: a broker drops transactions, and our clock sees it coming, or not.
#[test]
fn timeouts_are_rolled_back_or_told_to_be_torn() {
    let terms = Terms { timeouts: 1, becomes_late: true, has_markers: false, ..WHOLE };
    holds("timeouts", terms, &[COMMITTED_AFTER_TAKEOVER, ROLLED_BACK, TORN, ZOMBIE]);
}

/// [KSK-15] in the model: somebody initialises an id, and the marker decides.
#[test]
fn marker_decides_where_somebody_has_initialised_an_id() {
    // That nobody stops for want of an answer is one of the promises.
    holds("strangers, markers", Terms { strangers: 1, ..WHOLE }, &[ROLLED_BACK, COMMITTED_AFTER_TAKEOVER]);
}

/// [KSK-15] in the model: without a marker a start stops, and guesses nothing.
#[test]
fn without_markers_a_start_stops_where_somebody_has_initialised_an_id() {
    let terms = Terms { strangers: 1, has_markers: false, ..WHOLE };
    holds("strangers, no markers", terms, &[UNTOLD, COMMITTED_AFTER_TAKEOVER]);
}

/// A store that does not look whether a number is free lets a zombie complete a checkpoint.
#[test]
fn without_the_condition_of_the_put_records_are_published_twice() {
    let unconditional = Terms { is_put_conditional: false, ..WHOLE };
    breaks("puts without condition", unconditional, NO_DOUBLE);
    breaks("puts without condition", unconditional, FENCED_OFF);
}

/// A producer that initialises its id aborts what waits for its commit.
#[test]
fn initialising_ids_instead_of_recovering_loses_records() {
    breaks("ids initialised instead", Terms { recovery: Recovery::InitInstead, ..WHOLE }, NO_LOSS);
}

/// [KSK-12] in the model: behind an initialisation even careful questions come too late. With markers a start goes back
/// where it should have committed, or finds the checkpoint torn; without, it does not know.
#[test]
fn initialising_ids_before_asking_makes_starts_stop() {
    let first = Terms { recovery: Recovery::InitFirst, ..WHOLE };
    breaks("ids initialised first", Terms { has_markers: false, ..first }, STOP_HAS_CAUSE);
    let checker = explored("ids initialised first", first);
    assert!(checker.discovery(TORN).is_some(), "torn, though no transaction timed out");
}

/// [KSK-07] in the model: a handle of an epoch that is used again publishes what is written under it now.
#[test]
fn epochs_that_are_used_again_publish_early_and_twice() {
    let reused = Terms { has_fresh_epochs: false, is_slot_freed_early: true, has_markers: false, ..WHOLE };
    breaks("epochs used again", reused, NO_EARLY);
    breaks("epochs used again", reused, NO_DOUBLE);
}

/// [KSK-10] in the model: a slot is not free before it is on record that its transaction is visible.
#[test]
fn slots_that_are_freed_before_the_record_make_starts_stop() {
    let early = Terms { is_slot_freed_early: true, has_markers: false, ..WHOLE };
    breaks("slots freed early", early, STOP_HAS_CAUSE);
}

/// [KSK-11] in the model: a second crash during recovery, and a zombie in it.
#[test]
fn second_crash_during_recovery_loses_and_doubles_nothing() {
    let three = Terms { processes: 3, ..WHOLE };
    holds("three processes", three, &[COMMITTED_AFTER_TAKEOVER, ZOMBIE]);
}

/// The larger form: everything that can go wrong, with three processes.
#[test]
#[ignore = "minutes; ./check --long runs it"]
fn second_crash_with_timeouts_and_strangers_loses_and_doubles_nothing() {
    let three = Terms { processes: 3, ..WHOLE };
    let strangers = Terms { strangers: 1, ..three };
    holds("three processes, strangers", strangers, &[COMMITTED_AFTER_TAKEOVER, ROLLED_BACK, ZOMBIE]);
    let timeouts = Terms { timeouts: 1, ..three };
    holds("three processes, timeouts", timeouts, &[COMMITTED_AFTER_TAKEOVER, ROLLED_BACK, ZOMBIE]);
    let declines = Terms { declines: 1, intervals: 3, ..WHOLE };
    holds("three intervals, declines", declines, &[COMMITTED_AFTER_TAKEOVER, ZOMBIE]);
}
