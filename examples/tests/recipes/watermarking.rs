//! What the sensors print.

use crate::program::run;

/// [TPL-03] timestamps, watermarks and idleness of a source's own, for each of its splits.
#[test]
fn watermark_goes_on_without_the_sensor_that_sleeps_and_what_that_brings_is_late() {
    let printed = run(env!("CARGO_BIN_EXE_watermarking_source"), &[]);
    let of = |line: &str| printed.lines().filter(|printed| printed.starts_with(line)).collect::<Vec<_>>();
    let on_time = [
        "on time: thermometer at 1, no watermark yet",
        "on time: barometer at 2, no watermark yet",
        "on time: thermometer at 3, watermark 1",
        "on time: thermometer at 5, watermark 3",
        "on time: thermometer at 8, watermark 5",
        "on time: barometer at 7, watermark 5",
        "on time: thermometer at 9, watermark 8",
    ];
    assert_eq!(of("on time"), on_time);
    assert_eq!(of("late:"), ["late: barometer at 4, watermark 5", "late: 1 late"]);
    assert_eq!(of("print"), ["print: 0 late", "print late: 1 late"]);
}
