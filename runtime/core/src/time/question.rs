//! Questions to the leader of a split: where does it end?

use std::time::Duration;

use crate::clock::Timestamp;

/// A question to the leader of a split: where does it end, records of open transactions included (in Kafka: the high
/// watermark, asked with isolation `read_uncommitted`)?
///
/// Whoever asks the leader gives it back with the answer, so that an answer to an older question is known as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Counts the questions of one split.
    pub(super) number: u64,
    pub(super) position: u64,
}

impl Question {
    /// An answer that takes this long is none.
    pub const DEADLINE: Duration = Duration::from_secs(5);

    /// The time between two attempts while the leader does not answer, or is behind.
    pub const RETRY: Duration = Duration::from_secs(5);

    /// Returns where reading stood when it was asked.
    pub fn position(self) -> u64 {
        self.position
    }
}

/// The questions of one split: at most one is open.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Questions {
    asked: u64,
    open: Option<(Question, Timestamp)>,
    /// When it was last tried, or when there was first a reason to.
    tried_at: Option<Timestamp>,
}

impl Questions {
    /// Takes care that a clock which was set back does not prolong a deadline.
    pub(super) fn settle(&mut self, now: Timestamp) {
        if let Some((_, asked_at)) = &mut self.open {
            *asked_at = now.min(*asked_at);
        }
        self.tried_at = self.tried_at.map(|tried_at| tried_at.min(now));
    }

    pub(super) fn ask(&mut self, position: u64, now: Timestamp) -> Question {
        self.asked += 1;
        let question = Question { number: self.asked, position };
        self.open = Some((question, now));
        self.tried_at = Some(now);
        question
    }

    /// Whatever the answer will be, it will prove nothing any more.
    pub(super) fn withdraw(&mut self) {
        self.open = None;
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Closes the open question, if it is this one, and returns how long the answer took.
    pub(super) fn close(&mut self, question: Question, now: Timestamp) -> Option<Duration> {
        let (_, asked_at) = self.open.take_if(|(open, _)| *open == question)?;
        Some(now.since(asked_at))
    }

    /// Closes the open question if its time is up, and tells whether it was.
    pub(super) fn expire(&mut self, now: Timestamp) -> bool {
        self.open.take_if(|(_, asked_at)| now.since(*asked_at) >= Question::DEADLINE).is_some()
    }

    pub(super) fn wait_for_retry(&mut self, now: Timestamp) {
        self.tried_at = Some(now);
    }

    pub(super) fn is_retry_due(&self, now: Timestamp) -> bool {
        self.tried_at.is_none_or(|tried_at| now.since(tried_at) >= Question::RETRY)
    }
}
