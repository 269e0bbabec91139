//! The state of a split, read off the whole history each time: nothing is carried from one event to the next but the
//! history itself, with what became of questions and why the split was blocked.

use std::cmp::Ordering;
use std::time::Duration;

use levada_core::Timestamp;
use levada_core::time::{
    Blocked, IdleTimeout, OpenTransaction, Pause, Question, SplitEvent, SplitState, SplitStatus,
};

use crate::dice::{Dice, histories};

use SplitEvent::{
    Answer, BrokerAway, EndOfPartition, FetchFailed, FetchWorks, MarkIdle, NoAnswer, Paused, Record, Resumed,
    Seek, Tick, Watermark,
};
use SplitStatus::Idle;

/// One event, when it happened, and what followed.
#[derive(Debug, Clone, Copy)]
struct Entry {
    event: SplitEvent,
    at: i64,
    asked: Option<Question>,
    /// What became of the open question: nothing, or an answer, or none in time. Read off the history up to here.
    settled: Option<Option<u64>>,
    /// Why the split was blocked after it, also where the status is hidden behind a mark.
    blocked: Option<Blocked>,
}

struct Model<'a> {
    start: u64,
    timeout: Option<i64>,
    log: &'a [Entry],
    /// Where the last record or seek left the position, and its place in the history.
    base: (u64, Option<usize>),
    /// The farthest end of partition since then that is not old, and its first place in the history.
    end: Option<(u64, usize)>,
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
    fn new(start: u64, timeout: Option<i64>, log: &'a [Entry]) -> Self {
        let mut model = Self { start, timeout, log, base: (start, None), end: None };
        model.base = model.base();
        model.end = model.end();
        model
    }

    /// The same history up to and with `index`.
    fn until(&self, index: usize) -> Model<'a> {
        Model::new(self.start, self.timeout, &self.log[..=index])
    }

    fn last(&self, is: impl Fn(SplitEvent) -> bool) -> Option<usize> {
        self.log.iter().rposition(|entry| is(entry.event))
    }

    fn base(&self) -> (u64, Option<usize>) {
        let index = self.last(|event| matches!(event, SplitEvent::Record { .. } | SplitEvent::Seek { .. }));
        let position = index.map_or(self.start, |index| match self.log[index].event {
            SplitEvent::Record { next: position } | SplitEvent::Seek { position } => position,
            other => unreachable!("{other:?}"),
        });
        (position, index)
    }

    fn end(&self) -> Option<(u64, usize)> {
        let (base, index) = self.base;
        let from = index.map_or(0, |index| index + 1);
        let ends = (from..self.log.len()).filter_map(|index| match self.log[index].event {
            SplitEvent::EndOfPartition { position } if position >= base => Some((position, index)),
            _ => None,
        });
        ends.max_by_key(|(position, index)| (*position, std::cmp::Reverse(*index)))
    }

    fn position(&self) -> u64 {
        self.end.map_or(self.base.0, |(position, _)| position)
    }

    /// The place of the event that last moved the position or first reached the end.
    fn moved(&self) -> Option<usize> {
        self.end.map_or(self.base.1, |(_, index)| Some(index))
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
        let Some((_, end)) = self.end else { return 0 };
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
    fn settled(&self) -> Option<Option<u64>> {
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

    fn blocked(&self) -> Option<Blocked> {
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

    fn is_marked_idle(&self) -> bool {
        let ends = |event| {
            matches!(event, SplitEvent::Record { .. } | SplitEvent::Seek { .. } | SplitEvent::Watermark)
        };
        self.last(|event| event == SplitEvent::MarkIdle).is_some_and(|index| !self.has_since(index, ends))
    }

    fn status(&self) -> SplitStatus {
        match self.blocked() {
            _ if self.is_marked_idle() => SplitStatus::Idle,
            Some(blocked) => SplitStatus::Blocked(blocked),
            None if self.verdict() == Verdict::NothingWaits => SplitStatus::Idle,
            None if self.end.is_some() => SplitStatus::CaughtUp,
            None => SplitStatus::Active,
        }
    }

    /// Whether the last event makes it ask.
    fn asks(&self) -> bool {
        let last = self.log.len() - 1;
        let is_time = matches!(self.log[last].event, SplitEvent::Tick | SplitEvent::Resumed(_));
        let is_open = self.open_before(last).is_some() && self.log[last].settled.is_none();
        let can = self.timeout.is_some()
            && self.end.is_some()
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

const PAUSES: [Pause; 3] = [Pause::Drift, Pause::BackPressure, Pause::User];

/// A pause that is on, if one is.
fn pause_of(split: &SplitState, dice: &mut Dice) -> Pause {
    let on = PAUSES.into_iter().find(|pause| split.pauses().contains(*pause));
    on.unwrap_or_else(|| dice.pick(&PAUSES))
}

/// Mostly what leads to idleness, and everything that may come in between.
fn event(dice: &mut Dice, split: &SplitState, asked: &[Question]) -> SplitEvent {
    let position = split.position();
    let near = (position + dice.below(3)).saturating_sub(1);
    match dice.below(32) {
        0..2 => Record { next: position + 1 + dice.below(2) },
        2..6 => EndOfPartition { position: if dice.one_in(4) { near } else { position } },
        6..14 if !asked.is_empty() => {
            let question = if dice.one_in(5) { dice.pick(asked) } else { asked[asked.len() - 1] };
            Answer { question, high_watermark: if dice.one_in(3) { near } else { position } }
        }
        14 if !asked.is_empty() => NoAnswer { question: dice.pick(asked) },
        15 => Watermark,
        16 => Seek { position: near },
        17 => SplitEvent::Transaction(OpenTransaction { producer_id: dice.below(3) as i64, since: None }),
        18 => Paused(dice.pick(&PAUSES)),
        19..23 => Resumed(pause_of(split, dice)),
        23 => dice.pick(&[FetchFailed, FetchWorks, BrokerAway, MarkIdle]),
        _ => Tick,
    }
}

/// [TIM-05] [TIM-06] [TIM-07] [TIM-19]
#[test]
fn any_history_of_a_split_gives_what_the_model_reads_off_all_of_it() {
    let (mut proofs, mut blocked) = (0, [0; 5]);
    histories(|dice| {
        let timeout = dice.pick(&[Some(10), Some(10), Some(10), None]);
        let limit = timeout.map(|limit| IdleTimeout::new(Duration::from_millis(limit as u64)).unwrap());
        let mut split = SplitState::new(10, limit);
        let mut log: Vec<Entry> = Vec::new();
        let mut asked: Vec<Question> = Vec::new();
        let mut at = 0;
        for _ in 0..dice.below(16) {
            at += dice.pick(&[0, 1, 5, 10, 11, 11, 4_989, 5_000]);
            let event = event(dice, &split, &asked);
            log.push(Entry { event, at, asked: None, settled: None, blocked: None });
            let settled = Model::new(10, timeout, &log).settled();
            log.last_mut().expect("just pushed").settled = settled;
            let was_idle = split.status() == Idle;
            let reaction = split.on(event, Timestamp(at));
            let model = Model::new(10, timeout, &log);
            let same = same_pauses(split.status(), model.status(), &split);
            assert_eq!(same, model.status(), "{log:#?}");
            assert_eq!(reaction.ask.is_some(), model.asks(), "{log:#?}");
            if same == Idle && !was_idle && !model.is_marked_idle() {
                proofs += 1;
            }
            if let SplitStatus::Blocked(reason) = same {
                blocked[number(reason)] += 1;
            }
            let reason = model.blocked();
            asked.extend(reaction.ask);
            let entry = log.last_mut().expect("just pushed");
            (entry.asked, entry.blocked) = (reaction.ask, reason);
        }
    });
    println!("{proofs} proofs, blocked {blocked:?}");
    let is_broad = proofs > 1000 && blocked.iter().all(|count| *count > 1000);
    assert!(is_broad || std::env::var("LEVADA_HISTORY").is_ok());
}

/// The model knows only that somebody pauses; who does, the split says.
fn same_pauses(status: SplitStatus, model: SplitStatus, split: &SplitState) -> SplitStatus {
    match (status, model) {
        (SplitStatus::Blocked(Blocked::Paused(pauses)), SplitStatus::Blocked(Blocked::Paused(_))) => {
            assert_eq!(pauses, split.pauses());
            assert!(!pauses.is_empty());
            model
        }
        _ => status,
    }
}

fn number(reason: Blocked) -> usize {
    match reason {
        Blocked::Paused(_) => 0,
        Blocked::FetchFailed => 1,
        Blocked::BrokerAway => 2,
        Blocked::BehindTransaction { .. } => 3,
        _ => 4,
    }
}
