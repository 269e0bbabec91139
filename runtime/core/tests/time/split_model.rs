//! The state of a split, read off the whole history each time: nothing is carried from one event to the next but the
//! history itself, with what became of questions and why the split was blocked.

use std::cmp::Ordering;
use std::time::Duration;

use levada_core::Timestamp;
use levada_core::time::{Blocked, OpenTransaction, Pause, Question, SplitEvent, SplitStatus};

/// One event, when it happened, and what followed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) event: SplitEvent,
    pub(crate) at: i64,
    pub(crate) asked: Option<Question>,
    /// What became of the open question: nothing, or an answer, or none in time. Read off the history up to here.
    pub(crate) settled: Option<Option<u64>>,
    /// Why the split was blocked after it, also where the status is hidden behind a mark.
    pub(crate) blocked: Option<Blocked>,
}

pub(crate) struct Model<'a> {
    pub(crate) start: u64,
    pub(crate) timeout: Option<i64>,
    pub(crate) log: &'a [Entry],
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    Unknown,
    NothingWaits,
    More(u64),
    Less(u64),
}

fn deadline() -> i64 {
    Question::DEADLINE.as_millis() as i64
}

impl<'a> Model<'a> {
    /// The same history up to and with `index`.
    fn until(&self, index: usize) -> Model<'a> {
        Model { log: &self.log[..=index], ..*self }
    }

    fn last(&self, is: impl Fn(SplitEvent) -> bool) -> Option<usize> {
        self.log.iter().rposition(|entry| is(entry.event))
    }

    /// Where the last record or seek left the position, and its place in the history.
    fn base(&self) -> (u64, Option<usize>) {
        let index = self.last(|event| matches!(event, SplitEvent::Record { .. } | SplitEvent::Seek { .. }));
        let position = index.map_or(self.start, |index| match self.log[index].event {
            SplitEvent::Record { next: position } | SplitEvent::Seek { position } => position,
            other => unreachable!("{other:?}"),
        });
        (position, index)
    }

    /// The farthest end of partition since then that is not old, and its first place in the history.
    fn end(&self) -> Option<(u64, usize)> {
        let (base, index) = self.base();
        let from = index.map_or(0, |index| index + 1);
        let ends = (from..self.log.len()).filter_map(|index| match self.log[index].event {
            SplitEvent::EndOfPartition { position } if position >= base => Some((position, index)),
            _ => None,
        });
        ends.max_by_key(|(position, index)| (*position, std::cmp::Reverse(*index)))
    }

    fn position(&self) -> u64 {
        self.end().map_or(self.base().0, |(position, _)| position)
    }

    /// The place of the event that last moved the position or first reached the end.
    fn moved(&self) -> Option<usize> {
        self.end().map_or(self.base().1, |(_, index)| Some(index))
    }

    fn has_since(&self, index: usize, is: impl Fn(SplitEvent) -> bool) -> bool {
        self.log[index + 1..].iter().any(|entry| is(entry.event))
    }

    fn has_moved_since(&self, index: usize) -> bool {
        self.moved().is_some_and(|moved| moved > index)
    }

    /// Whether something has happened since that makes a proof, or an answer still to come, worthless.
    fn is_void_since(&self, index: usize) -> bool {
        let voids = |event| {
            matches!(
                event,
                SplitEvent::Watermark
                    | SplitEvent::Paused(_)
                    | SplitEvent::FetchFailed
                    | SplitEvent::BrokerAway
            )
        };
        self.has_moved_since(index) || self.has_since(index, voids)
    }

    /// Time at the end and unblocked, since the position moved or the source emitted a watermark.
    fn waited(&self) -> i64 {
        let Some((_, end)) = self.end() else { return 0 };
        let from =
            self.last(|event| event == SplitEvent::Watermark).map_or(end, |watermark| watermark.max(end));
        let between = self.log[from..].windows(2).filter(|pair| pair[0].blocked.is_none());
        between.map(|pair| (pair[1].at - pair[0].at).max(0)).sum()
    }

    fn has_waited_enough(&self) -> bool {
        self.timeout.is_some_and(|timeout| self.waited() > timeout)
    }

    fn is_paused_by(&self, pause: Pause) -> bool {
        let last =
            self.last(|event| event == SplitEvent::Paused(pause) || event == SplitEvent::Resumed(pause));
        last.is_some_and(|index| self.log[index].event == SplitEvent::Paused(pause))
    }

    fn is_paused(&self) -> bool {
        [Pause::Drift, Pause::BackPressure, Pause::User].iter().any(|pause| self.is_paused_by(*pause))
    }

    /// Whether the event at `index` shows that records can be read.
    fn shows_reading(&self, index: usize) -> bool {
        match self.log[index].event {
            SplitEvent::Record { .. } | SplitEvent::Seek { .. } => true,
            SplitEvent::EndOfPartition { position } => position >= self.until(index).position(),
            _ => false,
        }
    }

    fn has_fetch_failed(&self) -> bool {
        let deciding = (0..self.log.len()).rev().find(|index| {
            let event = self.log[*index].event;
            matches!(event, SplitEvent::FetchFailed | SplitEvent::FetchWorks) || self.shows_reading(*index)
        });
        deciding.is_some_and(|index| self.log[index].event == SplitEvent::FetchFailed)
    }

    /// The place of the question that is open before the event at `index`.
    fn open_before(&self, index: usize) -> Option<usize> {
        let asked = (0..index).rev().find(|asked| self.log[*asked].asked.is_some())?;
        let is_settled = (asked + 1..index).any(|at| self.log[at].settled.is_some());
        let is_void = self.until(index - 1).is_void_since(asked);
        (!is_settled && !is_void).then_some(asked)
    }

    /// What became of the open question at the last event.
    pub(crate) fn settled(&self) -> Option<Option<u64>> {
        let index = self.log.len() - 1;
        let asked = self.open_before(index)?;
        let question = self.log[asked].asked;
        let is_late = self.log[index].at - self.log[asked].at >= deadline();
        match self.log[index].event {
            SplitEvent::Answer { question: to, high_watermark } if Some(to) == question => {
                Some((!is_late).then_some(high_watermark))
            }
            SplitEvent::NoAnswer { question: to } if Some(to) == question => Some(None),
            SplitEvent::Tick if is_late => Some(None),
            _ => None,
        }
    }

    fn is_broker_away(&self) -> bool {
        for index in (0..self.log.len()).rev() {
            if self.log[index].event == SplitEvent::BrokerAway {
                return true;
            }
            if self.shows_reading(index) {
                return false;
            }
            if let Some(answer) = self.log[index].settled {
                return answer.is_none();
            }
        }
        false
    }

    fn last_answer(&self) -> Option<(u64, usize)> {
        let answers = (0..self.log.len()).rev();
        answers.filter_map(|index| Some((self.log[index].settled??, index))).next()
    }

    fn verdict(&self) -> Verdict {
        let Some((high_watermark, index)) =
            self.last_answer().filter(|(_, index)| !self.has_moved_since(*index))
        else {
            return Verdict::Unknown;
        };
        match high_watermark.cmp(&self.position()) {
            Ordering::Greater => Verdict::More(high_watermark),
            Ordering::Less => Verdict::Less(high_watermark),
            Ordering::Equal if self.until(index).has_waited_enough() && !self.is_void_since(index) => {
                Verdict::NothingWaits
            }
            Ordering::Equal => Verdict::Unknown,
        }
    }

    fn transaction(&self) -> Option<OpenTransaction> {
        let (_, answered) = self.last_answer()?;
        self.log[answered..].iter().rev().find_map(|entry| match entry.event {
            SplitEvent::Transaction(open) => Some(open),
            _ => None,
        })
    }

    pub(crate) fn blocked(&self) -> Option<Blocked> {
        let position = self.position();
        if self.is_paused() {
            // Who pauses is compared by the caller, who can ask the split.
            return Some(Blocked::Paused(Default::default()));
        }
        if self.has_fetch_failed() {
            return Some(Blocked::FetchFailed);
        }
        if self.is_broker_away() {
            return Some(Blocked::BrokerAway);
        }
        match self.verdict() {
            Verdict::More(high_watermark) => {
                Some(Blocked::BehindTransaction { position, high_watermark, transaction: self.transaction() })
            }
            Verdict::Less(high_watermark) => Some(Blocked::AheadOfLeader { position, high_watermark }),
            Verdict::Unknown | Verdict::NothingWaits => None,
        }
    }

    pub(crate) fn is_marked_idle(&self) -> bool {
        let ends = |event| {
            matches!(event, SplitEvent::Record { .. } | SplitEvent::Seek { .. } | SplitEvent::Watermark)
        };
        self.last(|event| event == SplitEvent::MarkIdle).is_some_and(|index| !self.has_since(index, ends))
    }

    pub(crate) fn status(&self) -> SplitStatus {
        match self.blocked() {
            _ if self.is_marked_idle() => SplitStatus::Idle,
            Some(blocked) => SplitStatus::Blocked(blocked),
            None if self.verdict() == Verdict::NothingWaits => SplitStatus::Idle,
            None if self.end().is_some() => SplitStatus::CaughtUp,
            None => SplitStatus::Active,
        }
    }

    /// Whether the last event makes it ask.
    pub(crate) fn asks(&self) -> bool {
        let last = self.log.len() - 1;
        let is_time = matches!(self.log[last].event, SplitEvent::Tick | SplitEvent::Resumed(_));
        let is_open = self.open_before(last).is_some() && self.log[last].settled.is_none();
        let can = self.timeout.is_some()
            && self.end().is_some()
            && !self.is_paused()
            && !self.has_fetch_failed()
            && !self.is_marked_idle();
        if !is_time || is_open || !can {
            return false;
        }
        let is_away = self.is_broker_away();
        match self.verdict() {
            Verdict::More(_) | Verdict::NothingWaits if !is_away => false,
            Verdict::Unknown if !is_away => self.has_waited_enough(),
            _ => self.since_last_try(last) >= Duration::from_secs(5),
        }
    }

    fn since_last_try(&self, last: usize) -> Duration {
        let tried = |index: &usize| {
            let begins_to_be_away = self.log[*index].event == SplitEvent::BrokerAway
                && (*index == 0 || !self.until(*index - 1).is_broker_away());
            self.log[*index].asked.is_some() || begins_to_be_away
        };
        let tried = (0..last).rev().find(tried).expect("it was tried before");
        Timestamp(self.log[last].at).since(Timestamp(self.log[tried].at))
    }
}
