use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use levada_core::Timestamp;
use levada_core::time::DriftReport::{At, Idle, Nothing};
use levada_core::time::DriftStep::{Pause, Resume};
use levada_core::time::{DriftGroup, DriftReport, SplitDrift, SplitMerge};

use crate::dice::histories;

fn group(max_drift: u64) -> DriftGroup<u32> {
    DriftGroup::new(Duration::from_millis(max_drift))
}

fn at(watermark: i64) -> DriftReport {
    At(Timestamp(watermark))
}

/// [TIM-17]
#[test]
fn smallest_watermark_plus_the_drift_is_allowed() {
    let mut group = group(1000);
    assert_eq!(group.allowed(), Timestamp::MAX, "nobody has reported");
    let script = [
        (0, at(42), 1042),
        (1, at(44), 1042),
        (0, at(50), 1044),
        (1, Idle, 1050),
        (0, Idle, i64::MAX),
        (1, at(44), 1044),
    ];
    for (member, report, allowed) in script {
        group.report(member, report);
        assert_eq!(group.allowed(), Timestamp(allowed), "after {member} {report:?}");
    }
}

/// [TIM-17]
#[test]
fn limit_saturates() {
    let mut group = group(1000);
    group.report(0, at(i64::MAX - 1));
    assert_eq!(group.allowed(), Timestamp::MAX);
    let mut group = DriftGroup::new(Duration::MAX);
    group.report(0, at(i64::MIN));
    assert_eq!(group.allowed(), Timestamp::MAX);
}

/// [TIM-18]
#[test]
fn member_that_never_had_a_split_holds_nobody_back() {
    let mut group = group(10);
    group.report(0, at(100));
    group.report(1, Nothing);
    assert_eq!(group.allowed(), Timestamp(110));
    group.report(1, Idle);
    assert_eq!(group.allowed(), Timestamp(110));
}

/// [TIM-18]
#[test]
fn member_that_returns_counts_with_its_last_watermark_and_reports_never_decrease() {
    let mut group = group(10);
    group.report(0, at(100));
    group.report(1, at(70));
    group.report(1, Idle);
    assert_eq!(group.allowed(), Timestamp(110));
    group.report(1, at(60));
    assert_eq!(group.allowed(), Timestamp(80));
}

/// [TIM-17]
#[test]
fn member_that_has_left_holds_nobody_back() {
    let mut group = group(10);
    group.report(0, at(100));
    group.report(1, at(70));
    group.leave(&1);
    assert_eq!(group.allowed(), Timestamp(110));
}

fn splits(watermarks: &[i64]) -> SplitMerge<u32> {
    let mut splits = SplitMerge::new();
    for (split, watermark) in (0..).zip(watermarks) {
        splits.add(split);
        splits.watermark(&split, Timestamp(*watermark));
    }
    splits
}

/// [TIM-17]
#[test]
fn split_is_paused_after_it_exceeded_the_limit_and_resumed_when_the_limit_has_grown() {
    let splits = splits(&[10, 20, 30]);
    let mut drift = SplitDrift::new();
    assert_eq!(drift.compare(&splits, Timestamp(30)), [], "at the limit is not above it");
    assert_eq!(drift.compare(&splits, Timestamp(19)), [Pause(2), Pause(1)]);
    assert_eq!(drift.compare(&splits, Timestamp(19)), []);
    assert_eq!(drift.compare(&splits, Timestamp(20)), [Resume(1)]);
    assert!(drift.is_paused(&2));
    assert_eq!(drift.compare(&splits, Timestamp::MAX), [Resume(2)]);
}

/// [TIM-17]
#[test]
fn idle_split_is_not_paused_and_one_that_became_idle_while_paused_is_resumed() {
    let mut splits = splits(&[10, 20, 30]);
    splits.idle(&2);
    let mut drift = SplitDrift::new();
    assert_eq!(drift.compare(&splits, Timestamp(15)), [Pause(1)]);
    splits.idle(&1);
    assert_eq!(drift.compare(&splits, Timestamp(16)), []);
    assert_eq!(drift.compare(&splits, Timestamp(20)), [Resume(1)]);
}

/// [TIM-17]
#[test]
fn finished_split_is_neither_paused_nor_resumed() {
    let mut splits = splits(&[10, 20, 30]);
    splits.remove(&2);
    let mut drift = SplitDrift::new();
    assert_eq!(drift.compare(&splits, Timestamp(15)), [Pause(1)]);
    splits.remove(&1);
    assert_eq!(drift.compare(&splits, Timestamp(20)), []);
}

/// [TIM-17] [TIM-18] [TIM-19]
#[test]
fn any_history_of_reports_allows_what_the_model_computes_from_scratch() {
    let (mut limited, mut free) = (0, 0);
    histories(|dice| {
        let max_drift = dice.pick(&[0, 1, 1000, i64::MAX as u64]);
        let mut group = group(max_drift);
        let mut history: Vec<(u32, Option<DriftReport>)> = Vec::new();
        for _ in 0..dice.below(16) {
            let watermark = if dice.one_in(10) { dice.throw() as i64 } else { dice.below(50) as i64 };
            let report = match dice.below(8) {
                0..5 => Some(at(watermark)),
                5..7 => Some(dice.pick(&[Idle, Nothing])),
                _ => None,
            };
            let member = dice.below(3) as u32;
            history.push((member, report));
            match report {
                Some(report) => group.report(member, report),
                None => group.leave(&member),
            }
            let expected = allowed(&history, max_drift);
            assert_eq!(i128::from(group.allowed().0), expected, "drift {max_drift}, {history:?}");
            if expected == i128::from(i64::MAX) { free += 1 } else { limited += 1 }
        }
    });
    println!("{limited} times limited, {free} times free");
}

fn allowed(history: &[(u32, Option<DriftReport>)], max_drift: u64) -> i128 {
    let counts = (0..3).filter_map(|member| {
        let its: Vec<Option<DriftReport>> =
            history.iter().filter(|(of, _)| *of == member).map(|(_, report)| *report).collect();
        let since_it_left = its.rsplit(Option::is_none).next().unwrap_or_default();
        let telling: Vec<DriftReport> =
            since_it_left.iter().flatten().copied().filter(|report| *report != Nothing).collect();
        let watermarks = telling.iter().filter_map(|report| match report {
            At(watermark) => Some(watermark.0),
            _ => None,
        });
        watermarks.max().filter(|_| telling.last() != Some(&Idle))
    });
    let exact = counts.min().map(|lowest| i128::from(lowest) + i128::from(max_drift));
    exact.unwrap_or(i128::MAX).min(i128::from(i64::MAX))
}

/// [TIM-17] [TIM-19] After every comparison, exactly those rest who are above the limit and were not idle when it was
/// first seen.
#[test]
fn any_history_of_splits_and_limits_pauses_who_the_model_says() {
    let (mut pauses, mut resumes) = (0, 0);
    histories(|dice| {
        let mut splits = SplitMerge::new();
        let mut drift = SplitDrift::new();
        let mut known: BTreeMap<u32, (i64, bool)> = BTreeMap::new();
        let mut paused: BTreeSet<u32> = BTreeSet::new();
        let mut told: BTreeSet<u32> = BTreeSet::new();
        for _ in 0..dice.below(16) {
            let split = dice.below(4) as u32;
            match dice.below(8) {
                0..4 => {
                    splits.add(split);
                    let watermark = dice.below(20) as i64;
                    splits.watermark(&split, Timestamp(watermark));
                    let highest = known.get(&split).map_or(watermark, |(before, _)| watermark.max(*before));
                    known.insert(split, (highest, false));
                }
                4 => {
                    splits.idle(&split);
                    known.entry(split).and_modify(|(_, is_idle)| *is_idle = true);
                }
                5 => {
                    splits.remove(&split);
                    drift.remove(&split);
                    known.remove(&split);
                    paused.remove(&split);
                    told.remove(&split);
                }
                _ => {
                    let allowed = dice.below(20) as i64;
                    for step in drift.compare(&splits, Timestamp(allowed)) {
                        match step {
                            Pause(split) => assert!(told.insert(split), "paused twice"),
                            Resume(split) => assert!(told.remove(&split), "resumed without a pause"),
                        }
                        if matches!(step, Pause(_)) { pauses += 1 } else { resumes += 1 }
                    }
                    let above = |(split, (watermark, is_idle)): (&u32, &(i64, bool))| {
                        let rests = *watermark > allowed && (!is_idle || paused.contains(split));
                        rests.then_some(*split)
                    };
                    paused = known.iter().filter_map(above).collect();
                    assert_eq!(told, paused, "allowed {allowed}, {known:?}");
                }
            }
        }
    });
    println!("{pauses} pauses, {resumes} resumes");
    assert!(pauses > 1000 && resumes > 1000 || std::env::var("LEVADA_HISTORY").is_ok());
}
