//! What must hold wherever everybody stands, and what must be reachable for that to mean anything.

use stateright::Property;

use super::broker::WRITERS;
use super::store::Entry;
use super::world::{Phase, Terms, Why, World};

pub(crate) const NO_DOUBLE: &str = "no record is visible twice";
pub(crate) const NO_LOSS: &str = "everything in a resolved checkpoint is visible";
pub(crate) const NO_EARLY: &str = "nothing is visible before its checkpoint is complete";
pub(crate) const STOP_HAS_CAUSE: &str = "a start stops only where something is torn or untold";
pub(crate) const SPARED: &str = "no unresolved and no later id is initialised";
pub(crate) const FENCED_OFF: &str = "whoever was taken over appends nothing";
pub(crate) const COMES_TO_AN_END: &str = "the last process resolves everything, or stops";
pub(crate) const FEW_RESTARTS: &str = "no process starts again and again";

pub(crate) const COMMITTED_AFTER_TAKEOVER: &str = "what waited is committed by the next process";
pub(crate) const ROLLED_BACK: &str = "a checkpoint is rolled back, and its records come again";
pub(crate) const TORN: &str = "a checkpoint is torn";
pub(crate) const UNTOLD: &str = "what became of a transaction is not told";
pub(crate) const ZOMBIE: &str = "a process finds out that it was taken over";

pub(crate) const ALWAYS: [&str; 7] =
    [NO_DOUBLE, NO_LOSS, NO_EARLY, STOP_HAS_CAUSE, SPARED, FENCED_OFF, FEW_RESTARTS];

pub(crate) fn all() -> Vec<Property<Terms>> {
    vec![
        Property::always(NO_DOUBLE, |_, world: &World| {
            world.broker.visible.values().all(|times| *times == 1)
        }),
        Property::always(NO_LOSS, |_, world| has_no_loss(world)),
        Property::always(NO_EARLY, |_, world| has_nothing_early(world)),
        Property::always(STOP_HAS_CAUSE, stops_have_causes),
        Property::always(SPARED, |_, world: &World| world.offences.is_empty()),
        Property::always(FENCED_OFF, |_, world| is_log_in_order(world)),
        Property::always(FEW_RESTARTS, |_, world: &World| {
            world.processes.iter().all(|process| process.restarts <= 4)
        }),
        Property::eventually(COMES_TO_AN_END, |terms: &Terms, world: &World| {
            match world.processes.last().map(|last| &last.phase) {
                Some(Phase::Done) => is_all_visible(terms.intervals, world),
                Some(Phase::Stopped { .. }) => true,
                _ => false,
            }
        }),
        Property::sometimes(COMMITTED_AFTER_TAKEOVER, |_, world| is_committed_after_takeover(world)),
        Property::sometimes(ROLLED_BACK, |terms: &Terms, world: &World| {
            let is_noted = world.store.log.iter().any(|entry| matches!(entry, Entry::RolledBack(_)));
            is_noted && is_all_visible(terms.intervals, world)
        }),
        Property::sometimes(TORN, |_, world| is_stopped(world, |why| why != Why::Unknown)),
        Property::sometimes(UNTOLD, |_, world| is_stopped(world, |why| why == Why::Unknown)),
        Property::sometimes(ZOMBIE, |_, world: &World| {
            world.processes.iter().any(|process| process.phase == Phase::TakenOver && process.sequence > 1)
        }),
    ]
}

fn is_all_visible(up_to: u8, world: &World) -> bool {
    (1..=up_to).all(|interval| {
        (0..WRITERS)
            .all(|subtask| world.broker.visible.get(&(interval, subtask)).is_some_and(|times| *times > 0))
    })
}

fn has_no_loss(world: &World) -> bool {
    world.store.log.iter().all(|entry| match entry {
        Entry::Resolved(id) => {
            world.store.checkpoint(*id).is_none_or(|resolved| is_all_visible(resolved.interval, world))
        }
        _ => true,
    })
}

fn has_nothing_early(world: &World) -> bool {
    let covered = world.store.log.iter().filter_map(|entry| match entry {
        Entry::Checkpoint(checkpoint) => Some(checkpoint.interval),
        _ => None,
    });
    let covered = covered.max().unwrap_or(0);
    world.broker.visible.keys().all(|(interval, _)| *interval <= covered)
}

/// Holds the reason of a stop against what really became of the transactions.
fn stops_have_causes(terms: &Terms, world: &World) -> bool {
    world.processes.iter().all(|process| {
        let Phase::Stopped { why, checkpoint } = &process.phase else { return true };
        let Some(checkpoint) = world.store.checkpoint(*checkpoint) else { return false };
        let ends = checkpoint.handles.iter().map(|handle| world.broker.is_committed(handle.id, handle.epoch));
        let ends: Vec<_> = ends.collect();
        match why {
            Why::Torn => ends.contains(&Some(true)) && ends.contains(&Some(false)),
            Why::VisibleAfterAll => ends.contains(&Some(true)),
            Why::Unknown => !terms.has_markers && world.strangers < terms.strangers,
        }
    })
}

fn is_stopped(world: &World, wanted: impl Fn(Why) -> bool) -> bool {
    let mut phases = world.processes.iter().map(|process| &process.phase);
    phases.any(|phase| matches!(phase, Phase::Stopped { why, .. } if wanted(*why)))
}

/// Behind a lease, the log has entries of its attempt alone.
fn is_log_in_order(world: &World) -> bool {
    let mut newest = 0;
    world.store.log.iter().all(|entry| match entry {
        Entry::Lease(attempt) => {
            let is_higher = u64::from(*attempt) > newest;
            newest = (*attempt).into();
            is_higher
        }
        Entry::Checkpoint(checkpoint) => checkpoint.id.attempt == newest,
        _ => true,
    })
}

/// A checkpoint of one attempt is resolved by another, and with it everything is visible.
fn is_committed_after_takeover(world: &World) -> bool {
    let mut newest = 0;
    world.store.log.iter().any(|entry| {
        if let Entry::Lease(attempt) = entry {
            newest = (*attempt).into();
        }
        matches!(entry, Entry::Resolved(id) if id.attempt < newest)
    })
}
