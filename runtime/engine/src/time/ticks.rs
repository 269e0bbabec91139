//! When a source task wakes up for the sake of time.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

/// What the step that keeps time asks of its task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeTerms {
    /// The time between two ticks; `None` where one at the start is enough, because nothing happens but by events.
    pub(crate) interval: Option<Duration>,
}

/// Wakes a task once in every interval, and not at all where nobody keeps time.
#[derive(Debug)]
pub(crate) enum Ticks {
    Every(Interval),
    Once,
    /// The one tick has come; what happens is still told to whoever keeps time.
    NoMore,
    /// Nobody keeps time.
    Never,
}

impl Ticks {
    pub(crate) fn new(terms: Option<TimeTerms>) -> Self {
        match terms {
            None => Ticks::Never,
            Some(TimeTerms { interval: None }) => Ticks::Once,
            Some(TimeTerms { interval: Some(period) }) => {
                let mut ticks = interval(period);
                // A task that waited for others does not catch up on what it missed.
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                Ticks::Every(ticks)
            }
        }
    }

    /// Tells whether anybody keeps time.
    pub(crate) fn are_wanted(&self) -> bool {
        !matches!(self, Ticks::Never)
    }

    /// Waits for the next tick; the first comes at once. Cancel safe.
    pub(crate) async fn next(&mut self) {
        match self {
            Ticks::Every(ticks) => {
                ticks.tick().await;
            }
            Ticks::Once => *self = Ticks::NoMore,
            Ticks::NoMore | Ticks::Never => std::future::pending().await,
        }
    }
}
