//! Bytes and times as people read them.

use std::time::{Duration, SystemTime};

use levada_core::Timestamp;

/// Writes bytes in MiB, with three digits behind the point; what would round to nothing is not shown as nothing.
pub(super) fn mebibytes(bytes: u64) -> String {
    const LEAST_SHOWN: u64 = (1 << 20) / 1000;
    match bytes {
        0 => "0 MiB".to_owned(),
        // A manifest holds sizes below 2^53, which a double counts exactly.
        bytes if bytes > LEAST_SHOWN => format!("{:.3} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => "<0.001 MiB".to_owned(),
    }
}

/// Writes a time as RFC 3339 in UTC with milliseconds; one that has no such form as the number that it is.
pub(crate) fn rfc_3339(time: Timestamp) -> String {
    let distance = Duration::from_millis(time.0.unsigned_abs());
    let moved = if time.0 < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    // The formatter knows the years 1970 to 9999 and fails for others.
    let mut text = String::new();
    let written = moved.filter(|_| (0..=253_402_300_799_999).contains(&time.0)).map(|at| {
        std::fmt::Write::write_fmt(&mut text, format_args!("{}", humantime::format_rfc3339_millis(at)))
    });
    match written {
        Some(Ok(())) => text,
        _ => time.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use levada_core::Timestamp;

    use super::{mebibytes, rfc_3339};

    /// [CHK-18]
    #[test]
    fn sizes_are_in_mebibytes_and_never_nothing_by_rounding() {
        for (bytes, text) in [
            (0, "0 MiB"),
            (1, "<0.001 MiB"),
            (1048, "<0.001 MiB"),
            (1049, "0.001 MiB"),
            (1 << 20, "1.000 MiB"),
            (12_999_999_999, "12397.766 MiB"),
        ] {
            assert_eq!(mebibytes(bytes), text, "{bytes}");
        }
    }

    /// [CHK-18] Whatever number a store holds, it is shown and does not end the program.
    #[test]
    fn times_are_in_utc_and_none_is_too_odd_to_show() {
        for (milliseconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_796_004_000_123, "2026-11-30T02:00:00.123Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "253402300800000 ms"),
            (-1, "-1 ms"),
            (i64::MAX, "9223372036854775807 ms"),
            (i64::MIN, "-9223372036854775808 ms"),
        ] {
            assert_eq!(rfc_3339(Timestamp(milliseconds)), text);
        }
    }
}
