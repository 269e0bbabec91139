//! From a pipeline's settings to the strategy by which its source tells time.

use std::borrow::Cow;

use chrono::{DateTime, NaiveDateTime};
use levada_core::time::{StrategyError, TimestampFrom, WatermarkStrategy, WithoutTimestamp};
use levada_core::{Change, Keyed, Timestamp, Value};

use crate::config::{EventTimePart, TimeField, TimeFrom, Unit, WatermarkPart, WithoutTime};

/// The group of partitions that wait for each other: a process runs one pipeline, so there is one.
const GROUP: &str = "pipeline";

/// Makes the strategy.
///
/// # Errors
/// A time that must be more than nothing is nothing; the pipeline file is refused before that.
pub fn strategy(
    time: &EventTimePart,
    part: &WatermarkPart,
) -> Result<WatermarkStrategy<Keyed>, StrategyError> {
    let from = match &time.from {
        TimeFrom::Record => TimestampFrom::Origin,
        TimeFrom::Field(field) => {
            let field = field.clone();
            TimestampFrom::field(move |change| of_change(change, &field))
        }
    };
    let otherwise = match time.without {
        WithoutTime::Fail => WithoutTimestamp::Fail,
        WithoutTime::TakeRecord => WithoutTimestamp::TakeOrigin,
    };
    let mut strategy = WatermarkStrategy::bounded_out_of_orderness(part.bound)
        .timestamps(from, otherwise)
        .every(part.every)?;
    if let Some(timeout) = part.idle_after {
        strategy = strategy.idle_after(timeout)?;
    }
    if let Some(max_drift) = part.max_drift {
        strategy = strategy.within_drift(GROUP, max_drift);
    }
    Ok(strategy)
}

/// Returns the time that a field of the row says. Key columns are fields of the row, so a tombstone may have one there.
/// Nothing where the field is absent, null, of another kind, or beyond all times.
pub fn of_change(change: &Keyed, field: &TimeField) -> Option<Timestamp> {
    let in_key = change.key.as_ref().and_then(|key| key.get(&field.name));
    let in_row = match &change.change {
        Change::Upsert(row) => row.get(&field.name),
        Change::Delete => None,
    };
    of_value(in_key.or(in_row)?, field)
}

fn of_value(value: &Value, field: &TimeField) -> Option<Timestamp> {
    match value {
        Value::Number(number) => counted(number.as_str(), field.unit?),
        Value::Int(number) => counted(&number.to_string(), field.unit?),
        Value::Text(text) => written(text.as_str(), field.assume_utc),
        Value::Timestamp { micros, is_instant } if *is_instant || field.assume_utc => {
            Some(Timestamp(micros.div_euclid(1000)))
        }
        _ => None,
    }
}

/// Reads RFC 3339, also with a blank in place of the `T`; without an offset only where that means UTC.
fn written(text: &str, assume_utc: bool) -> Option<Timestamp> {
    let of_offset = DateTime::parse_from_rfc3339(text).map(|time| time.timestamp_millis());
    let without = || {
        let text: Cow<'_, str> = match text.get(10..11) {
            Some(" ") => text.replacen(' ', "T", 1).into(),
            _ => text.into(),
        };
        NaiveDateTime::parse_from_str(&text, "%Y-%m-%dT%H:%M:%S%.f")
            .map(|time| time.and_utc().timestamp_millis())
    };
    match (of_offset, assume_utc) {
        (Ok(millis), _) => Some(Timestamp(millis)),
        (Err(_), true) => without().ok().map(Timestamp),
        (Err(_), false) => None,
    }
}

/// Reads a number in JSON's grammar as a time since 1970. Parts of a millisecond are cut, towards the past. Exact: nothing
/// goes through a double.
fn counted(number: &str, unit: Unit) -> Option<Timestamp> {
    let shift = match unit {
        Unit::Seconds => 3,
        Unit::Millis => 0,
        Unit::Micros => -3,
        Unit::Nanos => -6,
    };
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let fraction_digits = i32::try_from(fraction.len()).ok()?;
    let power = exponent.parse::<i32>().ok()?.checked_add(shift)?.checked_sub(fraction_digits)?;
    let scale = 10_i128.checked_pow(power.unsigned_abs());
    let millis = match (scale, power < 0) {
        (Some(scale), false) => digits.checked_mul(scale)?,
        (Some(scale), true) => digits.div_euclid(scale),
        (None, false) if digits != 0 => return None,
        (None, _) => digits.signum().min(0),
    };
    i64::try_from(millis).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use levada_core::{Row, Shape, Text};

    use super::*;

    fn field(unit: Option<Unit>, assume_utc: bool) -> TimeField {
        TimeField { name: "at".to_owned(), unit, assume_utc }
    }

    fn row(value: Value) -> Row {
        Row::new(Shape::new(["at"]), vec![value])
    }

    fn millis(value: Value, field: &TimeField) -> Option<i64> {
        let change = Keyed { key: None, change: Change::Upsert(row(value)) };
        of_change(&change, field).map(|time| time.0)
    }

    /// [TIM-03] a field's part: what a number counts is the unit's to say, exactly.
    #[test]
    fn numbers_count_in_their_unit() {
        let number = |text: &str| Value::Number(Text::from(text));
        for (text, unit, expected) in [
            ("1356998400", Unit::Seconds, Some(1_356_998_400_000)),
            ("1356998400.1239", Unit::Seconds, Some(1_356_998_400_123)),
            ("1.3569984e9", Unit::Seconds, Some(1_356_998_400_000)),
            ("1356998400123", Unit::Millis, Some(1_356_998_400_123)),
            ("1356998400123999", Unit::Micros, Some(1_356_998_400_123)),
            ("1356998400123999999", Unit::Nanos, Some(1_356_998_400_123)),
            ("-1", Unit::Nanos, Some(-1)),
            ("-1e-99", Unit::Seconds, Some(-1)),
            ("0e99", Unit::Seconds, Some(0)),
            ("9007199254740993", Unit::Millis, Some(9_007_199_254_740_993)),
            ("1e30", Unit::Millis, None),
            ("1e999999999999", Unit::Millis, None),
        ] {
            assert_eq!(millis(number(text), &field(Some(unit), false)), expected, "{text} {unit:?}");
        }
        assert_eq!(millis(Value::Int(7), &field(Some(Unit::Seconds), false)), Some(7000));
    }

    /// [TIM-03] a field's part: texts.
    #[test]
    fn texts_without_an_offset_are_times_only_where_that_means_utc() {
        let text = |text: &str, assume_utc| millis(Value::Text(Text::from(text)), &field(None, assume_utc));
        assert_eq!(text("2013-01-01T00:00:00Z", false), Some(1_356_998_400_000));
        assert_eq!(text("2013-01-01 02:00:00.5+02:00", false), Some(1_356_998_400_500));
        for without in ["2013-01-01T00:00:00.25", "2013-01-01 00:00:00.25"] {
            assert_eq!((text(without, false), text(without, true)), (None, Some(1_356_998_400_250)));
        }
    }

    /// [TIM-03] a field's part: a wrong kind is no time, and is never guessed at.
    #[test]
    fn other_kinds_are_no_time() {
        let number = Value::Number(Text::from("1356998400"));
        assert_eq!(millis(number, &field(None, true)), None, "nobody said what it counts");
        let any = field(Some(Unit::Millis), true);
        let texts = ["", "soon", "1356998400", "2013-13-01T00:00:00Z", "2013-01-01"];
        let values = texts.map(|text| Value::Text(Text::from(text))).into_iter();
        for value in values.chain([Value::Null, Value::Bool(true), Value::List(vec![Value::Int(1)])]) {
            assert_eq!(millis(value.clone(), &any), None, "{value:?}");
        }
        let other = TimeField { name: "other".to_owned(), ..any };
        assert_eq!(millis(Value::Int(1), &other), None, "absent");
    }

    #[test]
    fn key_columns_are_fields_of_the_row() {
        let at = field(Some(Unit::Millis), false);
        let key = Some(row(Value::Int(5)));
        let other = Row::new(Arc::clone(row(Value::Null).shape()), vec![Value::Int(6)]);
        for change in [Change::Delete, Change::Upsert(other)] {
            assert_eq!(of_change(&Keyed { key: key.clone(), change }, &at), Some(Timestamp(5)));
        }
    }
}
