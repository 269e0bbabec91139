//! The clock that tells the age of what is kept.

use levada_core::{Clock, SystemClock, Timestamp};

/// The machine's clock as of its last tick, a few milliseconds ago at most. Reading the time to the nanosecond for each answer out of the
/// cache took a seventh of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TickClock;

impl Clock for TickClock {
    fn now(&self) -> Timestamp {
        last_tick().unwrap_or_else(|| SystemClock.now())
    }
}

#[cfg(target_os = "linux")]
fn last_tick() -> Option<Timestamp> {
    use nix::time::{ClockId, clock_gettime};

    let time = clock_gettime(ClockId::CLOCK_REALTIME_COARSE).ok()?;
    Some(Timestamp(time.tv_sec() * 1000 + time.tv_nsec() / 1_000_000))
}

#[cfg(not(target_os = "linux"))]
fn last_tick() -> Option<Timestamp> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_close_behind_the_machines_and_never_ahead() {
        let (before, now) = (TickClock.now(), SystemClock.now());
        assert!(now.since(before).as_millis() < 1000, "{before} is far from {now}");
        assert!(before.since(now).is_zero(), "{before} is ahead of {now}");
    }
}
