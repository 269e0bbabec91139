//! Dates and timestamps: counted from 2000 on by the server, from 1970 on by values.

use levada_core::Value;

use crate::sink::encode::civil_from_days;

const EPOCH_DAYS: i32 = 10_957;
const MICROS_PER_DAY: i64 = 86_400_000_000;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * MICROS_PER_DAY;

fn infinity(is_positive: bool) -> Value {
    Value::Text(if is_positive { "infinity" } else { "-infinity" }.into())
}

pub(super) fn date(days: i32) -> Value {
    match days {
        i32::MAX => infinity(true),
        i32::MIN => infinity(false),
        // The server's last day is far from the end of 32 bits.
        _ => days.checked_add(EPOCH_DAYS).map_or_else(|| infinity(true), Value::Date),
    }
}

pub(super) fn timestamp(micros: i64, is_instant: bool) -> Value {
    match micros {
        i64::MAX => infinity(true),
        i64::MIN => infinity(false),
        _ => match micros.checked_add(EPOCH_MICROS) {
            Some(micros) => Value::Timestamp { micros, is_instant },
            None => Value::Text(literal(micros, is_instant).into()),
        },
    }
}

/// Writes the server's last thirty years, which do not fit into 64 bits from 1970 on.
fn literal(micros: i64, is_instant: bool) -> String {
    let days = micros.div_euclid(MICROS_PER_DAY) + i64::from(EPOCH_DAYS);
    let of_day = micros.rem_euclid(MICROS_PER_DAY);
    let (year, month, day) = civil_from_days(days);
    let (seconds, fraction) = (of_day / 1_000_000, of_day % 1_000_000);
    let zone = if is_instant { "Z" } else { "" };
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{fraction:06}{zone}")
}
