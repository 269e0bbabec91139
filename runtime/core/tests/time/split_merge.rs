use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use levada_core::StreamStatus::{Active, Idle};
use levada_core::time::SplitMerge;
use levada_core::time::TimeSignal::{self, Status, Watermark};
use levada_core::{StreamStatus, Timestamp};

use crate::dice::{Dice, histories};

fn at(watermark: i64) -> TimeSignal {
    Watermark(Timestamp(watermark))
}

fn merge(splits: u32) -> SplitMerge<u32> {
    let mut merge = SplitMerge::new();
    (0..splits).for_each(|split| assert!(merge.add(split)));
    merge
}

fn reported(watermarks: &[i64]) -> SplitMerge<u32> {
    let mut merge = merge(watermarks.len() as u32);
    watermarks.iter().zip(0..).for_each(|(watermark, split)| merge.watermark(&split, Timestamp(*watermark)));
    merge
}

/// [TIM-09]
#[test]
fn merged_watermark_is_the_smallest_and_comes_only_when_it_grows() {
    let mut merge = reported(&[5, 2]);
    assert_eq!(merge.emit(), [at(2)]);
    assert_eq!(merge.emit(), []);
    merge.watermark(&1, Timestamp(9));
    assert_eq!(merge.emit(), [at(5)]);
    merge.watermark(&0, Timestamp(3));
    assert_eq!(merge.emit(), [], "a split's own watermark does not go back");
    merge.watermark(&0, Timestamp(7));
    assert_eq!(merge.emit(), [at(7)]);
}

/// [TIM-09]
#[test]
fn no_split_means_no_watermark_and_idle_until_one_is_added() {
    let mut merge = merge(0);
    assert_eq!(merge.emit(), [Status(Idle)]);
    assert_eq!(merge.emit(), []);
    merge.add(7);
    assert_eq!(merge.emit(), [Status(Active)]);
    assert_eq!(merge.merged(), Timestamp::MIN);
}

/// [TIM-09]
#[test]
fn split_that_has_reported_nothing_holds_the_minimum_until_it_reports_or_is_idle() {
    let mut merge = merge(2);
    assert_eq!(merge.emit(), []);
    merge.watermark(&0, Timestamp(5));
    assert_eq!(merge.emit(), []);
    merge.watermark(&1, Timestamp(4));
    assert_eq!(merge.emit(), [at(4)]);
    merge.add(2);
    merge.watermark(&1, Timestamp(5));
    assert_eq!(merge.emit(), []);
    merge.idle(&2);
    assert_eq!(merge.emit(), [at(5)]);
}

/// [TIM-09]
#[test]
fn split_that_is_added_twice_is_added_once() {
    let mut merge = reported(&[5]);
    assert!(!merge.add(0));
    assert_eq!(merge.emit(), [at(5)]);
}

/// [TIM-10]
#[test]
fn watermark_advances_when_the_slowest_becomes_idle() {
    let mut merge = reported(&[2, 5]);
    assert_eq!(merge.emit(), [at(2)]);
    merge.idle(&0);
    assert_eq!(merge.emit(), [at(5)]);
}

/// [TIM-10]
#[test]
fn all_idle_means_the_highest_and_then_idle_in_either_order() {
    for (first, second, signals) in [
        (0, 1, [vec![at(2)], vec![at(5)], vec![Status(Idle)]]),
        (1, 0, [vec![at(2)], vec![], vec![at(5), Status(Idle)]]),
    ] {
        let mut merge = reported(&[2, 5]);
        let before = merge.emit();
        merge.idle(&first);
        let between = merge.emit();
        merge.idle(&second);
        assert_eq!([before, between, merge.emit()], signals, "{first} first");
        assert_eq!((merge.merged(), merge.status()), (Timestamp(5), Idle));
    }
}

/// [TIM-10] also when both become idle before anything was emitted.
#[test]
fn all_idle_within_one_tick_means_the_highest_and_then_idle() {
    let mut merge = reported(&[5, 2]);
    merge.idle(&0);
    merge.idle(&1);
    assert_eq!(merge.emit(), [at(5), Status(Idle)]);
    assert_eq!(merge.emit(), []);
}

/// [TIM-08] A watermark of an idle stream would be ignored.
#[test]
fn watermark_that_grew_while_all_are_idle_again_comes_between_active_and_idle() {
    let mut merge = reported(&[5, 2]);
    [0, 1].iter().for_each(|split| merge.idle(split));
    merge.emit();
    merge.watermark(&1, Timestamp(9));
    merge.idle(&1);
    assert_eq!(merge.emit(), [Status(Active), at(9), Status(Idle)]);
}

/// [TIM-11]
#[test]
fn returning_split_with_older_records_makes_the_output_active_and_does_not_take_it_back() {
    let mut merge = reported(&[5, 2]);
    [0, 1].iter().for_each(|split| merge.idle(split));
    assert_eq!(merge.emit(), [at(5), Status(Idle)]);
    merge.active(&1);
    assert_eq!(merge.emit(), [Status(Active)]);
    merge.watermark(&1, Timestamp(3));
    assert_eq!(merge.emit(), []);
    merge.watermark(&1, Timestamp(6));
    assert_eq!(merge.emit(), [at(6)]);
}

/// [TIM-12]
#[test]
fn removing_the_lowest_advances_at_the_next_tick_and_removing_the_highest_takes_nothing_back() {
    let mut merge = reported(&[2, 5, 8]);
    assert_eq!(merge.emit(), [at(2)]);
    merge.remove(&0);
    assert_eq!(merge.merged(), Timestamp(2));
    assert_eq!(merge.emit(), [at(5)]);
    merge.remove(&2);
    assert_eq!(merge.emit(), []);
    merge.remove(&1);
    assert_eq!(merge.emit(), [Status(Idle)]);
    assert_eq!(merge.merged(), Timestamp(5));
}

/// [TIM-12] [TIM-04]
#[test]
fn maximum_comes_when_all_splits_are_finished_and_not_before() {
    let mut merge = reported(&[2, 5]);
    merge.no_more_splits();
    merge.idle(&1);
    assert_eq!(merge.emit(), [at(2)]);
    merge.remove(&0);
    assert_eq!(merge.emit(), [at(5), Status(Idle)], "a finished split is no maximum beside an idle one");
    merge.remove(&1);
    assert_eq!(merge.emit(), [Status(Active), Watermark(Timestamp::MAX)]);
    assert_eq!(merge.emit(), []);
}

/// [TIM-04] A subtask of a bounded read that has no split at all.
#[test]
fn maximum_comes_at_once_where_there_was_never_a_split() {
    let mut merge = merge(0);
    merge.no_more_splits();
    assert_eq!(merge.emit(), [Watermark(Timestamp::MAX)]);
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Add(u32),
    Watermark(u32, i64),
    Idle(u32),
    Active(u32),
    Remove(u32),
    NoMore,
    Emit,
}

fn step(dice: &mut Dice) -> Step {
    let split = dice.below(3) as u32;
    match dice.below(40) {
        0..6 => Step::Add(split),
        6..18 => Step::Watermark(split, dice.below(20) as i64),
        18..25 => Step::Idle(split),
        25..28 => Step::Active(split),
        28..31 => Step::Remove(split),
        31 => Step::NoMore,
        _ => Step::Emit,
    }
}

/// What is known of each split that is there, from the whole history: its watermark and whether it is idle.
fn splits_after(history: &[Step]) -> BTreeMap<u32, (i64, bool)> {
    let mut splits = BTreeMap::new();
    for split in 0..3 {
        let of = |step: &Step| match *step {
            Step::Add(of) | Step::Idle(of) | Step::Active(of) | Step::Remove(of) | Step::Watermark(of, _) => {
                of == split
            }
            Step::NoMore | Step::Emit => false,
        };
        let its: Vec<Step> = history.iter().copied().filter(of).collect();
        let removed =
            its.iter().rposition(|step| matches!(step, Step::Remove(_))).map_or(0, |index| index + 1);
        let Some(added) = its[removed..].iter().position(|step| matches!(step, Step::Add(_))) else {
            continue;
        };
        let life: Vec<Step> =
            its[removed + added + 1..].iter().copied().filter(|step| !matches!(step, Step::Add(_))).collect();
        let watermarks = life.iter().filter_map(|step| match step {
            Step::Watermark(_, watermark) => Some(*watermark),
            _ => None,
        });
        let is_idle = matches!(life.last(), Some(Step::Idle(_)));
        splits.insert(split, (watermarks.max().unwrap_or(i64::MIN), is_idle));
    }
    splits
}

/// Says what a merge must say next, knowing what it has said.
fn expected(history: &[Step], said: &[TimeSignal]) -> Vec<TimeSignal> {
    let last_status = said.iter().rev().find_map(|signal| match signal {
        Status(status) => Some(*status),
        Watermark(_) => None,
    });
    let highest_said = said.iter().filter_map(|signal| match signal {
        Watermark(watermark) => Some(watermark.0),
        Status(_) => None,
    });
    let splits = splits_after(history);
    let has_all = history.iter().any(|step| matches!(step, Step::NoMore));
    let counting = splits.values().filter(|(_, is_idle)| !is_idle).map(|(watermark, _)| *watermark).min();
    let (watermark, status) = match (counting, splits.values().map(|(watermark, _)| *watermark).max()) {
        (Some(lowest), _) => (Some(lowest), Some(Active)),
        (None, Some(highest)) => (Some(highest), Some(Idle)),
        (None, None) if has_all => (Some(i64::MAX), None),
        (None, None) => (None, Some(Idle)),
    };
    let before = last_status.unwrap_or(Active);
    let watermark = watermark.filter(|watermark| *watermark > highest_said.max().unwrap_or(i64::MIN));
    let mut changes: Vec<TimeSignal> = Vec::new();
    let mut current: StreamStatus = before;
    if (watermark.is_some() || status == Some(Active)) && before == Idle {
        changes.push(Status(Active));
        current = Active;
    }
    changes.extend(watermark.map(at));
    if status == Some(Idle) && current == Active {
        changes.push(Status(Idle));
    }
    changes
}

/// [TIM-09] [TIM-10] [TIM-11] [TIM-12] [TIM-19]
#[test]
fn any_history_of_splits_gives_what_the_model_computes_from_scratch() {
    let mut flushes = 0;
    let mut ends = 0;
    histories(|dice| {
        let mut merge = SplitMerge::new();
        let (mut history, mut said) = (Vec::new(), Vec::new());
        for _ in 0..dice.below(24) {
            let step = step(dice);
            history.push(step);
            match step {
                Step::Add(split) => drop(merge.add(split)),
                Step::Watermark(split, watermark) => merge.watermark(&split, Timestamp(watermark)),
                Step::Idle(split) => merge.idle(&split),
                Step::Active(split) => merge.active(&split),
                Step::Remove(split) => merge.remove(&split),
                Step::NoMore => merge.no_more_splits(),
                Step::Emit => {
                    let signals = merge.emit();
                    assert_eq!(signals, expected(&history, &said), "{history:?}, said {said:?}");
                    flushes += u64::from(signals.ends_with(&[Status(Idle)]) && signals.len() > 1);
                    ends += u64::from(signals.contains(&Watermark(Timestamp::MAX)));
                    said.extend(signals);
                }
            }
        }
    });
    println!("{flushes} flushes before idleness, {ends} ends of input");
    assert!(flushes > 1000 && ends > 1000 || std::env::var("LEVADA_HISTORY").is_ok());
}

thread_local! {
    static COMPARISONS: Cell<u64> = const { Cell::new(0) };
}

/// A split that counts how often it is compared with another: the work of an ordered set.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted(u32);

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> Ordering {
        COMPARISONS.set(COMPARISONS.get() + 1);
        self.0.cmp(&other.0)
    }
}

/// What a tick costs while ten splits report and the others are idle.
fn comparisons_of_a_tick(splits: u32) -> u64 {
    let mut merge = SplitMerge::new();
    for split in 0..splits {
        merge.add(Counted(split));
        merge.watermark(&Counted(split), Timestamp(i64::from(split)));
        if split >= 10 {
            merge.idle(&Counted(split));
        }
    }
    merge.emit();
    COMPARISONS.set(0);
    (0..10).for_each(|split| merge.watermark(&Counted(split), Timestamp(1000)));
    assert_eq!(merge.emit(), [at(1000)]);
    COMPARISONS.get()
}

/// [TIM-09] the cost's part: no walk over the idle ones, only a search among them.
#[test]
fn tick_with_490_idle_splits_among_500_costs_little_more_than_one_with_ten() {
    let (few, many) = (comparisons_of_a_tick(10), comparisons_of_a_tick(500));
    println!("comparisons: {few} with 10 splits, {many} with 500");
    assert!(many < few * 2, "{many} comparisons instead of {few}");
}
