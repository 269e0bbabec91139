use std::time::Duration;

use levada_core::batch::RawRecord;
use levada_core::time::{
    MissingTimestamp, MissingTimestamps, StrategyError, TimestampFrom, WatermarkGenerator as _,
    WatermarkStrategy, WithoutTimestamp,
};
use levada_core::{BatchBuilder, Origin, SplitId, Timestamp, TimestampKind};

fn origin(timestamp: Option<i64>) -> Origin {
    let mut builder = BatchBuilder::new();
    let split = builder.split(&SplitId::new("flights", 0));
    let timestamp_kind = if timestamp.is_some() { TimestampKind::Create } else { TimestampKind::None };
    let timestamp = Timestamp(timestamp.unwrap_or(-1));
    builder.push(split, RawRecord { timestamp, timestamp_kind, ..RawRecord::default() });
    builder.finish().0.records()[0].origin
}

fn by_field(otherwise: WithoutTimestamp) -> WatermarkStrategy<Option<i64>> {
    let field = TimestampFrom::field(|item: &Option<i64>| item.map(Timestamp));
    WatermarkStrategy::monotonic().timestamps(field, otherwise)
}

/// [TIM-05] the timeout's part.
#[test]
fn zero_as_idle_timeout_or_interval_is_rejected() {
    let strategy = WatermarkStrategy::<()>::monotonic;
    assert_eq!(strategy().idle_after(Duration::ZERO).err(), Some(StrategyError::ZeroIdleTimeout));
    assert_eq!(strategy().every(Duration::ZERO).err(), Some(StrategyError::ZeroInterval));
    let timeout = strategy().idle_after(Duration::from_nanos(1)).unwrap().idle_timeout();
    assert_eq!(timeout.map(|timeout| timeout.get()), Some(Duration::from_nanos(1)));
}

/// [TIM-02] the interval's part.
#[test]
fn strategy_without_options_asks_every_200_ms_and_makes_nobody_idle_and_nobody_wait() {
    let strategy = WatermarkStrategy::<()>::none();
    assert_eq!(strategy.interval(), Duration::from_millis(200));
    assert_eq!((strategy.idle_timeout(), strategy.drift()), (None, None));
}

#[test]
fn every_split_has_its_own_generator() {
    let strategy = WatermarkStrategy::<()>::bounded_out_of_orderness(Duration::from_millis(10));
    let (mut one, mut other) = (strategy.generator(), strategy.generator());
    one.on_event(&(), Timestamp(1337));
    assert_eq!(one.on_periodic(Timestamp(0)), Some(Timestamp(1326)));
    assert_eq!(other.on_periodic(Timestamp(0)), Some(Timestamp::MIN));
}

/// [TIM-03]
#[test]
fn timestamp_comes_from_the_origin_or_from_a_field() {
    let mut own = WatermarkStrategy::<()>::monotonic().assigner();
    assert_eq!(own.assign(&origin(Some(7)), &()), Ok(Timestamp(7)));
    let mut field = by_field(WithoutTimestamp::Fail).assigner();
    assert_eq!(field.assign(&origin(Some(7)), &Some(5)), Ok(Timestamp(5)));
    assert_eq!(field.missing(), MissingTimestamps::default());
}

/// [TIM-03]
#[test]
fn record_without_a_timestamp_goes_by_the_policy_and_is_counted() {
    let (fails, refused) =
        (Err(MissingTimestamp { is_refused: false }), Err(MissingTimestamp { is_refused: true }));
    let cases = [
        (WithoutTimestamp::Fail, Some(7), fails),
        (WithoutTimestamp::TakeOrigin, Some(7), Ok(Timestamp(7))),
        (WithoutTimestamp::TakeOrigin, None, fails),
        (WithoutTimestamp::Refuse, Some(7), refused),
    ];
    for (otherwise, of_origin, expected) in cases {
        let mut assigner = by_field(otherwise).assigner();
        assert_eq!(assigner.assign(&origin(of_origin), &None), expected, "{otherwise:?}, {of_origin:?}");
        let missing = assigner.missing();
        let counts = [missing.failed, missing.taken_from_origin, missing.refused];
        let expected = [fails == expected, expected.is_ok(), refused == expected].map(u64::from);
        assert_eq!(counts, expected, "{otherwise:?}, {of_origin:?}");
    }
}

/// [TIM-03]
#[test]
fn record_for_which_the_source_has_no_timestamp_fails_unless_told_otherwise() {
    let mut assigner = WatermarkStrategy::<()>::monotonic().assigner();
    assert_eq!(assigner.assign(&origin(None), &()), Err(MissingTimestamp { is_refused: false }));
    assert_eq!(assigner.missing().failed, 1);
}
