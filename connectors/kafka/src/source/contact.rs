//! Whether a client is still of use: one that has lost all brokers for good is replaced by a new one.
//!
//! ```text
//!   knows a broker ── tells of none any more ──▶ has let go: replaced at once
//!   gives no answer ── for long ───────────────▶ is silent: replaced, and the next one is given twice the time
//! ```
//!
//! A broker that has stood still is out of its cluster for a moment, and tells whoever asks it then that there is no broker
//! at all. A client that knew brokers and hears that lets go of every one, those of its configuration included, and asks nobody
//! for five minutes or more. A client that has not known any yet keeps those of its configuration, so a new one comes
//! through. Silence without that is an outage as a rule, from which a client comes back by itself; the new one is for the rest.

use std::time::{Duration, Instant};

use thiserror::Error;

/// How long a client that knows brokers may give no answer before another one tries: in most outages it comes back before, with
/// what it has fetched ahead. One that knows none is given [`LESS`] of it: it may have learned of one and let go between two looks.
const FIRST_PATIENCE: Duration = Duration::from_secs(15);

/// By how much less.
const LESS: u32 = 3;

/// The longest that this grows to in an outage: each client costs threads and connections.
const LONGEST_PATIENCE: Duration = Duration::from_secs(120);

/// Why a client is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum OutOfContact {
    #[error("it was told that the cluster has no broker, and asks nobody any more")]
    HasLetGo,
    #[error("it has had no answer for {0:?}")]
    IsSilent(Duration),
}

/// What is known of one client after the other.
#[derive(Debug)]
pub(super) struct Contact {
    /// Whether this client has known a broker.
    has_known: bool,
    silent_since: Option<Instant>,
    patience: Duration,
}

impl Default for Contact {
    fn default() -> Self {
        Self { has_known: false, silent_since: None, patience: FIRST_PATIENCE }
    }
}

impl Contact {
    /// Notes whether the client knows a broker, and tells whether it has let go of all.
    pub(super) fn has_let_go(&mut self, knows_broker: bool) -> bool {
        self.has_known |= knows_broker;
        self.has_known && !knows_broker
    }

    /// Notes that the client was given an answer.
    pub(super) fn answered(&mut self) {
        self.silent_since = None;
        self.patience = FIRST_PATIENCE;
    }

    /// Notes that the client was given none, and tells how long that is so if it is too long.
    pub(super) fn unanswered(&mut self, knows_broker: bool, now: Instant) -> Option<Duration> {
        let silent = now.saturating_duration_since(*self.silent_since.get_or_insert(now));
        let patience = if knows_broker { self.patience } else { self.patience / LESS };
        (silent >= patience).then_some(silent)
    }

    /// Begins with another client.
    pub(super) fn renewed(&mut self, why: OutOfContact) {
        self.has_known = false;
        self.silent_since = None;
        if matches!(why, OutOfContact::IsSilent(_)) {
            self.patience = (self.patience * 2).min(LONGEST_PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_that_has_known_no_broker_yet_has_not_let_go() {
        let mut contact = Contact::default();
        let looks = [false, true, true, false].map(|knows| contact.has_let_go(knows));
        assert_eq!(looks, [false, false, false, true]);
        contact.renewed(OutOfContact::HasLetGo);
        assert!(!contact.has_let_go(false));
    }

    #[test]
    fn silence_is_counted_from_its_begin_and_ends_with_an_answer() {
        let start = Instant::now();
        for (knows_broker, patience) in [(true, FIRST_PATIENCE), (false, FIRST_PATIENCE / LESS)] {
            let mut contact = Contact::default();
            assert_eq!(contact.unanswered(knows_broker, start), None);
            assert_eq!(contact.unanswered(knows_broker, start + patience / 2), None);
            assert_eq!(contact.unanswered(knows_broker, start + patience), Some(patience));
            contact.answered();
            assert_eq!(contact.unanswered(knows_broker, start + patience), None);
        }
    }

    #[test]
    fn in_a_long_outage_each_client_is_given_more_time_than_the_one_before() {
        let mut contact = Contact::default();
        let mut now = Instant::now();
        let mut lives = Vec::new();
        while lives.len() < 6 {
            contact.unanswered(true, now);
            let silent = loop {
                now += Duration::from_secs(1);
                if let Some(silent) = contact.unanswered(true, now) {
                    break silent;
                }
            };
            lives.push(silent.as_secs());
            contact.renewed(OutOfContact::IsSilent(silent));
        }
        assert_eq!(lives, [15, 30, 60, 120, 120, 120]);
        contact.answered();
        contact.unanswered(true, now);
        assert!(contact.unanswered(true, now + FIRST_PATIENCE).is_some());
    }
}
