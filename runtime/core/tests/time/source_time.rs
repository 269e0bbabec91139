use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use levada_core::StreamStatus::{Active, Idle};
use levada_core::time::{
    DriftGroup, DriftReport, Pause, Question, SourceTime, SplitEvent, SplitStatus, TimeAction, TimeSignal,
    WatermarkGenerator, WatermarkStrategy,
};
use levada_core::{StreamElement, Timestamp};

use crate::dice::{Dice, histories};

use SplitEvent::{Answer, EndOfPartition, MarkIdle, Paused, Resumed};

/// One subtask; timestamps may be late by 10 ms, a split is idle after more than 10 ms at its end.
#[derive(Debug)]
struct Scene {
    time: SourceTime<(), u32>,
    asked: Vec<(u32, Question)>,
    paused: BTreeSet<u32>,
}

fn strategy() -> WatermarkStrategy<()> {
    let bounded = WatermarkStrategy::bounded_out_of_orderness(Duration::from_millis(10));
    bounded.idle_after(Duration::from_millis(10)).unwrap()
}

impl Scene {
    /// With `splits` splits, read from position 0, and ticked once.
    fn new(splits: u32) -> Self {
        let mut scene =
            Self { time: SourceTime::new(strategy()), asked: Vec::new(), paused: BTreeSet::new() };
        for split in 0..splits {
            scene.add(split);
        }
        assert_eq!(scene.tick(0).is_empty(), splits > 0);
        scene
    }

    /// What goes into the stream; questions and pauses are kept.
    fn did(&mut self, actions: Vec<TimeAction<u32>>) -> Vec<TimeSignal> {
        let mut signals = Vec::new();
        for action in actions {
            match action {
                TimeAction::Emit(signal) => signals.push(signal),
                TimeAction::Ask(split, question) => self.asked.push((split, question)),
                TimeAction::Pause(split) => assert!(self.paused.insert(split), "{split} paused twice"),
                TimeAction::Resume(split) => assert!(self.paused.remove(&split), "{split} was not paused"),
                TimeAction::Status(split, status) => assert_eq!(self.status(split), status),
                other => panic!("{other:?}"),
            }
        }
        signals
    }

    fn add(&mut self, split: u32) -> Vec<TimeSignal> {
        let actions = self.time.add(split, 0, Timestamp(0));
        self.did(actions)
    }

    fn record(&mut self, split: u32, timestamp: i64, now: i64) -> Vec<TimeSignal> {
        let actions = self.time.record(&split, &(), Timestamp(timestamp), 1, Timestamp(now));
        self.did(actions)
    }

    fn event(&mut self, split: u32, event: SplitEvent, now: i64) -> Vec<TimeSignal> {
        let actions = self.time.event(&split, event, Timestamp(now));
        self.did(actions)
    }

    fn tick(&mut self, now: i64) -> Vec<TimeSignal> {
        let actions = self.time.tick(Timestamp(now));
        self.did(actions)
    }

    fn allow(&mut self, allowed: Timestamp, now: i64) -> Vec<TimeSignal> {
        let actions = self.time.allow(allowed, Timestamp(now));
        self.did(actions)
    }

    fn answer(&mut self, high_watermark: u64, now: i64) -> Vec<TimeSignal> {
        let (split, question) = *self.asked.last().expect("a question");
        self.event(split, Answer { question, high_watermark }, now)
    }

    fn status(&self, split: u32) -> SplitStatus {
        self.time.split(&split).expect("a split").0
    }
}

fn at(watermark: i64) -> TimeSignal {
    TimeSignal::Watermark(Timestamp(watermark))
}

const IDLE: TimeSignal = TimeSignal::Status(Idle);
const ACTIVE: TimeSignal = TimeSignal::Status(Active);

/// [TIM-05]
#[test]
fn subtask_without_splits_is_idle_at_once() {
    let mut time: SourceTime<(), u32> = SourceTime::new(strategy());
    assert_eq!(time.tick(Timestamp(0)), [TimeAction::Emit(IDLE)]);
    assert_eq!(time.report(), DriftReport::Nothing);
    assert_eq!(Scene::new(0).add(0), [ACTIVE]);
}

/// [TIM-01] [TIM-02]
#[test]
fn watermark_comes_with_the_tick_behind_the_records() {
    let mut scene = Scene::new(1);
    assert_eq!(scene.record(0, 1337, 1), []);
    assert_eq!(scene.record(0, 1330, 1), []);
    assert_eq!(scene.tick(200), [at(1326)]);
    assert_eq!(scene.tick(400), [], "one that does not advance is dropped");
}

/// [TIM-02]
#[test]
fn punctuated_watermark_comes_behind_its_record_without_a_tick() {
    let strategy = WatermarkStrategy::punctuated(|(), timestamp| Some(timestamp));
    let mut time: SourceTime<(), u32> = SourceTime::new(strategy);
    time.add(0, 0, Timestamp(0));
    let actions = time.record(&0, &(), Timestamp(7), 1, Timestamp(0));
    assert_eq!(actions, [TimeAction::Emit(at(7))]);
    assert_eq!(time.record(&0, &(), Timestamp(6), 2, Timestamp(0)), []);
}

/// [TIM-02] [TIM-07]
#[test]
fn source_may_emit_watermarks_of_its_own() {
    let mut time: SourceTime<(), u32> = SourceTime::new(WatermarkStrategy::none());
    time.add(0, 0, Timestamp(0));
    assert_eq!(time.watermark(&0, Timestamp(5), Timestamp(0)), [TimeAction::Emit(at(5))]);
    time.event(&0, MarkIdle, Timestamp(1));
    let expected =
        [TimeAction::Status(0, SplitStatus::Active), TimeAction::Emit(ACTIVE), TimeAction::Emit(at(6))];
    assert_eq!(time.watermark(&0, Timestamp(6), Timestamp(2)), expected);
}

/// [TIM-05] [TIM-10] [TIM-11]
#[test]
fn idle_partition_does_not_hold_back_the_watermark_and_returns() {
    let mut scene = Scene::new(2);
    scene.record(0, 1337, 1);
    scene.record(1, 990, 1);
    assert_eq!(scene.tick(1), [at(979)]);
    scene.event(1, EndOfPartition { position: 1 }, 2);
    assert_eq!(scene.tick(13), []);
    assert_eq!(scene.answer(1, 14), [at(1326)]);
    scene.event(0, EndOfPartition { position: 1 }, 20);
    assert_eq!(scene.tick(31), []);
    assert_eq!(scene.answer(1, 32), [IDLE]);
    assert_eq!(scene.record(1, 1000, 40), [ACTIVE]);
    assert_eq!(scene.tick(200), []);
    assert_eq!(scene.time.merged(), Timestamp(1326));
}

/// [TIM-06]
#[test]
fn partition_behind_an_open_transaction_holds_the_watermark() {
    let mut scene = Scene::new(2);
    scene.record(0, 1337, 1);
    scene.record(1, 990, 1);
    scene.event(1, EndOfPartition { position: 1 }, 2);
    assert_eq!(scene.tick(13), [at(979)]);
    assert_eq!(scene.answer(6, 14), []);
    assert_eq!(scene.tick(100_000), []);
    assert!(scene.status(1).is_blocked());
}

/// [TIM-06] [TIM-17]
#[test]
fn split_paused_for_being_ahead_does_not_become_idle_and_the_watermark_does_not_jump() {
    let mut scene = Scene::new(2);
    scene.record(0, 1337, 1);
    scene.event(0, EndOfPartition { position: 1 }, 1);
    scene.record(1, 990, 1);
    assert_eq!(scene.allow(Timestamp(1000), 1), []);
    assert_eq!(scene.tick(2), [at(979)]);
    assert_eq!(scene.paused, BTreeSet::from([0]));
    for tick in (10..600_000).step_by(200) {
        assert_eq!(scene.tick(tick), []);
        assert!(scene.status(0).is_blocked());
    }
    assert_eq!(scene.time.report(), DriftReport::At(Timestamp(979)));
    assert_eq!(scene.allow(Timestamp(1326), 600_000), []);
    assert!(scene.paused.is_empty());
    assert_eq!(scene.status(0), SplitStatus::CaughtUp);
}

/// [TIM-07] [TIM-10]
#[test]
fn what_the_generator_knows_comes_out_before_its_split_is_idle() {
    let mut scene = Scene::new(1);
    scene.record(0, 1337, 1);
    assert_eq!(scene.event(0, MarkIdle, 1), [at(1326), IDLE]);
    assert_eq!(scene.record(0, 1340, 2), [ACTIVE]);
    assert_eq!(scene.tick(200), [at(1329)]);
}

/// [TIM-12]
#[test]
fn removed_split_holds_nothing_back_from_the_next_tick_on() {
    let mut scene = Scene::new(2);
    scene.record(0, 1337, 1);
    scene.tick(1);
    scene.time.remove(&1);
    assert_eq!(scene.time.merged(), Timestamp::MIN);
    assert_eq!(scene.tick(200), [at(1326)]);
}

/// [TIM-04]
#[test]
fn end_of_all_input_is_the_maximum_also_without_watermarks() {
    let mut time: SourceTime<(), u32> = SourceTime::new(WatermarkStrategy::none());
    time.add(0, 0, Timestamp(0));
    time.record(&0, &(), Timestamp(7), 1, Timestamp(0));
    time.no_more_splits();
    assert_eq!(time.tick(Timestamp(1)), []);
    time.remove(&0);
    let actions = time.tick(Timestamp(2));
    assert_eq!(actions, [TimeAction::Emit(TimeSignal::Watermark(Timestamp::MAX))]);
    let TimeAction::Emit(signal) = actions[0] else { panic!("{actions:?}") };
    assert!(matches!(StreamElement::<()>::from(signal), StreamElement::Watermark(Timestamp::MAX)));
}

/// [TIM-17] [TIM-18] Two subtasks of one group; the one that was idle comes back and counts again.
#[test]
fn sources_of_a_group_wait_for_each_other_unless_they_are_idle() {
    let mut group = DriftGroup::new(Duration::from_millis(100));
    let (mut fast, mut slow) = (Scene::new(1), Scene::new(1));
    let mut turn = |fast: &mut Scene, slow: &mut Scene, now: i64| {
        fast.tick(now);
        slow.tick(now);
        group.report("fast", fast.time.report());
        group.report("slow", slow.time.report());
        let allowed = group.allowed();
        fast.allow(allowed, now);
        slow.allow(allowed, now);
        (fast.paused.contains(&0), slow.paused.contains(&0))
    };
    fast.record(0, 1000, 1);
    slow.record(0, 500, 1);
    assert_eq!(turn(&mut fast, &mut slow, 1), (true, false));
    slow.event(0, MarkIdle, 2);
    assert_eq!(turn(&mut fast, &mut slow, 2), (false, false));
    slow.record(0, 600, 3);
    assert_eq!(turn(&mut fast, &mut slow, 3), (true, false));
    slow.record(0, 900, 4);
    assert_eq!(turn(&mut fast, &mut slow, 4), (false, false));
}

/// [SRC-30] the time's part: what the split knows of its pauses outlives a new assignment.
#[test]
fn split_that_is_added_again_goes_on_resting() {
    let mut scene = Scene::new(1);
    scene.event(0, Paused(Pause::User), 1);
    scene.add(0);
    assert!(scene.status(0).is_blocked());
    scene.event(0, Resumed(Pause::User), 2);
    assert_eq!(scene.status(0), SplitStatus::Active);
}

/// A generator that counts how often it is asked.
#[derive(Debug)]
struct Asked(Arc<AtomicU64>);

impl WatermarkGenerator<()> for Asked {
    fn on_periodic(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Some(now)
    }
}

/// [TIM-09] the cost's part.
#[test]
fn tick_asks_the_ten_splits_that_count_and_not_the_490_that_are_idle() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let strategy = WatermarkStrategy::custom(move || Box::new(Asked(Arc::clone(&counter))));
    let mut time: SourceTime<(), u32> = SourceTime::new(strategy);
    for split in 0..500 {
        time.add(split, 0, Timestamp(0));
    }
    for split in 10..500 {
        time.event(&split, MarkIdle, Timestamp(1));
    }
    asked.store(0, Ordering::Relaxed);
    assert_eq!(time.tick(Timestamp(200)), [TimeAction::Emit(at(200))]);
    assert_eq!(asked.load(Ordering::Relaxed), 10);
}

fn play(scene: &mut Scene, known: &mut BTreeSet<u32>, dice: &mut Dice, now: i64) -> Vec<TimeSignal> {
    let split = dice.below(3) as u32;
    match dice.below(24) {
        0..2 => {
            known.insert(split);
            scene.add(split)
        }
        2 => {
            known.remove(&split);
            scene.paused.remove(&split);
            scene.time.remove(&split);
            Vec::new()
        }
        3..9 => scene.record(split, dice.below(200) as i64, now),
        9..12 => scene.event(split, EndOfPartition { position: 1 }, now),
        12..14 if !scene.asked.is_empty() => scene.answer(dice.pick(&[1, 1, 1, 2]), now),
        14 => scene.event(split, MarkIdle, now),
        15 => scene.allow(Timestamp(dice.below(200) as i64), now),
        16 => scene.event(split, dice.pick(&[Paused(Pause::User), Resumed(Pause::User)]), now),
        _ => scene.tick(now),
    }
}

/// [TIM-09] [TIM-10] [TIM-19] Watermarks grow, none is ahead of a split that is not idle, and statuses alternate.
#[test]
fn any_history_of_a_subtask_keeps_the_promises_of_its_watermarks() {
    let mut watermarks = 0;
    histories(|dice| {
        let mut scene = Scene::new(0);
        let mut known = BTreeSet::new();
        let (mut last, mut status, mut now) = (Timestamp::MIN, Idle, 0);
        for _ in 0..dice.below(24) {
            now += dice.pick(&[0, 1, 11]);
            let signals = play(&mut scene, &mut known, dice, now);
            for signal in signals {
                match signal {
                    TimeSignal::Watermark(watermark) => {
                        assert!(watermark > last && status == Active, "{watermark} after {last}, {status:?}");
                        last = watermark;
                        let counting = known.iter().filter_map(|split| scene.time.split(split));
                        let waiting = counting.filter(|(status, _)| !status.is_idle());
                        assert!(waiting.map(|(_, own)| own).min().is_none_or(|lowest| watermark <= lowest));
                        watermarks += 1;
                    }
                    TimeSignal::Status(next) => {
                        assert_ne!(next, status);
                        status = next;
                    }
                }
            }
        }
    });
    println!("{watermarks} watermarks");
    assert!(watermarks > 10_000 || std::env::var("LEVADA_HISTORY").is_ok());
}
