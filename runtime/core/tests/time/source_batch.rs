use std::time::Duration;

use levada_core::batch::{BatchParts, RawRecord};
use levada_core::time::{
    Pause, SourceTime, SplitEvent, SplitStatus, TimeAction, TimeSignal, WatermarkStrategy,
};
use levada_core::{BatchBuilder, Record, SplitId, Timestamp, TimestampKind};

use crate::dice::{Dice, histories};

/// Splits that a history may add and remove.
const SPLITS: u32 = 4;

fn split(index: u64) -> SplitId {
    SplitId::new("t", index as u32)
}

/// A batch of up to twelve records: `None` is a record without a timestamp.
fn batch(dice: &mut Dice, next: &mut [u64; SPLITS as usize]) -> (BatchParts, Vec<Record<u64>>) {
    let mut builder = BatchBuilder::new();
    for _ in 0..dice.below(12) {
        let index = dice.below(u64::from(SPLITS));
        let number = builder.split(&split(index));
        let offset = &mut next[index as usize];
        // Offsets may have holes.
        *offset += 1 + dice.below(2);
        let timestamp_kind = if dice.one_in(8) { TimestampKind::None } else { TimestampKind::Create };
        let timestamp = Timestamp(dice.below(100) as i64);
        builder
            .push(number, RawRecord { offset: *offset, timestamp, timestamp_kind, ..RawRecord::default() });
    }
    let (parts, records) = builder.finish().0.into_parts();
    let with_item = |record: Record<()>| Record { origin: record.origin, item: record.origin.offset };
    (parts, records.into_iter().map(with_item).collect())
}

/// What one record after the other leads to.
fn one_by_one(
    time: &mut SourceTime<u64>,
    (parts, records): &(BatchParts, Vec<Record<u64>>),
    now: Timestamp,
) -> Vec<(usize, TimeAction<SplitId>)> {
    let mut all = Vec::new();
    for (before, record) in records.iter().enumerate() {
        let split = &parts.splits()[record.origin.split as usize];
        let next = record.origin.offset + 1;
        let actions = match record.timestamp() {
            Some(timestamp) => time.record(split, &record.item, timestamp, next, now),
            None => time.event(split, SplitEvent::Record { next }, now),
        };
        all.extend(actions.into_iter().map(|action| (before + 1, action)));
    }
    all
}

fn strategy(dice: &mut Dice) -> WatermarkStrategy<u64> {
    let strategy = match dice.one_in(2) {
        true => WatermarkStrategy::bounded_out_of_orderness(Duration::from_millis(dice.below(20))),
        false => WatermarkStrategy::punctuated(|item, timestamp| (item % 3 == 0).then_some(timestamp)),
    };
    strategy.idle_after(Duration::from_millis(5)).unwrap()
}

fn event(dice: &mut Dice) -> SplitEvent {
    match dice.below(6) {
        0 => SplitEvent::MarkIdle,
        1 => SplitEvent::Paused(Pause::Drift),
        2 => SplitEvent::Resumed(Pause::Drift),
        3 => SplitEvent::FetchFailed,
        4 => SplitEvent::EndOfPartition { position: 1_000 },
        _ => SplitEvent::BrokerAway,
    }
}

/// [TIM-02] [TIM-19] a batch is the same as its records one by one: what follows, behind which record, and what is known.
#[test]
fn batch_is_the_same_as_its_records_one_by_one() {
    histories(|dice| {
        let strategy = strategy(dice);
        let (mut batched, mut single) = (SourceTime::new(strategy.clone()), SourceTime::new(strategy));
        let mut next = [0; SPLITS as usize];
        let mut now = Timestamp(0);
        for _ in 0..10 {
            now.0 += dice.below(4) as i64;
            let index = dice.below(u64::from(SPLITS));
            match dice.below(6) {
                0 => assert_eq!(batched.add(split(index), 0, now), single.add(split(index), 0, now)),
                1 => {
                    batched.remove(&split(index));
                    single.remove(&split(index));
                }
                2 => {
                    let event = event(dice);
                    let (split, single) = (split(index), &mut single);
                    assert_eq!(batched.event(&split, event, now), single.event(&split, event, now));
                }
                3 => assert_eq!(batched.tick(now), single.tick(now)),
                _ => {
                    let batch = batch(dice, &mut next);
                    let mut followed = Vec::new();
                    let (table, records) = (batch.0.splits(), &batch.1);
                    batched.batch(table, records, now, |behind, action| followed.push((behind, action)));
                    assert_eq!(followed, one_by_one(&mut single, &batch, now));
                }
            }
            assert_eq!((batched.merged(), batched.late()), (single.merged(), single.late()));
            assert_eq!(batched.report(), single.report());
        }
        assert_eq!(batched.tick(Timestamp(100)), single.tick(Timestamp(100)));
    });
}

/// [TIM-11] [TIM-21] a record that the watermark in front of it has covered is late, and counted.
#[test]
fn record_at_or_below_the_watermark_is_late() {
    let mut time: SourceTime<(), u32> = SourceTime::new(WatermarkStrategy::monotonic());
    time.add(0, 0, Timestamp(0));
    time.record(&0, &(), Timestamp(10), 1, Timestamp(0));
    assert_eq!(time.tick(Timestamp(0)), [TimeAction::Emit(TimeSignal::Watermark(Timestamp(9)))]);
    for (timestamp, late) in [(10, 0), (9, 1), (-3, 2)] {
        time.record(&0, &(), Timestamp(timestamp), 2, Timestamp(0));
        assert_eq!(time.late(), late, "{timestamp}");
    }
}

/// [TIM-06] time in which nobody could look proves nothing.
#[test]
fn time_held_up_by_back_pressure_does_not_count_at_the_end_of_a_split() {
    let strategy = WatermarkStrategy::<()>::monotonic().idle_after(Duration::from_millis(10)).unwrap();
    let mut time: SourceTime<(), u32> = SourceTime::new(strategy);
    time.add(0, 0, Timestamp(0));
    time.event(&0, SplitEvent::EndOfPartition { position: 0 }, Timestamp(0));
    time.held_up(Duration::from_millis(990), Timestamp(1_000));
    assert_eq!(time.tick(Timestamp(1_000)), [], "ten of a thousand milliseconds were waited for it");
    let asked = time.tick(Timestamp(1_001));
    let [TimeAction::Ask(0, question)] = asked[..] else { panic!("{asked:?}") };
    time.held_up(Duration::from_secs(6), Timestamp(7_001));
    let answer = SplitEvent::Answer { question, high_watermark: 0 };
    assert_eq!(time.event(&0, answer, Timestamp(7_001)), [], "as old as it is, it tells nothing");
    assert_eq!(time.split(&0).unwrap().0, SplitStatus::CaughtUp, "and nobody is to blame");
}
