//! What can be chosen before a loop begins.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::plan::Point;
use super::{Life, Outcome};

/// What an oracle or an action of the caller returns: nothing, or what is wrong.
///
/// A text is an error, too: `Err("a row is missing".into())`. Panicking is as good: the log is shown either way.
pub type Verdict = Result<(), Box<dyn std::error::Error + Send + Sync>>;

pub(super) type Oracle<'a> = Box<dyn FnMut(&Outcome) -> Verdict + 'a>;
pub(super) type Action<'a> = Box<dyn FnMut(&mut Life) -> Verdict + 'a>;

/// How long a loop goes on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    Lasting(Duration),
    Lives(u32),
}

/// Kills a child process at fail points and at random moments, again and again.
///
/// The child is to run without end, or at least for longer than a life: if it ends by itself, the loop fails.
///
/// ```
/// use std::process::Command;
/// use std::time::Duration;
/// use levada_testcontainers::crash::CrashLoop;
///
/// let report = CrashLoop::new("sleepers")
///     .lives(3)
///     .moments(Duration::from_millis(1)..=Duration::from_millis(20))
///     .run(|_number| {
///         let mut sleeper = Command::new("sleep");
///         sleeper.arg("600");
///         sleeper
///     })?;
/// assert_eq!(report.at_random(), 3);
/// # Ok::<(), levada_testcontainers::Error>(())
/// ```
pub struct CrashLoop<'a> {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
    pub(super) moments: RangeInclusive<Duration>,
    pub(super) share_of_points: f64,
    pub(super) length: Length,
    pub(super) patience: Duration,
    pub(super) seed: Option<u64>,
    pub(super) may_finish: bool,
    pub(super) actions: Vec<(String, Action<'a>)>,
    pub(super) oracle: Option<Oracle<'a>>,
}

impl<'a> CrashLoop<'a> {
    /// Which passings of a fail point are drawn unless told otherwise.
    const PASSINGS: RangeInclusive<u32> = 1..=20;

    /// Names the loop. The name is part of the seed: loops of different names have different plans.
    #[must_use]
    pub fn new(name: impl Into<String>) -> CrashLoop<'a> {
        CrashLoop {
            name: name.into(),
            points: Vec::new(),
            moments: Duration::from_millis(50)..=Duration::from_millis(2500),
            share_of_points: 0.6,
            length: Length::Lasting(Duration::from_secs(30)),
            patience: Duration::from_secs(10),
            seed: None,
            may_finish: false,
            actions: Vec::new(),
            oracle: None,
        }
    }

    /// Adds fail points of the child, to be killed at their first to twentieth passing in a life.
    #[must_use]
    pub fn points<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> CrashLoop<'a> {
        for name in names {
            if !self.points.iter().any(|point| point.name == name.as_ref()) {
                self.set(name.as_ref(), Self::PASSINGS, false);
            }
        }
        self
    }

    /// Adds a fail point, or changes it, with the passings that may be drawn: `1..=1` for one that is passed once in a
    /// life.
    #[must_use]
    pub fn point(mut self, name: &str, passings: RangeInclusive<u32>) -> CrashLoop<'a> {
        // Passings are counted from 1.
        self.set(name, (*passings.start()).max(1)..=*passings.end(), false);
        self
    }

    /// Adds a fail point, or changes it, that is passed only when something is done to the child or its surroundings.
    ///
    /// It is not drawn with the others. Once, when half of the loop is over, a life begins that is to end there, and
    /// `action` is run beside it; it may wait for the life's log or end. If the point is missed, another life tries.
    #[must_use]
    pub fn in_the_middle(
        mut self,
        name: &str,
        action: impl FnMut(&mut Life) -> Verdict + 'a,
    ) -> CrashLoop<'a> {
        self.set(name, 1..=1, true);
        self.actions.retain(|(point, _)| point != name);
        self.actions.push((name.to_owned(), Box::new(action)));
        self
    }

    /// Sets how long the loop goes on; 30 s unless set. The last life may end later.
    ///
    /// Points at which nobody was killed come first in the second half, and the loop goes on for them after its end, for
    /// as long again at most.
    #[must_use]
    pub fn lasting(mut self, duration: Duration) -> CrashLoop<'a> {
        self.length = Length::Lasting(duration);
        self
    }

    /// Lets the loop go on for a number of lives instead; again, twice as many at most.
    #[must_use]
    pub fn lives(mut self, lives: u32) -> CrashLoop<'a> {
        self.length = Length::Lives(lives);
        self
    }

    /// Sets the range of random moments, as times since the start of the child; 50 ms to 2.5 s unless set.
    ///
    /// Whole milliseconds are drawn, and the child is looked at every 10 ms.
    #[must_use]
    pub fn moments(mut self, moments: RangeInclusive<Duration>) -> CrashLoop<'a> {
        self.moments = moments;
        self
    }

    /// Sets which part of the lives ends at fail points, from 0 to 1; 0.6 unless set.
    #[must_use]
    pub fn share_of_points(mut self, share: f64) -> CrashLoop<'a> {
        self.share_of_points = share;
        self
    }

    /// Sets how long a life may take to come to its fail point before it is killed where it is; 10 s unless set.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> CrashLoop<'a> {
        self.patience = patience;
        self
    }

    /// Sets the seed; that of [`seed`](super::seed()) unless set.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> CrashLoop<'a> {
        self.seed = Some(seed);
        self
    }

    /// Lets the child end by itself if it ends with success.
    #[must_use]
    pub fn may_finish(mut self) -> CrashLoop<'a> {
        self.may_finish = true;
        self
    }

    /// Looks after each life, before the next begins.
    #[must_use]
    pub fn after_each(mut self, oracle: impl FnMut(&Outcome) -> Verdict + 'a) -> CrashLoop<'a> {
        self.oracle = Some(Box::new(oracle));
        self
    }

    fn set(&mut self, name: &str, passings: RangeInclusive<u32>, needs_action: bool) {
        let point = Point { name: name.to_owned(), passings, needs_action };
        match self.points.iter_mut().find(|known| known.name == name) {
            Some(known) => *known = point,
            None => self.points.push(point),
        }
    }
}

impl fmt::Debug for CrashLoop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashLoop")
            .field("name", &self.name)
            .field("points", &self.points)
            .field("length", &self.length)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}
