//! Alignment of barriers: the cases of Flink's `AlignedCheckpointsTest`, and random histories against a model that is
//! recomputed from the whole history after every step.

use std::collections::BTreeSet;

use levada_core::CheckpointId;
use levada_engine::checkpoint::{Alignment, Step};
use proptest::prelude::*;

use self::Event::{Barrier, Cancelled, Ended};
use self::Step::{Aborted, Aligned, Hold, Release};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// Checkpoint, channel.
    Barrier(u64, usize),
    Ended(usize),
    Cancelled(u64),
}

fn id(sequence: u64) -> CheckpointId {
    CheckpointId::new(1, sequence)
}

fn apply(alignment: &mut Alignment, event: Event) -> Vec<Step> {
    match event {
        Barrier(sequence, channel) => alignment.barrier(channel, id(sequence)),
        Ended(channel) => alignment.ended(channel),
        Cancelled(sequence) => alignment.cancelled(id(sequence)),
    }
}

/// Plays events, each with the steps that must follow.
fn play<const N: usize>(channels: usize, script: [(Event, &[Step]); N]) -> Alignment {
    let mut alignment = Alignment::new(channels);
    for (number, (event, steps)) in script.into_iter().enumerate() {
        assert_eq!(apply(&mut alignment, event), steps, "event {number}, {event:?}");
    }
    alignment
}

/// [CHK-07]
#[test]
fn no_barriers_no_holds() {
    play(1, [(Ended(0), &[])]);
    play(4, [(Ended(0), &[]), (Ended(3), &[]), (Ended(1), &[]), (Ended(2), &[])]);
}

/// [CHK-07] Also when several barriers follow each other at once.
#[test]
fn single_channel_is_never_held() {
    play(
        1,
        [
            (Barrier(1, 0), &[Aligned(id(1))]),
            (Barrier(2, 0), &[Aligned(id(2))]),
            (Barrier(3, 0), &[Aligned(id(3))]),
            (Ended(0), &[]),
        ],
    );
}

/// [CHK-07]
#[test]
fn channel_is_held_until_every_channel_has_delivered_the_barrier() {
    play(
        3,
        [
            (Barrier(1, 1), &[Hold(1)]),
            (Barrier(1, 2), &[Hold(2)]),
            (Barrier(1, 0), &[Aligned(id(1)), Release(1), Release(2)]),
            (Barrier(2, 0), &[Hold(0)]),
            (Barrier(2, 1), &[Hold(1)]),
            (Barrier(2, 2), &[Aligned(id(2)), Release(0), Release(1)]),
            (Ended(0), &[]),
            (Ended(1), &[]),
            (Ended(2), &[]),
        ],
    );
}

/// [CHK-07] The jump over checkpoint 2, then over 3.
#[test]
fn newer_barrier_ends_the_alignment_of_an_older_one() {
    play(
        3,
        [
            (Barrier(1, 1), &[Hold(1)]),
            (Barrier(1, 2), &[Hold(2)]),
            (Barrier(1, 0), &[Aligned(id(1)), Release(1), Release(2)]),
            (Barrier(2, 1), &[Hold(1)]),
            (Barrier(2, 0), &[Hold(0)]),
            (Barrier(3, 2), &[Aborted(id(2)), Release(0), Release(1), Hold(2)]),
            (Barrier(3, 0), &[Hold(0)]),
            (Barrier(4, 1), &[Aborted(id(3)), Release(0), Release(2), Hold(1)]),
            (Ended(0), &[]),
            (Ended(2), &[Aligned(id(4)), Release(1)]),
            (Ended(1), &[]),
        ],
    );
}

/// [CHK-07]
#[test]
fn late_and_repeated_barriers_are_ignored() {
    play(
        3,
        [
            (Barrier(2, 0), &[Hold(0)]),
            (Barrier(2, 0), &[]),
            (Barrier(1, 1), &[]),
            (Barrier(2, 1), &[Hold(1)]),
            (Barrier(2, 2), &[Aligned(id(2)), Release(0), Release(1)]),
            (Barrier(2, 2), &[]),
            (Barrier(1, 2), &[]),
        ],
    );
}

/// [CHK-07] Cancellations that come in any order, and one that is missing.
#[test]
fn newer_cancellation_ends_the_alignment_of_an_older_checkpoint() {
    play(
        2,
        [
            (Barrier(1, 0), &[Hold(0)]),
            (Cancelled(3), &[Aborted(id(1)), Release(0), Aborted(id(3))]),
            (Cancelled(2), &[]),
            (Cancelled(3), &[]),
            (Barrier(3, 1), &[]),
        ],
    );
}

/// [CHK-07]
#[test]
fn alignment_starts_with_channels_that_ended_before() {
    play(
        4,
        [
            (Ended(2), &[]),
            (Ended(1), &[]),
            (Barrier(2, 3), &[Hold(3)]),
            (Barrier(2, 0), &[Aligned(id(2)), Release(3)]),
            (Barrier(3, 0), &[Hold(0)]),
            (Barrier(3, 3), &[Aligned(id(3)), Release(0)]),
            (Ended(0), &[]),
            (Barrier(4, 3), &[Aligned(id(4))]),
            (Ended(3), &[]),
        ],
    );
    let mut restored = Alignment::with_ended(4, [1, 2]);
    assert_eq!(restored.barrier(3, id(2)), [Hold(3)]);
    assert_eq!(restored.barrier(0, id(2)), [Aligned(id(2)), Release(3)]);
}

/// [CHK-07] One channel ends before its barrier, one behind it.
#[test]
fn end_of_a_channel_during_alignment_completes_it_if_the_rest_delivered() {
    play(
        3,
        [
            (Barrier(2, 2), &[Hold(2)]),
            (Barrier(2, 0), &[Hold(0)]),
            (Ended(1), &[Aligned(id(2)), Release(0), Release(2)]),
            (Ended(2), &[]),
            (Ended(0), &[]),
        ],
    );
    play(2, [(Ended(0), &[]), (Barrier(6, 1), &[Aligned(id(6))]), (Ended(1), &[])]);
}

/// [CHK-07]
#[test]
fn channel_that_delivers_its_barrier_and_ends_counts_once() {
    let alignment = play(3, [(Barrier(2, 0), &[Hold(0)]), (Barrier(2, 1), &[Hold(1)]), (Ended(1), &[])]);
    assert_eq!(alignment.aligning(), Some(id(2)));
    let mut alignment = alignment;
    assert_eq!(alignment.barrier(2, id(2)), [Aligned(id(2)), Release(0), Release(1)]);
    assert_eq!(alignment.aligning(), None);
}

/// [CHK-07]
#[test]
fn barriers_after_the_end_of_other_channels_align_without_them() {
    play(
        3,
        [
            (Ended(2), &[]),
            (Barrier(6, 0), &[Hold(0)]),
            (Barrier(6, 1), &[Aligned(id(6)), Release(0)]),
            (Ended(1), &[]),
            (Barrier(7, 0), &[Aligned(id(7))]),
        ],
    );
}

/// [CHK-07]
#[test]
fn single_channel_reports_a_cancelled_checkpoint_and_goes_on() {
    play(
        1,
        [
            (Barrier(1, 0), &[Aligned(id(1))]),
            (Barrier(2, 0), &[Aligned(id(2))]),
            (Cancelled(4), &[Aborted(id(4))]),
            (Barrier(5, 0), &[Aligned(id(5))]),
            (Cancelled(6), &[Aborted(id(6))]),
        ],
    );
}

/// [CHK-07] Instead of the last barrier, before the first one, and several times.
#[test]
fn cancellation_releases_everything_once_and_its_barriers_are_ignored() {
    play(
        3,
        [
            (Barrier(2, 0), &[Hold(0)]),
            (Barrier(2, 2), &[Hold(2)]),
            (Cancelled(2), &[Aborted(id(2)), Release(0), Release(2)]),
            (Barrier(3, 1), &[Hold(1)]),
            (Barrier(3, 2), &[Hold(2)]),
            (Barrier(3, 0), &[Aligned(id(3)), Release(1), Release(2)]),
            (Cancelled(4), &[Aborted(id(4))]),
            (Barrier(4, 2), &[]),
            (Barrier(4, 0), &[]),
            (Barrier(5, 2), &[Hold(2)]),
            (Barrier(5, 1), &[Hold(1)]),
            (Barrier(5, 0), &[Aligned(id(5)), Release(1), Release(2)]),
            (Cancelled(6), &[Aborted(id(6))]),
            (Cancelled(6), &[]),
            (Barrier(6, 0), &[]),
        ],
    );
}

/// [CHK-07]
#[test]
fn barrier_of_a_cancelled_checkpoint_does_not_disturb_the_next_one() {
    play(
        3,
        [
            (Barrier(1, 1), &[Hold(1)]),
            (Cancelled(1), &[Aborted(id(1)), Release(1)]),
            (Barrier(2, 1), &[Hold(1)]),
            (Barrier(1, 2), &[]),
            (Barrier(2, 0), &[Hold(0)]),
            (Barrier(2, 2), &[Aligned(id(2)), Release(0), Release(1)]),
        ],
    );
}

/// [CHK-07]
#[test]
fn cancellation_of_a_checkpoint_that_a_newer_one_replaced_is_ignored() {
    play(
        3,
        [
            (Barrier(3, 1), &[Hold(1)]),
            (Barrier(3, 0), &[Hold(0)]),
            (Barrier(5, 2), &[Aborted(id(3)), Release(0), Release(1), Hold(2)]),
            (Cancelled(3), &[]),
            (Barrier(5, 0), &[Hold(0)]),
            (Barrier(5, 1), &[Aligned(id(5)), Release(0), Release(2)]),
            (Cancelled(5), &[]),
        ],
    );
}

/// [CHK-07] [CHK-01]
#[test]
fn barrier_of_a_later_attempt_is_newer() {
    let mut alignment = Alignment::new(2);
    assert_eq!(alignment.barrier(0, CheckpointId::new(1, 9)), [Hold(0)]);
    let later = CheckpointId::new(2, 1);
    assert_eq!(alignment.barrier(1, later), [Aborted(id(9)), Release(0), Hold(1)]);
    assert_eq!(alignment.barrier(0, later), [Aligned(later), Release(1)]);
}

/// What must be true after a history, found by looking at all of it.
struct Model<'a> {
    channels: usize,
    history: &'a [Event],
}

impl Model<'_> {
    fn ended_at(&self, channel: usize) -> Option<usize> {
        self.history.iter().position(|event| *event == Ended(channel))
    }

    /// When the channel delivered the barrier, if it was open then.
    fn delivered_at(&self, sequence: u64, channel: usize) -> Option<usize> {
        let at = self.history.iter().position(|event| *event == Barrier(sequence, channel))?;
        self.ended_at(channel).is_none_or(|ended| at < ended).then_some(at)
    }

    fn first_barrier(&self, sequence: u64) -> Option<usize> {
        (0..self.channels).filter_map(|channel| self.delivered_at(sequence, channel)).min()
    }

    fn cancelled_at(&self, sequence: u64) -> Option<usize> {
        self.history.iter().position(|event| *event == Cancelled(sequence))
    }

    /// When a checkpoint was first heard of.
    fn known_at(&self, sequence: u64) -> Option<usize> {
        self.first_barrier(sequence).into_iter().chain(self.cancelled_at(sequence)).min()
    }

    /// When a newer checkpoint was first heard of.
    fn replaced_at(&self, sequence: u64) -> Option<usize> {
        (sequence + 1..=MAX_SEQUENCE).filter_map(|newer| self.known_at(newer)).min()
    }

    /// When the last of all channels had delivered the barrier or ended.
    fn ready_at(&self, sequence: u64) -> Option<usize> {
        let first_barrier = self.first_barrier(sequence)?;
        let settled = (0..self.channels).map(|channel| {
            let delivered = self.delivered_at(sequence, channel);
            delivered.into_iter().chain(self.ended_at(channel)).min()
        });
        settled.collect::<Option<Vec<_>>>()?.into_iter().chain([first_barrier]).max()
    }

    /// When and how a checkpoint ended here, and so far.
    fn outcome(&self, sequence: u64) -> Option<(usize, Step)> {
        let known = self.known_at(sequence)?;
        let stopped = self.cancelled_at(sequence).into_iter().chain(self.replaced_at(sequence)).min();
        if self.replaced_at(sequence).is_some_and(|replaced| replaced < known) {
            return None;
        }
        match (self.ready_at(sequence), stopped) {
            (Some(ready), None) => Some((ready, Aligned(id(sequence)))),
            (Some(ready), Some(stopped)) if ready < stopped => Some((ready, Aligned(id(sequence)))),
            (_, Some(stopped)) => Some((stopped, Aborted(id(sequence)))),
            (None, None) => None,
        }
    }

    /// Outcomes that the last event of the history brought, by id.
    fn outcomes_now(&self) -> Vec<Step> {
        let last = self.history.len() - 1;
        let outcomes = (1..=MAX_SEQUENCE).filter_map(|sequence| self.outcome(sequence));
        outcomes.filter(|(at, _)| *at == last).map(|(_, step)| step).collect()
    }

    fn held(&self) -> BTreeSet<usize> {
        let newest = (1..=MAX_SEQUENCE).rev().find(|sequence| self.known_at(*sequence).is_some());
        let waits = newest.filter(|sequence| self.outcome(*sequence).is_none());
        let delivered =
            |channel: &usize| waits.is_some_and(|sequence| self.delivered_at(sequence, *channel).is_some());
        (0..self.channels).filter(delivered).collect()
    }
}

const MAX_SEQUENCE: u64 = 5;

fn events(channels: usize) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        12 => (1..=MAX_SEQUENCE, 0..channels).prop_map(|(sequence, channel)| Barrier(sequence, channel)),
        1 => (0..channels).prop_map(Ended),
        1 => (1..=MAX_SEQUENCE).prop_map(Cancelled),
    ];
    // Mostly in order, as channels deliver; a few neighbours change places.
    let in_order = prop::collection::vec(event, 0..20).prop_map(|mut events| {
        events.sort_by_key(|event| match event {
            Barrier(sequence, _) | Cancelled(sequence) => *sequence,
            Ended(channel) => *channel as u64 + 2,
        });
        events
    });
    (in_order, prop::collection::vec(any::<prop::sample::Index>(), 0..20)).prop_map(|(mut events, swaps)| {
        let pairs = events.len().saturating_sub(1);
        for swap in swaps.into_iter().filter(|_| pairs > 0) {
            let at = swap.index(pairs);
            events.swap(at, at + 1);
        }
        events
    })
}

fn histories() -> impl Strategy<Value = (usize, Vec<Event>)> {
    (1..5_usize).prop_flat_map(|channels| (Just(channels), events(channels)))
}

/// The steps must keep their promises whatever the model says: no hold of a held channel, no release of another.
fn follow(held: &mut BTreeSet<usize>, steps: &[Step]) {
    for step in steps {
        match step {
            Hold(channel) => assert!(held.insert(*channel), "held twice: {steps:?}"),
            Release(channel) => assert!(held.remove(channel), "released twice: {steps:?}"),
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// [CHK-07]
    #[test]
    fn alignment_does_what_the_whole_history_asks_for((channels, history) in histories()) {
        let mut alignment = Alignment::new(channels);
        let mut held = BTreeSet::new();
        for (number, event) in history.iter().enumerate() {
            let steps = apply(&mut alignment, *event);
            let model = Model { channels, history: &history[..=number] };
            follow(&mut held, &steps);
            let outcomes: Vec<_> =
                steps.iter().copied().filter(|step| matches!(step, Aligned(_) | Aborted(_))).collect();
            prop_assert_eq!(outcomes, model.outcomes_now(), "event {}, {:?}", number, event);
            prop_assert_eq!(&held, &model.held(), "event {}, {:?}", number, event);
        }
    }
}
