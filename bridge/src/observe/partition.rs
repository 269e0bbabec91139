//! How one partition stands.

use std::fmt;
use std::time::Duration;

use levada_core::time::{Blocked, OpenTransaction, Pause, SplitStatus};
use levada_core::{SplitId, Timestamp};
use levada_engine::{SplitTimes, TimeSnapshot};
use levada_kafka::{SourceStatus, SplitStanding};

use super::known;
use crate::checkpoint::units::rfc_3339;

/// How one partition stands, as of about a second ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Topic and partition.
    pub split: SplitId,
    /// The first offset that was not read yet.
    pub position: Option<u64>,
    /// The first offset that is not committed with its rows yet.
    pub committed: Option<u64>,
    /// The end of the partition, open transactions included.
    pub high_watermark: Option<u64>,
    /// The end of what may be read, where that is known: where the partition was read up to it.
    pub last_stable_offset: Option<u64>,
    /// How many offsets the position is behind the high watermark.
    pub lag: Option<u64>,
    /// How many offsets the position is behind the last stable offset.
    pub stable_lag: Option<u64>,
    /// How old the record read last is; nothing where all is read.
    pub time_lag: Option<Duration>,
    /// How long it has stood in front of an open transaction.
    pub behind_transaction: Option<Duration>,
    /// Whether that transaction hangs.
    pub is_hanging: bool,
    /// Its watermark, if there is one.
    pub watermark: Option<Timestamp>,
    /// How far the watermark is behind the wall clock.
    pub watermark_lag: Option<Duration>,
    /// What it is doing.
    pub status: Status,
    /// Records read since the start.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// How its time was spent since it was added; nothing without watermarks.
    pub spent: Option<Spent>,
}

/// How a partition's time was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Read, or at its end.
    pub active: Duration,
    /// Idle.
    pub idle: Duration,
    /// Kept from being read.
    pub blocked: Duration,
    /// Resting, because it is ahead of the others.
    pub paused: Duration,
}

/// What a partition is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// Records come, or may be on their way.
    Active,
    /// Read to its end.
    CaughtUp,
    /// Proven to have nothing.
    Idle,
    /// Something keeps records from coming.
    Blocked {
        /// One word for it, of a few: fit for a label.
        cause: &'static str,
        /// In a few words, with what is known.
        reason: String,
    },
}

impl Status {
    /// Returns its name.
    pub fn name(&self) -> &'static str {
        match self {
            Status::Active => "active",
            Status::CaughtUp => "caught_up",
            Status::Idle => "idle",
            Status::Blocked { .. } => "blocked",
        }
    }

    /// Returns one word for what blocks it; nothing where it is not blocked.
    pub fn cause(&self) -> &'static str {
        match self {
            Status::Blocked { cause, .. } => cause,
            _ => "",
        }
    }

    fn blocked(cause: &'static str, reason: impl Into<String>) -> Self {
        Status::Blocked { cause, reason: reason.into() }
    }
}

/// Prints `blocked (behind an open transaction, at 10 of 15)`.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Blocked { reason, .. } => write!(f, "blocked ({reason})"),
            Status::CaughtUp => f.write_str("caught up"),
            other => f.write_str(other.name()),
        }
    }
}

impl From<SplitStatus> for Status {
    fn from(status: SplitStatus) -> Self {
        match status {
            SplitStatus::CaughtUp => Status::CaughtUp,
            SplitStatus::Idle => Status::Idle,
            SplitStatus::Blocked(blocked) => Status::blocked(cause(blocked), reason(blocked)),
            _ => Status::Active,
        }
    }
}

fn cause(blocked: Blocked) -> &'static str {
    match blocked {
        Blocked::Paused(pauses) if pauses.contains(Pause::User) => "user",
        Blocked::Paused(pauses) if pauses.contains(Pause::Drift) => "drift",
        Blocked::Paused(_) => "back_pressure",
        Blocked::FetchFailed => "fetch_failed",
        Blocked::BrokerAway => "broker_away",
        Blocked::BehindTransaction { .. } => "open_transaction",
        Blocked::AheadOfLeader { .. } => "ahead_of_leader",
        _ => "other",
    }
}

/// Says what blocks a partition; a time in the way of the rest of the log.
fn reason(blocked: Blocked) -> String {
    match blocked {
        Blocked::BehindTransaction { position, high_watermark, transaction } => {
            behind(position, high_watermark, transaction)
        }
        other => other.to_string(),
    }
}

fn behind(position: u64, high_watermark: u64, transaction: Option<OpenTransaction>) -> String {
    let text = format!("behind an open transaction, at {position} of {high_watermark}");
    let Some(OpenTransaction { producer_id, since }) = transaction else { return text };
    let since = since.map_or_else(String::new, |since| format!(" since {}", rfc_3339(since)));
    format!("{text}, producer {producer_id}{since}")
}

impl Partition {
    /// Makes a partition of which nothing is known yet.
    pub fn unread(split: SplitId) -> Self {
        Self {
            split,
            position: None,
            committed: None,
            high_watermark: None,
            last_stable_offset: None,
            lag: None,
            stable_lag: None,
            time_lag: None,
            behind_transaction: None,
            is_hanging: false,
            watermark: None,
            watermark_lag: None,
            status: Status::Active,
            records: 0,
            bytes: 0,
            spent: None,
        }
    }

    pub(super) fn of(standing: &SplitStanding, source: &SourceStatus, now: Timestamp) -> Self {
        Self {
            position: Some(standing.position),
            high_watermark: standing.high_watermark,
            last_stable_offset: standing.last_stable_offset,
            lag: standing.lag(),
            stable_lag: standing.stable_lag(),
            time_lag: standing.time_lag(now),
            behind_transaction: standing.behind_transaction,
            is_hanging: standing.is_hanging,
            status: status(standing, source),
            records: standing.records,
            bytes: standing.bytes,
            ..Self::unread(standing.split.clone())
        }
    }

    /// Adds what whoever keeps time knows of it.
    pub(super) fn keep_time(&mut self, times: &SplitTimes, snapshot: &TimeSnapshot) {
        self.watermark = known(times.watermark);
        self.watermark_lag = snapshot.lag(times.watermark);
        let spent = times.spent;
        self.spent = Some(Spent {
            active: spent.active,
            idle: spent.idle,
            blocked: spent.blocked,
            paused: spent.ahead,
        });
        self.status = joined(times.status.into(), self.status.clone());
    }
}

/// Joins what whoever keeps time says with what the source says. Who need not ask a leader for the sake of idleness knows of
/// no transaction; the source does.
fn joined(of_time: Status, of_source: Status) -> Status {
    match (&of_time, &of_source) {
        (Status::Active | Status::CaughtUp, Status::Blocked { .. }) => of_source,
        _ => of_time,
    }
}

/// Says what a partition is doing by what the source knows. Never idle: for that its leader must be asked.
fn status(standing: &SplitStanding, source: &SourceStatus) -> Status {
    if source.is_cut_off() {
        return Status::blocked("broker_away", "no broker can be reached");
    }
    if source.is_held_back() {
        return Status::blocked("back_pressure", "paused by back-pressure");
    }
    match (standing.behind_transaction, standing.high_watermark) {
        (Some(_), Some(high)) => {
            Status::blocked("open_transaction", behind(standing.position, high, standing.transaction))
        }
        (None, Some(high)) if high == standing.position => Status::CaughtUp,
        _ => Status::Active,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [TIM-06] [SRC-29] whose it is, and since when, as far as that is known.
    #[test]
    fn an_open_transaction_is_named() {
        let named = |transaction| {
            let blocked = Blocked::BehindTransaction { position: 10, high_watermark: 15, transaction };
            Status::from(SplitStatus::Blocked(blocked)).to_string()
        };
        let of = |since| Some(OpenTransaction { producer_id: 4001, since });
        assert_eq!(named(None), "blocked (behind an open transaction, at 10 of 15)");
        assert_eq!(named(of(None)), "blocked (behind an open transaction, at 10 of 15, producer 4001)");
        let since = Some(Timestamp(1_356_998_400_000));
        assert_eq!(
            named(of(since)),
            "blocked (behind an open transaction, at 10 of 15, producer 4001 since 2013-01-01T00:00:00.000Z)"
        );
    }

    /// Without an idle timeout nobody asks the leader, and the split would be caught up for ever in front of a transaction.
    #[test]
    fn what_blocks_a_partition_is_seen_whoever_knows_of_it() {
        let (user, open) = (Status::blocked("user", "paused"), Status::blocked("open_transaction", "open"));
        assert_eq!(joined(Status::CaughtUp, open.clone()), open);
        assert_eq!(joined(Status::Active, open.clone()), open);
        assert_eq!(joined(user.clone(), open), user);
        assert_eq!(joined(Status::Idle, Status::CaughtUp), Status::Idle, "only who keeps time knows");
        assert_eq!(joined(Status::CaughtUp, Status::Active), Status::CaughtUp);
    }
}
