//! What a test may ask for: where, when, what; and the handle that tells that it has happened.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Error;

/// One of the two directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server: requests.
    ToServer,
    /// From the server to the client: answers.
    ToClient,
}

impl Direction {
    pub(super) const BOTH: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

    pub(super) fn index(self) -> usize {
        match self {
            Direction::ToServer => 0,
            Direction::ToClient => 1,
        }
    }

    pub(super) fn opposite(self) -> Direction {
        match self {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
        }
    }
}

/// The byte at which a rule fires.
///
/// What is counted or searched are the bytes of one connection in one direction that pass from the moment the rule is
/// set; a connection made later has its own count from its first byte. Bytes on their way through a delay, or held, have
/// not passed yet. A pattern is found however the bytes are cut into packets, but only in plain text, not under TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// As soon as this many bytes were forwarded; for 0, when the first byte would be.
    AfterBytes(u64),
    /// As soon as the last byte of the pattern was forwarded. An empty pattern is like `AfterBytes(0)`.
    After(Vec<u8>),
    /// Before the first byte of the pattern is forwarded, when all of it has come. What may become the pattern is
    /// withheld until it is known not to be: until the next byte that does not fit, or the end of the stream. An empty
    /// pattern is like `AfterBytes(0)`.
    ///
    /// So a message that ends with the pattern's beginning never arrives whole if its sender waits for an answer. Take a
    /// pattern whose first byte ends no message: for a query of Postgres, `"\x0bCOMMIT\0"`, with its length, because the
    /// random bytes by which a client logs in end with a `C` once in a hundred times.
    Before(Vec<u8>),
}

impl Trigger {
    /// Fires as soon as `count` bytes were forwarded.
    #[must_use]
    pub fn after_bytes(count: u64) -> Trigger {
        Trigger::AfterBytes(count)
    }

    /// Fires as soon as the last byte of `pattern` was forwarded.
    #[must_use]
    pub fn after(pattern: impl AsRef<[u8]>) -> Trigger {
        Trigger::After(pattern.as_ref().to_vec())
    }

    /// Fires when all of `pattern` has come, and nothing of it was forwarded. See [`Trigger::Before`] for what to begin it with.
    #[must_use]
    pub fn before(pattern: impl AsRef<[u8]>) -> Trigger {
        Trigger::Before(pattern.as_ref().to_vec())
    }
}

/// What a rule does to the one connection that it fires on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Ends the connection: the client sees a reset, the server the end of file after everything that was forwarded.
    Cut,
    /// Ends the rule's direction: its receiver sees the end of file, the other direction goes on.
    HalfClose,
    /// Lets nothing more pass in either direction until [`release`](super::Cut::release); the connection stays open.
    Hold,
}

/// A rule that was set with [`Cut::when`](super::Cut::when); it fires once, on one connection, and stays set when this
/// handle is dropped.
#[derive(Clone, Debug)]
pub struct Rule {
    state: Arc<RuleState>,
}

impl Rule {
    pub(super) fn new(direction: Direction, trigger: Trigger, action: Action) -> Rule {
        let (spent, fired) = (AtomicBool::new(false), Mutex::new(false));
        Rule { state: Arc::new(RuleState { direction, trigger, action, spent, fired, told: Condvar::new() }) }
    }

    pub(super) fn state(&self) -> Arc<RuleState> {
        Arc::clone(&self.state)
    }

    /// Tells whether the rule has fired and its action is done: the reset or the end of file is sent, the hold in force.
    #[must_use]
    pub fn has_fired(&self) -> bool {
        *self.state.fired()
    }

    /// Waits until the rule has fired and its action is done.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] when that has not happened within `patience`.
    pub fn wait(&self, patience: Duration) -> Result<(), Error> {
        let fired = self.state.fired();
        let waited = self.state.told.wait_timeout_while(fired, patience, |fired| !*fired);
        let (fired, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *fired { Ok(()) } else { Err(Error::TimedOut { what: self.state.describe(), after: patience }) }
    }
}

/// A rule as the handle and the relay share it.
#[derive(Debug)]
pub(super) struct RuleState {
    pub(super) direction: Direction,
    pub(super) trigger: Trigger,
    pub(super) action: Action,
    /// Found its byte on some connection, or was healed: every other connection lets it go. The relay alone looks.
    spent: AtomicBool,
    fired: Mutex<bool>,
    told: Condvar,
}

impl RuleState {
    pub(super) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }

    pub(super) fn spend(&self) {
        self.spent.store(true, Ordering::Relaxed);
    }

    /// Tells the waiting that the action is done.
    pub(super) fn tell(&self) {
        *self.fired() = true;
        self.told.notify_all();
    }

    fn fired(&self) -> MutexGuard<'_, bool> {
        // A flag has no state between two that a panic could leave behind.
        self.fired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the rule in words, patterns with their unprintable bytes escaped.
    fn describe(&self) -> String {
        let trigger = match &self.trigger {
            Trigger::AfterBytes(count) => format!("after {count} bytes"),
            Trigger::After(pattern) => format!("after \"{}\"", pattern.escape_ascii()),
            Trigger::Before(pattern) => format!("before \"{}\"", pattern.escape_ascii()),
        };
        format!("{:?} {trigger} {:?}", self.action, self.direction)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Action, Direction, Rule, Trigger};
    use crate::Error;

    /// [TST-04]
    #[test]
    fn a_rule_that_does_not_fire_is_named_by_the_error() {
        let rule = Rule::new(Direction::ToClient, Trigger::before("COMMIT\0"), Action::Cut);
        let error = rule.wait(Duration::ZERO).unwrap_err();
        assert!(
            matches!(&error, Error::TimedOut { what, .. } if what == r#"Cut before "COMMIT\x00" ToClient"#)
        );
        assert!(!rule.has_fired());
    }

    /// [TST-04]
    #[test]
    fn a_rule_that_fires_wakes_the_waiting() {
        let rule = Rule::new(Direction::ToServer, Trigger::after_bytes(1), Action::Hold);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| rule.wait(Duration::from_secs(30)));
            rule.state().tell();
            waiting.join().unwrap().unwrap();
        });
        assert!(rule.has_fired());
    }
}
