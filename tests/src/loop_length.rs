//! How long crash loops take.

use std::env;
use std::time::Duration;

/// Returns how long a crash loop lasts: `short` seconds, `long` ones if `LEVADA_CRASH_LONG` is set, and always
/// `LEVADA_CRASH_SECONDS` if that is.
///
/// # Panics
/// Panics if `LEVADA_CRASH_SECONDS` is no whole number.
pub fn loop_length(short: u64, long: u64) -> Duration {
    let by_kind = if env::var_os("LEVADA_CRASH_LONG").is_some() { long } else { short };
    let seconds = env::var("LEVADA_CRASH_SECONDS")
        .map_or(by_kind, |text| text.parse().expect("LEVADA_CRASH_SECONDS is a whole number"));
    Duration::from_secs(seconds)
}
