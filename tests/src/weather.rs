//! Bad weather on the network: faults drawn from a seed, between a program and its servers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use levada_testcontainers::{Action, Cut, Direction, Trigger, wait_until};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// How long a line is held at most: shorter than any patience of the program, so that it must go on as before.
const HELD: Duration = Duration::from_millis(800);

/// What has happened to one line, by name of the fault.
#[derive(Debug, Default)]
pub struct Weather {
    faults: BTreeMap<&'static str, u32>,
}

impl Weather {
    /// Hurts a line again and again until `end`, then heals it.
    pub fn over(cut: &Cut, seed: u64, end: Instant) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut weather = Self::default();
        while Instant::now() < end {
            pause(Duration::from_millis(random.random_range(100..1500)));
            let fault = weather.strike(cut, &mut random);
            *weather.faults.entry(fault).or_default() += 1;
        }
        cut.heal();
        weather
    }

    /// Returns how many faults there were.
    pub fn faults(&self) -> u32 {
        self.faults.values().sum()
    }

    fn strike(&self, cut: &Cut, random: &mut StdRng) -> &'static str {
        let direction = if random.random() { Direction::ToServer } else { Direction::ToClient };
        match random.random_range(0..5) {
            0 => {
                cut.cut_all();
                "all cut"
            }
            1 => {
                let bytes = random.random_range(0..20_000);
                cut.when(direction, Trigger::after_bytes(bytes), Action::Cut);
                "cut after bytes"
            }
            2 => {
                cut.half_close(direction);
                "half closed"
            }
            3 => {
                cut.hold();
                pause(HELD.mul_f64(random.random()));
                cut.release();
                "held"
            }
            _ => {
                cut.delay(Duration::from_millis(random.random_range(1..100)));
                pause(HELD);
                cut.delay(Duration::ZERO);
                "slow"
            }
        }
    }
}

impl fmt::Display for Weather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> = self.faults.iter().map(|(name, count)| format!("{count} {name}")).collect();
        write!(f, "{} faults: {}", self.faults(), each.join(", "))
    }
}

/// Lets time pass: the fault itself is a matter of time.
fn pause(duration: Duration) {
    let begun = Instant::now();
    wait_until(duration + Duration::from_secs(10), "a while", || begun.elapsed() >= duration)
        .expect("time passes");
}
