//! Histories: what happens to a job, written down by hand or drawn from a seed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::fuse::Side;

/// One thing that happens.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// So many records come, dealt to the subtasks in turn, in batches.
    Write(u64),
    /// A barrier passes all subtasks.
    Barrier(Fate),
    /// A notification of a complete checkpoint comes late or once more: of the newest for 0, of the one before for 1.
    Notify(usize),
    /// The process dies between two calls, and another one starts with so many subtasks.
    Crash(u32),
    /// The process is closed, and another one starts with so many subtasks.
    Close(u32),
    /// The process will die in the call behind so many others.
    Light(u32, Side),
    /// The process dies, and so does the next one while it starts, in the call behind so many others.
    CrashTwice(u32, Side),
    /// The stream ends: the last checkpoint, its notification, and the close. The last event of every history.
    End,
}

/// What becomes of a checkpoint whose barrier has passed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fate {
    /// It is complete, and everybody is told.
    Complete,
    /// It is complete, and one subtask is told.
    HalfTold,
    /// It is complete, and nobody is told.
    Untold,
    /// It is aborted.
    Aborted,
    /// Its state is not stored, and nobody hears of it again.
    Unstored,
}

/// A history in which a checkpoint is complete and one is not, and notifications come, get lost, and come late.
pub(crate) const EVENTFUL: [Event; 10] = [
    Event::Write(3),
    Event::Barrier(Fate::Untold),
    Event::Write(3),
    Event::Barrier(Fate::Aborted),
    Event::Write(3),
    Event::Barrier(Fate::Complete),
    Event::Write(2),
    Event::Barrier(Fate::Untold),
    Event::Notify(0),
    Event::Write(2),
];

/// How many random histories are played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histories {
    pub(crate) bound: Bound,
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Count(u64),
    Time(Duration),
}

/// A hundred, always the same.
impl Default for Histories {
    fn default() -> Self {
        Self::count(100)
    }
}

impl Histories {
    /// Plays so many.
    pub fn count(count: u64) -> Self {
        Self { bound: Bound::Count(count), seed: 1 }
    }

    /// Plays as many as begin within this time, at least one.
    pub fn within(time: Duration) -> Self {
        Self { bound: Bound::Time(time), seed: 1 }
    }

    /// Sets the seed of the first; each further one has the next number.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Plays one history again, from the seed in its [`Failure`](crate::Failure).
    pub fn replay(seed: u64) -> Self {
        Self::count(1).seed(seed)
    }

    /// Returns the seeds, for as long as the bound admits.
    pub(crate) fn seeds(self) -> impl Iterator<Item = u64> {
        let begun = std::time::Instant::now();
        let is_within = move |played: u64| match self.bound {
            Bound::Count(count) => played < count,
            Bound::Time(time) => played == 0 || begun.elapsed() < time,
        };
        (0..).take_while(move |played| is_within(*played)).map(move |played| self.seed.wrapping_add(played))
    }
}

/// Draws a history.
pub(crate) fn drawn(seed: u64) -> (u32, Vec<Event>) {
    let mut rng = StdRng::seed_from_u64(seed);
    let parallelism = rng.random_range(1..=3);
    let length = rng.random_range(1..=30);
    (parallelism, (0..length).map(|_| event(&mut rng)).collect())
}

fn event(rng: &mut StdRng) -> Event {
    match rng.random_range(0..24) {
        0..=6 => Event::Write(rng.random_range(1..=6)),
        7..=13 => Event::Barrier(fate(rng)),
        14..=16 => Event::Notify(rng.random_range(0..3)),
        17..=19 => Event::Light(rng.random_range(0..8), side(rng)),
        20 => Event::CrashTwice(rng.random_range(0..6), side(rng)),
        21 => Event::Close(rng.random_range(1..=3)),
        _ => Event::Crash(rng.random_range(1..=3)),
    }
}

fn fate(rng: &mut StdRng) -> Fate {
    match rng.random_range(0..9) {
        0..=3 => Fate::Complete,
        4 => Fate::HalfTold,
        5 | 6 => Fate::Untold,
        7 => Fate::Aborted,
        _ => Fate::Unstored,
    }
}

pub(crate) fn side(rng: &mut StdRng) -> Side {
    if rng.random() { Side::Before } else { Side::After }
}
