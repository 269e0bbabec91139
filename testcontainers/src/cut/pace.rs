//! The throttle: how many bytes may leave when.

use std::time::{Duration, Instant};

/// The time whose bytes leave at once: short beside what a test can measure, long beside a turn of the relay.
const SLICE: Duration = Duration::from_millis(20);

/// The pace of one direction of one connection.
#[derive(Debug)]
pub(super) struct Pace {
    /// When the bytes that left are through.
    free_at: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace { free_at: now }
    }

    /// Returns how many bytes may leave now at this many bytes per second; without a rate, any number.
    pub(super) fn allows(&self, rate: Option<u64>, now: Instant) -> usize {
        match rate {
            None => usize::MAX,
            Some(_) if now < self.free_at => 0,
            Some(rate) => usize::try_from(rate / 50).unwrap_or(usize::MAX).max(1),
        }
    }

    /// Notes that bytes have left.
    pub(super) fn left(&mut self, bytes: usize, rate: Option<u64>, now: Instant) {
        let Some(rate) = rate else { return };
        // A thread that woke late may catch up by one slice, and no more: an idle line saves nothing up.
        let earliest = now.checked_sub(SLICE).unwrap_or(now);
        let start = self.free_at.max(earliest);
        self.free_at = start + Duration::from_secs_f64(bytes as f64 / rate as f64);
    }

    /// Returns when the next byte may leave.
    pub(super) fn free_at(&self) -> Instant {
        self.free_at
    }

    /// Forgets what has left.
    pub(super) fn reset(&mut self, now: Instant) {
        self.free_at = now;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Pace;

    /// [TST-04] However late the sender looks each time.
    #[test]
    fn bytes_take_their_time_at_every_rate() {
        for (rate, total) in [(10_u64, 30_usize), (1_000, 5_000), (1_000_000, 3_000_000)] {
            let start = Instant::now();
            let (mut now, mut pace, mut sent) = (start, Pace::new(start), 0);
            while sent < total {
                let allowed = pace.allows(Some(rate), now).min(total - sent);
                sent += allowed;
                pace.left(allowed, Some(rate), now);
                now = pace.free_at().max(now) + Duration::from_millis(1);
            }
            let ideal = total as f64 / rate as f64;
            let taken = (now - start).as_secs_f64();
            assert!(taken > ideal * 0.95 && taken < ideal * 1.1, "{total} bytes at {rate}/s: {taken} s");
        }
    }

    /// [TST-04]
    #[test]
    fn an_idle_line_saves_nothing_up() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let later = start + Duration::from_secs(60);
        pace.left(1000, Some(1000), later);
        assert_eq!(pace.allows(Some(1000), later + Duration::from_millis(900)), 0);
    }
}
