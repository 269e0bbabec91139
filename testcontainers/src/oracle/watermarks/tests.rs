//! The judge by examples, and on random histories against a model that recomputes everything from scratch.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Event, Misjudged, ViolationKind, WatermarkJudge, watermarks};

type Events = Vec<Event<u8>>;

fn strict() -> WatermarkJudge {
    WatermarkJudge::new().bounded_by_splits().splits_keep_promises()
}

fn record(split: u8, timestamp: i64) -> Event<u8> {
    Event::Record { split, timestamp, late: false }
}

fn late(split: u8, timestamp: i64) -> Event<u8> {
    Event::Record { split, timestamp, late: true }
}

fn split_watermark(split: u8, watermark: i64) -> Event<u8> {
    Event::SplitWatermark { split, watermark }
}

fn bounded(events: impl IntoIterator<Item = Event<u8>>) -> Vec<(usize, ViolationKind<u8>)> {
    violations(WatermarkJudge::new().bounded_by_splits().judge(events))
}

fn violations(judged: Result<super::Judged, Misjudged<u8>>) -> Vec<(usize, ViolationKind<u8>)> {
    match judged {
        Ok(_) => Vec::new(),
        Err(misjudged) => misjudged.violations().iter().map(|v| (v.place, v.kind.clone())).collect(),
    }
}

/// [TIM-01] A watermark promises no more records at or before it, of any split.
#[test]
fn a_record_at_the_watermark_is_late_and_one_after_it_is_not() {
    watermarks([Event::Watermark(10), record(0, 11)]).unwrap();
    let told = violations(watermarks([record(0, 3), Event::Watermark(10), record(1, 10), record(0, 9)]));
    assert_eq!(
        told,
        [
            (2, ViolationKind::LateUndeclared { split: 1, timestamp: 10, watermark: 10 }),
            (3, ViolationKind::LateUndeclared { split: 0, timestamp: 9, watermark: 10 }),
        ]
    );
}

/// [TIM-11]
#[test]
fn a_late_record_must_be_declared_and_only_a_late_one() {
    let judged = watermarks([Event::Watermark(10), late(0, 10), late(0, 2), record(0, 11)]).unwrap();
    assert_eq!((judged.records, judged.late, judged.watermarks, judged.last), (3, 2, 1, Some(10)));
    let told = violations(watermarks([late(0, 1), Event::Watermark(10), late(0, 11)]));
    assert_eq!(
        told,
        [
            (0, ViolationKind::DeclaredButNotLate { split: 0, timestamp: 1, watermark: None }),
            (2, ViolationKind::DeclaredButNotLate { split: 0, timestamp: 11, watermark: Some(10) }),
        ]
    );
}

/// [TIM-11] Lateness is judged by the highest watermark told, also after one that went back.
#[test]
fn a_watermark_never_goes_back() {
    watermarks::<u8>([Event::Watermark(5), Event::Watermark(5), Event::Watermark(6)]).unwrap();
    let told = violations(watermarks([Event::Watermark(5), Event::Watermark(4), record(0, 5)]));
    assert_eq!(
        told,
        [
            (1, ViolationKind::WentBack { from: 5, to: 4 }),
            (2, ViolationKind::LateUndeclared { split: 0, timestamp: 5, watermark: 5 }),
        ]
    );
    let told = violations(watermarks([split_watermark(3, 5), split_watermark(4, 1), split_watermark(3, 4)]));
    assert_eq!(told, [(2, ViolationKind::SplitWentBack { split: 3, from: 5, to: 4 })]);
}

/// [TIM-09]
#[test]
fn the_slowest_active_split_holds_the_stream() {
    let events = [split_watermark(0, 5), split_watermark(1, 9)];
    assert_eq!(bounded([events.as_slice(), &[Event::Watermark(5)]].concat()), []);
    assert_eq!(
        bounded([events.as_slice(), &[Event::Watermark(6)]].concat()),
        [(2, ViolationKind::PassedSplits { watermark: 6, allowed: Some(5) })]
    );
}

/// [TIM-09]
#[test]
fn a_split_that_reported_nothing_holds_the_stream_at_the_minimum() {
    let told = bounded([Event::SplitAdded(1), split_watermark(0, 5), Event::Watermark(5)]);
    assert_eq!(told, [(2, ViolationKind::PassedSplits { watermark: 5, allowed: None })]);
    let told =
        bounded([Event::SplitAdded(1), split_watermark(0, 5), Event::SplitIdle(1), Event::Watermark(5)]);
    assert_eq!(told, []);
}

/// [TIM-09]
#[test]
fn without_splits_there_is_no_watermark() {
    let told = bounded([Event::Watermark(5)]);
    assert_eq!(told, [(0, ViolationKind::PassedSplits { watermark: 5, allowed: None })]);
    let told = bounded([split_watermark(0, 5), Event::SplitRemoved(0), Event::Watermark(5)]);
    assert_eq!(told, [(2, ViolationKind::PassedSplits { watermark: 5, allowed: None })]);
}

/// [TIM-10] In whatever order they became idle.
#[test]
fn a_stream_that_becomes_idle_has_told_the_highest_of_its_splits() {
    for order in [[0, 1], [1, 0]] {
        let splits = [split_watermark(0, 2), split_watermark(1, 5)];
        let idle = order.map(Event::SplitIdle);
        let ends = |end: &[Event<u8>]| bounded([&splits, &idle, end].concat());
        assert_eq!(ends(&[Event::Watermark(5), Event::Idle]), []);
        assert_eq!(
            ends(&[Event::Watermark(2), Event::Idle]),
            [(5, ViolationKind::IdleUnflushed { watermark: Some(2), reached: 5 })]
        );
        assert_eq!(
            ends(&[Event::Watermark(6)]),
            [(4, ViolationKind::PassedSplits { watermark: 6, allowed: Some(5) })]
        );
    }
}

/// [TIM-09] [TIM-10]
#[test]
fn a_stream_is_idle_only_when_no_split_is_active() {
    let told = bounded([Event::SplitAdded(0), Event::SplitAdded(1), Event::SplitIdle(0), Event::Idle]);
    assert_eq!(told, [(3, ViolationKind::IdleTooSoon { active: 1 })]);
    assert_eq!(bounded([Event::Idle]), [], "idle at once without splits");
    assert_eq!(bounded([Event::SplitAdded(0), Event::SplitIdle(0), Event::Idle]), []);
}

/// [TIM-11]
#[test]
fn a_split_that_comes_back_holds_the_stream_where_it_is() {
    let mut events = vec![split_watermark(0, 2), split_watermark(1, 9), Event::SplitIdle(0)];
    events.extend([Event::Watermark(9), split_watermark(0, 4), late(0, 5), Event::Watermark(9)]);
    assert_eq!(bounded(events.clone()), []);
    events.extend([split_watermark(1, 12), Event::Watermark(10)]);
    assert_eq!(bounded(events), [(8, ViolationKind::PassedSplits { watermark: 10, allowed: Some(4) })]);
}

/// [TIM-12] [TIM-16]
#[test]
fn finished_splits_are_left_out_until_all_are_finished() {
    let mut events = vec![split_watermark(0, 5), split_watermark(1, 9), Event::SplitFinished(0)];
    events.push(Event::Watermark(9));
    assert_eq!(bounded(events.clone()), []);
    events.extend([Event::SplitIdle(1), Event::Watermark(i64::MAX)]);
    assert_eq!(bounded(events), [(5, ViolationKind::PassedSplits { watermark: i64::MAX, allowed: Some(9) })]);
    let ended = [split_watermark(0, 5), Event::SplitFinished(0), Event::Watermark(i64::MAX)];
    assert_eq!(bounded(ended), []);
}

/// [TIM-01] A split whose watermark is held back by another may still break its own promise.
#[test]
fn a_split_that_passes_its_own_record_is_seen_when_asked() {
    let events = [split_watermark(0, 5), split_watermark(1, 1), Event::Watermark(1), record(0, 5)];
    watermarks(events.clone()).unwrap();
    let told = violations(WatermarkJudge::new().splits_keep_promises().judge(events));
    assert_eq!(told, [(3, ViolationKind::BehindItsSplit { split: 0, timestamp: 5, watermark: 5 })]);
}

#[test]
fn the_extremes_of_time_are_timestamps_as_others() {
    watermarks([Event::Watermark(i64::MIN), late(0, i64::MIN), record(0, i64::MIN + 1)]).unwrap();
    watermarks([Event::Watermark(i64::MAX), late(0, i64::MAX)]).unwrap();
    watermarks([record(0, i64::MIN)]).unwrap();
}

#[test]
fn a_message_shows_ten_violations_and_the_number_of_the_others() {
    let events = std::iter::once(Event::Watermark(9)).chain((0..12).map(|_| record(7, 1)));
    let message = format!("{:?}", watermarks(events).unwrap_err());
    assert!(message.starts_with(
        "12 violations in 13 events\n  event 1: a record of split 7 at 1 came after watermark 9, not declared late\n"
    ));
    assert!(
        message.ends_with(
            "event 10: a record of split 7 at 1 came after watermark 9, not declared late\n  and 2 more"
        ),
        "{message}"
    );
}

/// The model: each rule as its sentence says it, from the whole history before an event.
mod model {
    use super::Event;

    /// What the model says of an event; what [`super::ViolationKind`] tells beside it follows from the events.
    #[derive(Debug, PartialEq, Eq)]
    pub(super) enum Wrong {
        Late,
        NotLate,
        BehindSplit,
        Back,
        SplitBack,
        Passed,
        IdleTooSoon,
        Unflushed,
    }

    const SPLITS: u8 = 4;

    fn stream_watermark(before: &[Event<u8>]) -> Option<i64> {
        before.iter().filter_map(|event| if let Event::Watermark(w) = event { Some(*w) } else { None }).max()
    }

    /// The events of a split since it was last added or removed.
    fn life(before: &[Event<u8>], split: u8) -> Vec<&Event<u8>> {
        let mut life: Vec<&Event<u8>> = Vec::new();
        for event in before.iter().rev() {
            match event {
                Event::SplitRemoved(s) if *s == split => break,
                Event::SplitAdded(s) if *s == split => {
                    life.push(event);
                    break;
                }
                Event::SplitIdle(s) | Event::SplitActive(s) | Event::SplitFinished(s) if *s == split => {
                    life.push(event);
                }
                Event::SplitWatermark { split: s, .. } if *s == split => life.push(event),
                _ => {}
            }
        }
        life
    }

    fn split_watermark(before: &[Event<u8>], split: u8) -> Option<i64> {
        let own = |event: &&Event<u8>| match event {
            Event::SplitWatermark { watermark, .. } => Some(*watermark),
            _ => None,
        };
        life(before, split).iter().filter_map(own).max()
    }

    fn splits(before: &[Event<u8>], wanted: impl Fn(&Event<u8>) -> bool) -> Vec<u8> {
        (0..SPLITS).filter(|split| life(before, *split).first().is_some_and(|last| wanted(last))).collect()
    }

    fn may_rise_to(before: &[Event<u8>], to: i64) -> bool {
        let exist = splits(before, |_| true);
        let idle = splits(before, |last| matches!(last, Event::SplitIdle(_)));
        let finished = splits(before, |last| matches!(last, Event::SplitFinished(_)));
        let active: Vec<u8> = exist
            .iter()
            .copied()
            .filter(|split| !idle.contains(split) && !finished.contains(split))
            .collect();
        let reached = |split: &u8| split_watermark(before, *split).is_some_and(|own| own >= to);
        if exist.is_empty() {
            false
        } else if finished.len() == exist.len() {
            true
        } else if active.is_empty() {
            idle.iter().any(reached)
        } else {
            active.iter().all(reached)
        }
    }

    fn idle(before: &[Event<u8>]) -> Option<Wrong> {
        let exist = splits(before, |_| true);
        let resting = splits(before, |last| matches!(last, Event::SplitIdle(_) | Event::SplitFinished(_)));
        if resting.len() < exist.len() {
            return Some(Wrong::IdleTooSoon);
        }
        let idle = splits(before, |last| matches!(last, Event::SplitIdle(_)));
        let highest = idle.iter().filter_map(|split| split_watermark(before, *split)).max();
        (highest > stream_watermark(before)).then_some(Wrong::Unflushed)
    }

    pub(super) fn wrongs(events: &[Event<u8>]) -> Vec<(usize, Wrong)> {
        let mut wrongs = Vec::new();
        for (place, event) in events.iter().enumerate() {
            let before = &events[..place];
            let stream = stream_watermark(before);
            let mut wrong = |is: bool, what: Wrong| {
                if is {
                    wrongs.push((place, what));
                }
            };
            match event {
                Event::Record { split, timestamp, late } => {
                    let own = split_watermark(before, *split);
                    let is_late = stream.is_some_and(|w| *timestamp <= w);
                    wrong(!late && own.is_some_and(|w| *timestamp <= w), Wrong::BehindSplit);
                    wrong(is_late && !late, Wrong::Late);
                    wrong(*late && !is_late, Wrong::NotLate);
                }
                Event::Watermark(to) => {
                    wrong(stream.is_some_and(|w| *to < w), Wrong::Back);
                    wrong(stream.is_none_or(|w| *to > w) && !may_rise_to(before, *to), Wrong::Passed);
                }
                Event::SplitWatermark { split, watermark } => {
                    let own = split_watermark(before, *split);
                    wrong(own.is_some_and(|w| *watermark < w), Wrong::SplitBack);
                }
                Event::Idle => wrongs.extend(idle(before).map(|what| (place, what))),
                _ => {}
            }
        }
        wrongs
    }

    pub(super) fn of(kind: &super::ViolationKind<u8>) -> Wrong {
        use super::ViolationKind as Kind;
        match kind {
            Kind::LateUndeclared { .. } => Wrong::Late,
            Kind::DeclaredButNotLate { .. } => Wrong::NotLate,
            Kind::BehindItsSplit { .. } => Wrong::BehindSplit,
            Kind::WentBack { .. } => Wrong::Back,
            Kind::SplitWentBack { .. } => Wrong::SplitBack,
            Kind::PassedSplits { .. } => Wrong::Passed,
            Kind::IdleTooSoon { .. } => Wrong::IdleTooSoon,
            Kind::IdleUnflushed { .. } => Wrong::Unflushed,
        }
    }
}

fn any_event(random: &mut StdRng) -> Event<u8> {
    let split = random.random_range(0..4);
    let time = random.random_range(0..8);
    match random.random_range(0..12) {
        0..=2 => Event::Record { split, timestamp: time, late: random.random_bool(0.3) },
        3..=4 => Event::Watermark(if random.random_bool(0.1) { i64::MAX } else { time }),
        5 => Event::Idle,
        6 => Event::SplitAdded(split),
        7 => split_watermark(split, time),
        8 => Event::SplitIdle(split),
        9 => Event::SplitActive(split),
        10 => Event::SplitFinished(split),
        _ => Event::SplitRemoved(split),
    }
}

/// [TIM-19] Every kind of violation, and histories without any, must be among them.
#[test]
fn random_histories_are_judged_as_the_naive_model_does() {
    let mut seen = Vec::new();
    let mut in_order = 0;
    for seed in 0..20_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let events: Events = (0..random.random_range(1..14)).map(|_| any_event(&mut random)).collect();
        let judged = violations(strict().judge(events.clone()));
        let judged: Vec<_> = judged.iter().map(|(place, kind)| (*place, model::of(kind))).collect();
        assert_eq!(judged, model::wrongs(&events), "seed {seed}: {events:?}");
        in_order += u32::from(judged.is_empty());
        for (_, wrong) in judged {
            if !seen.contains(&wrong) {
                seen.push(wrong);
            }
        }
    }
    assert_eq!(seen.len(), 8, "{seen:?}");
    assert!(in_order > 1000, "{in_order}");
}

/// A right merge of splits, each with records in order, in steps at random; late records are declared.
fn merged(random: &mut StdRng) -> Events {
    let mut events: Events = (0..3).map(Event::SplitAdded).collect();
    let mut splits: [(Option<i64>, bool); 3] = [(None, false); 3];
    let mut told: Option<i64> = None;
    for _ in 0..random.random_range(10..40) {
        let split = random.random_range(0..3_u8);
        let (watermark, idle) = &mut splits[usize::from(split)];
        if random.random_bool(0.2) {
            *idle = true;
            events.push(Event::SplitIdle(split));
        } else {
            let timestamp = watermark.unwrap_or(0) + random.random_range(1..5);
            events.push(Event::Record { split, timestamp, late: Some(timestamp) <= told });
            *watermark = Some(timestamp);
            *idle = false;
            events.push(split_watermark(split, timestamp));
        }
        let all_idle = splits.iter().all(|(_, idle)| *idle);
        let active = splits.iter().filter(|(_, idle)| !idle).map(|(watermark, _)| *watermark);
        let combined =
            if all_idle { splits.iter().map(|(watermark, _)| *watermark).max() } else { active.min() };
        if let Some(Some(watermark)) = combined
            && Some(watermark) > told
        {
            told = Some(watermark);
            events.push(Event::Watermark(watermark));
        }
        if all_idle {
            events.push(Event::Idle);
        }
    }
    events
}

/// [TIM-19]
#[test]
fn a_right_merge_is_in_order_and_one_watermark_too_high_is_not() {
    let mut hurt = 0;
    for seed in 0..10_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut events = merged(&mut random);
        let judged =
            strict().judge(events.clone()).unwrap_or_else(|misjudged| panic!("seed {seed}: {misjudged}"));
        assert!(judged.records > 0);
        let watermark = |event: &Event<u8>| matches!(event, Event::Watermark(_));
        let Some(place) = events.iter().rposition(watermark) else { continue };
        if let Event::Watermark(told) = &mut events[place] {
            *told += 1;
        }
        let misjudged = strict().judge(events).unwrap_err();
        assert_eq!(misjudged.violations()[0].place, place, "seed {seed}");
        hurt += 1;
    }
    assert!(hurt > 5_000, "{hurt}");
}
