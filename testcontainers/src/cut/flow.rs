//! One direction of one connection: from the bytes that its source sent to those that its target may have.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::gate::Gate;
use super::line::{End, Item, Line};
use super::pace::Pace;
use super::rule::RuleState;

/// What is to be done to the sockets once everything before it was forwarded.
#[derive(Debug)]
pub(super) enum Step {
    /// The action of a rule that fired.
    Act(Arc<RuleState>),
    /// Tell the target the end of file.
    Finish,
    /// Reset the target, as the source was.
    Reset,
}

/// Whether the source still sends.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    Open,
    /// A write to it failed, so its end is a reset even if a read says end of file.
    Lost,
    Ended,
}

/// Whether the target still gets what comes.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Open,
    /// It gets what is outgoing, then the end of file; what comes after that is discarded.
    Finishing,
    /// It was told the end of file, or is gone.
    Finished,
}

/// The state of one direction.
#[derive(Debug)]
pub(super) struct Flow {
    line: Line,
    gate: Gate,
    /// What may be forwarded and was not yet.
    outgoing: VecDeque<u8>,
    pace: Pace,
    /// Rules that fired at the end of `outgoing`; nothing enters it before they have acted.
    fired: VecDeque<Arc<RuleState>>,
    /// An end of the stream after `outgoing`.
    ending: Option<End>,
    source: Source,
    target: Target,
}

impl Flow {
    pub(super) fn new(now: Instant) -> Flow {
        Flow {
            line: Line::default(),
            gate: Gate::default(),
            outgoing: VecDeque::new(),
            pace: Pace::new(now),
            fired: VecDeque::new(),
            ending: None,
            source: Source::Open,
            target: Target::Open,
        }
    }

    /// Tells whether another read of the source is wanted while `window` bytes may wait.
    pub(super) fn wants(&self, window: usize) -> bool {
        self.source != Source::Ended && self.line.bytes() + self.outgoing.len() < window
    }

    /// Takes bytes from the source that arrive when they are due.
    pub(super) fn take(&mut self, bytes: &[u8], due: Instant) {
        if self.target == Target::Open {
            self.line.push(due, Item::Bytes(bytes.to_vec()));
        }
    }

    /// Takes the end of the source's stream.
    pub(super) fn end(&mut self, end: End, due: Instant) {
        let end = if self.source == Source::Lost { End::Reset } else { end };
        self.source = Source::Ended;
        self.line.push(due, Item::End(end));
    }

    /// Notes that the source was seen to be gone, by a write to it. What it sent before may still be read.
    pub(super) fn source_lost(&mut self, due: Instant) {
        if self.source == Source::Ended {
            self.line.push(due, Item::End(End::Reset));
        } else {
            self.source = Source::Lost;
        }
    }

    /// Notes that the target is gone. Returns the rules that fired and cannot act any more.
    pub(super) fn target_lost(&mut self) -> VecDeque<Arc<RuleState>> {
        self.target = Target::Finished;
        self.ending = self.ending.filter(|end| *end == End::Reset);
        self.outgoing.clear();
        self.gate.close();
        std::mem::take(&mut self.fired)
    }

    /// Adds a rule, for what has not passed yet.
    pub(super) fn watch(&mut self, rule: &Arc<RuleState>) {
        if self.target == Target::Open && !rule.is_spent() && self.gate.watch(rule, &mut self.outgoing) {
            self.fired.push_back(Arc::clone(rule));
        }
    }

    /// Ends the stream after what is outgoing: the target sees the end of file, what the source still sends is discarded.
    pub(super) fn half_close(&mut self) {
        if self.target == Target::Open {
            self.target = Target::Finishing;
            self.gate.close();
            self.ending = self.ending.or(Some(End::Finished));
        }
    }

    /// Notes that the target was told the end of file; nothing was outgoing then.
    pub(super) fn finished(&mut self) {
        self.target = Target::Finished;
        self.gate.close();
    }

    /// Forgets delay, throttle and fired rules: what is under way arrives now.
    pub(super) fn heal(&mut self, now: Instant) {
        self.line.hurry(now);
        self.pace.reset(now);
        self.fired.clear();
    }

    /// Moves what has arrived on, up to the place of a rule or the end of the stream.
    pub(super) fn advance(&mut self, now: Instant) {
        if self.fired.is_empty() {
            // Not while a rule has still to act: it withholds its pattern although it is spent.
            self.gate.settle(&mut self.outgoing);
        }
        while self.fired.is_empty() && self.ending.is_none() {
            match self.line.pop(now) {
                None => return,
                Some(Item::Bytes(bytes)) => self.pass(&bytes, now),
                Some(Item::End(end)) => self.pass_end(end),
            }
        }
    }

    fn pass(&mut self, bytes: &[u8], now: Instant) {
        if self.target != Target::Open {
            return;
        }
        let (taken, fired) = self.gate.pass(bytes, &mut self.outgoing);
        self.fired.extend(fired);
        if taken < bytes.len() {
            self.line.put_back(now, bytes[taken..].to_vec());
        }
    }

    fn pass_end(&mut self, end: End) {
        self.gate.flush(&mut self.outgoing);
        if end == End::Reset || self.target == Target::Open {
            self.ending = Some(end);
        }
    }

    /// Returns bytes to write to the target now, as many as its pace allows.
    pub(super) fn ready(&self, rate: Option<u64>, now: Instant) -> &[u8] {
        let (bytes, _) = self.outgoing.as_slices();
        &bytes[..bytes.len().min(self.pace.allows(rate, now))]
    }

    /// Notes how many of the ready bytes the target's kernel took.
    pub(super) fn sent(&mut self, count: usize, rate: Option<u64>, now: Instant) {
        self.outgoing.drain(..count);
        self.pace.left(count, rate, now);
    }

    /// Takes the next thing to do, once everything before it was sent.
    pub(super) fn step(&mut self) -> Option<Step> {
        if !self.outgoing.is_empty() {
            return None;
        }
        if let Some(rule) = self.fired.pop_front() {
            return Some(Step::Act(rule));
        }
        match self.ending.take()? {
            End::Reset => Some(Step::Reset),
            End::Finished => {
                self.target = Target::Finished;
                Some(Step::Finish)
            }
        }
    }

    /// Tells whether both its ends have ended, and nothing is under way.
    pub(super) fn is_done(&self) -> bool {
        self.source == Source::Ended
            && self.target == Target::Finished
            && self.line.is_empty()
            && self.ending.is_none()
    }

    /// Returns when there will be something to do without an event at a socket.
    pub(super) fn due(&self, rate: Option<u64>, now: Instant) -> Option<Instant> {
        if self.outgoing.is_empty() {
            self.line.due()
        } else {
            // Without the pace in the way, the target is what it waits for.
            (self.pace.allows(rate, now) == 0).then(|| self.pace.free_at())
        }
    }

    /// Takes the rules that fired and have not acted.
    pub(super) fn take_fired(&mut self) -> VecDeque<Arc<RuleState>> {
        std::mem::take(&mut self.fired)
    }
}
