//! What a split is doing, as far as time is concerned.

use std::fmt;

use crate::clock::Timestamp;

/// What a split is doing. Only an idle one is left out of the merged watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SplitStatus {
    /// Records come, or may be on their way.
    Active,
    /// Read to its end, and nothing is proven yet.
    CaughtUp,
    /// Nothing is waiting to be read: proven by the leader, or said by the source.
    Idle,
    /// Nothing comes, and that proves nothing. [TIM-06] Never idle.
    Blocked(Blocked),
}

impl SplitStatus {
    /// Tells whether others need not wait for this split.
    pub fn is_idle(self) -> bool {
        self == SplitStatus::Idle
    }

    /// Tells whether something keeps records from coming.
    pub fn is_blocked(self) -> bool {
        matches!(self, SplitStatus::Blocked(_))
    }
}

/// What keeps records of a split from coming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blocked {
    /// We paused it.
    Paused(Pauses),
    /// Reading it fails.
    FetchFailed,
    /// The leader gives no answer.
    BrokerAway,
    /// The leader has more than may be read: a transaction is open. In between, records may also just be on their way.
    BehindTransaction {
        /// Where reading stands.
        position: u64,
        /// Where the partition ends.
        high_watermark: u64,
        /// The transaction, once somebody has looked for it.
        transaction: Option<OpenTransaction>,
    },
    /// The leader has less than was read: it has lost records, or has not caught up.
    AheadOfLeader {
        /// Where reading stands.
        position: u64,
        /// Where the partition ends.
        high_watermark: u64,
    },
}

/// A transaction that readers of committed records wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Whose it is.
    pub producer_id: i64,
    /// Since when.
    pub since: Option<Timestamp>,
}

/// Who lets a split rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pause {
    /// It is ahead of its group.
    Drift,
    /// What was read is not taken fast enough.
    BackPressure,
    /// The user.
    User,
}

/// All who let a split rest; it goes on when the last of them has let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pauses {
    drift: bool,
    back_pressure: bool,
    user: bool,
}

impl Pauses {
    /// Tells whether `pause` is one of them.
    pub fn contains(self, pause: Pause) -> bool {
        match pause {
            Pause::Drift => self.drift,
            Pause::BackPressure => self.back_pressure,
            Pause::User => self.user,
        }
    }

    /// Tells whether nobody lets the split rest.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    pub(super) fn set(&mut self, pause: Pause, is_paused: bool) {
        match pause {
            Pause::Drift => self.drift = is_paused,
            Pause::BackPressure => self.back_pressure = is_paused,
            Pause::User => self.user = is_paused,
        }
    }
}

/// Prints the reason for people: `behind an open transaction, at 10 of 15`.
impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocked::Paused(pauses) => write!(f, "paused by {pauses}"),
            Blocked::FetchFailed => f.write_str("reading fails"),
            Blocked::BrokerAway => f.write_str("the leader does not answer"),
            Blocked::BehindTransaction { position, high_watermark, transaction } => {
                write!(f, "behind an open transaction, at {position} of {high_watermark}")?;
                transaction.map_or(Ok(()), |open| write!(f, ", {open}"))
            }
            Blocked::AheadOfLeader { position, high_watermark } => {
                write!(f, "ahead of the leader, at {position} of {high_watermark}")
            }
        }
    }
}

impl fmt::Display for OpenTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "producer {}", self.producer_id)?;
        self.since.map_or(Ok(()), |since| write!(f, " since {since}"))
    }
}

/// Prints all of them: `the user and back-pressure`.
impl fmt::Display for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [(self.user, "the user"), (self.drift, "drift"), (self.back_pressure, "back-pressure")];
        let names: Vec<_> = names.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
        f.write_str(&names.join(" and "))
    }
}
