use std::time::Duration;

use levada_core::Timestamp;
use levada_core::time::{BoundedOutOfOrderness, BoxGenerator, NoWatermarks, Punctuated, WatermarkGenerator};

use crate::dice::histories;

const NOW: Timestamp = Timestamp(0);

fn bounded(bound: u64) -> BoundedOutOfOrderness {
    BoundedOutOfOrderness::new(Duration::from_millis(bound))
}

fn fed(mut generator: impl WatermarkGenerator<()>, timestamps: &[i64]) -> Option<i64> {
    for timestamp in timestamps {
        assert_eq!(generator.on_event(&(), Timestamp(*timestamp)), None, "only the interval emits");
    }
    let watermark = generator.on_periodic(NOW);
    assert_eq!(generator.on_periodic(NOW), watermark, "asking again changes nothing");
    watermark.map(|watermark| watermark.0)
}

/// [TIM-01]
#[test]
fn watermark_is_the_newest_timestamp_less_the_bound_less_one() {
    let cases: [(u64, &[i64], i64); 9] = [
        (10, &[], i64::MIN),
        (10, &[1337], 1326),
        (10, &[1337, 1340, 1330, 12], 1329),
        (0, &[5], 4),
        (0, &[i64::MIN], i64::MIN),
        (10, &[i64::MIN + 3], i64::MIN),
        (10, &[i64::MIN + 12], i64::MIN + 1),
        (u64::MAX, &[1337], i64::MIN),
        (0, &[i64::MAX], i64::MAX - 1),
    ];
    for (bound, timestamps, expected) in cases {
        assert_eq!(fed(bounded(bound), timestamps), Some(expected), "bound {bound}, {timestamps:?}");
    }
    assert_eq!(fed(BoundedOutOfOrderness::monotonic(), &[1337, 1338]), Some(1337));
}

/// [TIM-01] A promise is rather too weak than too strong.
#[test]
fn part_of_a_millisecond_of_the_bound_counts_as_a_whole_one() {
    let generator = BoundedOutOfOrderness::new(Duration::from_micros(9_001));
    assert_eq!(fed(generator, &[1337]), Some(1326));
}

/// [TIM-02]
#[test]
fn punctuated_generator_emits_behind_the_record_that_says_so() {
    let mut generator: BoxGenerator<&str> =
        Box::new(Punctuated::new(|item: &&str, timestamp| item.ends_with('!').then_some(timestamp)));
    assert_eq!(generator.on_event(&"a", Timestamp(1)), None);
    assert_eq!(generator.on_event(&"b!", Timestamp(2)), Some(Timestamp(2)));
    assert_eq!(generator.on_periodic(NOW), None);
}

#[test]
fn no_watermarks_are_none() {
    assert_eq!(fed(NoWatermarks, &[1, i64::MAX]), None);
}

/// [TIM-01] [TIM-19]
#[test]
fn any_history_of_timestamps_gives_what_the_model_computes_from_scratch() {
    let extremes = [i64::MIN, i64::MIN + 1, i64::MIN + 20, 0, i64::MAX - 1, i64::MAX];
    histories(|dice| {
        let bound = dice.pick(&[0, 1, 10, 1000, i64::MAX as u64, u64::MAX]);
        let mut generator = bounded(bound);
        let mut seen: Vec<i64> = Vec::new();
        for _ in 0..dice.below(10) {
            let timestamp =
                if dice.one_in(8) { dice.pick(&extremes) } else { dice.below(2000) as i64 - 1000 };
            seen.push(timestamp);
            generator.on_event(&(), Timestamp(timestamp));
            let exact = seen.iter().max().map(|newest| i128::from(*newest) - i128::from(bound) - 1);
            let expected = exact.unwrap_or(i128::MIN).max(i128::from(i64::MIN));
            assert_eq!(i128::from(generator.watermark().0), expected, "bound {bound}, {seen:?}");
        }
    });
}
