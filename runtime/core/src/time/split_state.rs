//! When a split is idle: the states of one split, without I/O.
//!
//! ```text
//!              record                    end of partition, for longer than the timeout
//!      ┌───────────────────────┐        ┌──────────────────────────┐
//!      ▼                       │        │                          ▼
//!   Active ──end of partition──▶ CaughtUp ◀───── paused,    ask the leader once
//!      ▲                       ▲        ▲        position          │ high watermark
//!      │ record, watermark     │        │        moved: the        ├── equals the position ──▶ Idle
//!      └───────────────────────┼────────┼─────── answer proves     ├── is above it ──────────▶ Blocked (open transaction)
//!                              │        │        nothing           └── none within 5 s ──────▶ Blocked (broker away), asks again
//!                           Blocked ────┘
//!                  paused · fetch failed · broker away · behind an open transaction: the clock stands still
//! ```

use std::time::Duration;

use super::question::{Question, Questions};
use super::status::{Blocked, OpenTransaction, Pause, Pauses, SplitStatus};
use super::stopwatch::Stopwatch;
use super::strategy::IdleTimeout;
use crate::clock::Timestamp;

/// Something that happened to a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SplitEvent {
    /// A record was emitted.
    Record {
        /// The position behind it.
        next: u64,
    },
    /// The source emitted a watermark of its own.
    Watermark,
    /// Everything that may be read was emitted. Comes in line behind the records. One that lies before the position is old
    /// and ignored.
    EndOfPartition {
        /// The position at the end, past what is not delivered.
        position: u64,
    },
    /// Reading goes on elsewhere.
    Seek {
        /// Where.
        position: u64,
    },
    /// The leader said where the split ends.
    Answer {
        /// What it was asked.
        question: Question,
        /// The end of the split, records of open transactions included.
        high_watermark: u64,
    },
    /// The leader was asked and cannot be reached.
    NoAnswer {
        /// What it was asked.
        question: Question,
    },
    /// The transaction was found that the split is behind.
    Transaction(OpenTransaction),
    /// Somebody lets the split rest.
    Paused(Pause),
    /// He who let the split rest lets it go on.
    Resumed(Pause),
    /// Reading the split fails.
    FetchFailed,
    /// Reading the split works again. A record or an end of partition says so too.
    FetchWorks,
    /// No broker can be reached. A record, an end of partition or an answer says that one is back.
    BrokerAway,
    /// The source says that nothing is to be expected.
    MarkIdle,
    /// Time passes.
    Tick,
}

/// What follows from an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reaction {
    /// Ask the leader now, and report the answer.
    pub ask: Option<Question>,
    /// The split has a new status.
    pub status: Option<SplitStatus>,
}

/// The state of one split that decides whether others wait for it.
///
/// Every event comes with the time at which it happened. [TIM-05] The split becomes idle only when two things are known: it
/// was at its end, unblocked, for longer than the timeout, and the leader, asked since and with nothing changed in between,
/// has nothing beyond the position. [TIM-07] Or because the source says so, whatever else is known.
#[derive(Debug, Clone)]
pub struct SplitState {
    timeout: Option<IdleTimeout>,
    position: u64,
    /// Everything up to the position was emitted, and nothing behind it may be read.
    is_at_end: bool,
    /// Time at the end, without what was spent blocked.
    at_end: Stopwatch,
    questions: Questions,
    pauses: Pauses,
    has_fetch_failed: bool,
    is_broker_away: bool,
    /// What the leader said last about this position.
    verdict: Verdict,
    is_marked_idle: bool,
    status: SplitStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Unknown,
    NothingWaits,
    HasMore { high_watermark: u64, transaction: Option<OpenTransaction> },
    HasLess { high_watermark: u64 },
}

impl SplitState {
    /// Starts to watch a split that is read from `position`. Without a timeout it becomes idle only when the source says so.
    pub fn new(position: u64, timeout: Option<IdleTimeout>) -> Self {
        Self {
            timeout,
            position,
            is_at_end: false,
            at_end: Stopwatch::default(),
            questions: Questions::default(),
            pauses: Pauses::default(),
            has_fetch_failed: false,
            is_broker_away: false,
            verdict: Verdict::Unknown,
            is_marked_idle: false,
            status: SplitStatus::Active,
        }
    }

    /// Returns what the split is doing.
    pub fn status(&self) -> SplitStatus {
        self.status
    }

    /// Returns where reading stands.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Tells who lets the split rest, also while it is marked idle.
    pub fn pauses(&self) -> Pauses {
        self.pauses
    }

    /// Takes an event in, and says what follows.
    pub fn on(&mut self, event: SplitEvent, now: Timestamp) -> Reaction {
        self.at_end.settle(now);
        self.questions.settle(now);
        self.take(event, now);
        let ask = self.question(event, now);
        let status = self.current();
        self.at_end.run(self.is_at_end && !self.is_blocked(), now);
        let changed = (status != self.status).then_some(status);
        self.status = status;
        Reaction { ask, status: changed }
    }

    /// Nobody looked at the split for this long, up to now. [TIM-06]
    pub(super) fn held_up(&mut self, waited: Duration, now: Timestamp) {
        self.at_end.settle(now);
        self.at_end.take_back(waited);
        if waited >= Question::DEADLINE {
            // The answer may have come in time, and was not looked at: it is asked for again.
            self.questions.withdraw();
        }
    }

    fn take(&mut self, event: SplitEvent, now: Timestamp) {
        match event {
            SplitEvent::Record { next } => self.moved(next, false),
            SplitEvent::Seek { position } => self.moved(position, false),
            SplitEvent::EndOfPartition { position } => self.ended(position),
            SplitEvent::Watermark => {
                self.is_marked_idle = false;
                self.prove_anew();
                self.at_end.reset();
            }
            SplitEvent::Answer { question, high_watermark } => self.answered(question, high_watermark, now),
            SplitEvent::NoAnswer { question } => {
                self.is_broker_away |= self.questions.close(question, now).is_some()
            }
            SplitEvent::Transaction(found) => {
                if let Verdict::HasMore { transaction, .. } = &mut self.verdict {
                    *transaction = Some(found);
                }
            }
            SplitEvent::Paused(pause) => {
                self.pauses.set(pause, true);
                self.prove_anew();
            }
            SplitEvent::Resumed(pause) => self.pauses.set(pause, false),
            SplitEvent::FetchFailed => {
                self.has_fetch_failed = true;
                self.prove_anew();
            }
            SplitEvent::FetchWorks => self.has_fetch_failed = false,
            SplitEvent::BrokerAway => self.broker_away(now),
            SplitEvent::MarkIdle => self.is_marked_idle = true,
            SplitEvent::Tick => self.is_broker_away |= self.questions.expire(now),
        }
    }

    /// Reading stands elsewhere: nothing that was known about the end holds any more.
    fn moved(&mut self, position: u64, is_at_end: bool) {
        self.position = position;
        self.is_at_end = is_at_end;
        self.at_end.reset();
        self.questions.withdraw();
        self.verdict = Verdict::Unknown;
        self.has_fetch_failed = false;
        self.is_broker_away = false;
        // What the source said of itself outlives markers that it passes over.
        self.is_marked_idle &= is_at_end;
    }

    fn ended(&mut self, position: u64) {
        let is_known = self.is_at_end && position == self.position;
        if is_known {
            self.has_fetch_failed = false;
            self.is_broker_away = false;
        } else if position >= self.position {
            self.moved(position, true);
        }
    }

    /// Idleness that was proven, or is about to be, must be proven again. That the leader has more stays true.
    fn prove_anew(&mut self) {
        self.questions.withdraw();
        if self.verdict == Verdict::NothingWaits {
            self.verdict = Verdict::Unknown;
        }
    }

    fn broker_away(&mut self, now: Timestamp) {
        if !self.is_broker_away {
            self.questions.wait_for_retry(now);
        }
        self.is_broker_away = true;
        self.prove_anew();
    }

    fn answered(&mut self, question: Question, high_watermark: u64, now: Timestamp) {
        let Some(took) = self.questions.close(question, now) else { return };
        self.is_broker_away = took >= Question::DEADLINE;
        if self.is_broker_away {
            return;
        }
        self.verdict = match high_watermark.cmp(&self.position) {
            std::cmp::Ordering::Greater => Verdict::HasMore { high_watermark, transaction: None },
            std::cmp::Ordering::Less => Verdict::HasLess { high_watermark },
            std::cmp::Ordering::Equal if self.has_waited_enough() => Verdict::NothingWaits,
            // Asked only to learn whether the broker is back.
            std::cmp::Ordering::Equal => Verdict::Unknown,
        };
    }

    /// One question for each way from the end to idleness: asked when time is up, or at once when a pause ends after that.
    fn question(&mut self, event: SplitEvent, now: Timestamp) -> Option<Question> {
        let is_time_to_ask = matches!(event, SplitEvent::Tick | SplitEvent::Resumed(_));
        let can_become_idle = self.timeout.is_some()
            && self.is_at_end
            && self.pauses.is_empty()
            && !self.has_fetch_failed
            && !self.is_marked_idle;
        if !is_time_to_ask || !can_become_idle || self.questions.is_open() {
            return None;
        }
        let is_due = match self.verdict {
            _ if self.is_broker_away => self.questions.is_retry_due(now),
            Verdict::HasLess { .. } => self.questions.is_retry_due(now),
            Verdict::Unknown => self.has_waited_enough(),
            Verdict::NothingWaits | Verdict::HasMore { .. } => false,
        };
        is_due.then(|| self.questions.ask(self.position, now))
    }

    fn has_waited_enough(&self) -> bool {
        self.timeout.is_some_and(|timeout| self.at_end.elapsed() > timeout.get())
    }

    fn current(&self) -> SplitStatus {
        match self.blocked() {
            _ if self.is_marked_idle => SplitStatus::Idle,
            Some(blocked) => SplitStatus::Blocked(blocked),
            None if self.verdict == Verdict::NothingWaits => SplitStatus::Idle,
            None if self.is_at_end => SplitStatus::CaughtUp,
            None => SplitStatus::Active,
        }
    }

    fn is_blocked(&self) -> bool {
        self.blocked().is_some()
    }

    fn blocked(&self) -> Option<Blocked> {
        let position = self.position;
        if !self.pauses.is_empty() {
            return Some(Blocked::Paused(self.pauses));
        }
        if self.has_fetch_failed {
            return Some(Blocked::FetchFailed);
        }
        if self.is_broker_away {
            return Some(Blocked::BrokerAway);
        }
        match self.verdict {
            Verdict::HasMore { high_watermark, transaction } => {
                Some(Blocked::BehindTransaction { position, high_watermark, transaction })
            }
            Verdict::HasLess { high_watermark } => Some(Blocked::AheadOfLeader { position, high_watermark }),
            Verdict::Unknown | Verdict::NothingWaits => None,
        }
    }
}
