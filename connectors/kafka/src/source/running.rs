//! The side of `poll`: turns what the consumer's thread hands over into answers, and drops what is stale.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;

use levada_core::time::SplitEvent;
use levada_core::{Assignment, BatchBuilder, Polled, Positions, SourceError, SplitId};

use super::handover::{Command, Exchange, Handover, Seek};
use super::leaders::Asker;
use super::readings::Readings;

/// A source that is open.
pub(super) struct Running {
    pub(super) exchange: Arc<Exchange>,
    pub(super) thread: Option<JoinHandle<()>>,
    pub(super) asker: Asker,
    /// Told by the first poll.
    pub(super) assignment: Option<Assignment>,
    pub(super) stops: Option<Positions>,
    /// Whether some splits start where it depends on when that was found out.
    pub(super) has_momentary_starts: bool,
    /// Splits whose bounded read has not ended.
    pub(super) unended: BTreeSet<SplitId>,
    pub(super) has_splits: bool,
    pub(super) was_told_idle: bool,
    pub(super) readings: Readings,
}

impl Running {
    pub(super) fn new(exchange: Arc<Exchange>, thread: JoinHandle<()>, asker: Asker) -> Self {
        Self {
            exchange,
            thread: Some(thread),
            asker,
            assignment: None,
            stops: None,
            has_momentary_starts: false,
            unended: BTreeSet::new(),
            has_splits: false,
            was_told_idle: false,
            readings: Readings::default(),
        }
    }

    /// Returns what is known without waiting.
    pub(super) fn tell(&mut self) -> Option<Polled> {
        if let Some(assignment) = self.assignment.take() {
            return Some(Polled::Assigned(assignment));
        }
        if self.stops.is_some() && self.unended.is_empty() {
            return Some(Polled::End);
        }
        if !self.has_splits && !self.was_told_idle {
            self.was_told_idle = true;
            return Some(Polled::Idle);
        }
        None
    }

    /// Begins a new reading where a seek says. What was read for the old one is stale from here on. The position moves in the
    /// poll that takes the seek: whoever stops behind it, before the first record, has stored it.
    pub(super) fn seek(&mut self, seek: Seek, out: &mut BatchBuilder) -> Option<Polled> {
        let Seek { split, position, done } = seek;
        let is_read = self.readings.of(&split).is_some() && self.unended.contains(&split);
        if is_read {
            let reading = self.readings.begin(&split);
            self.exchange.command(Command::Add(vec![(reading, split.clone(), position.clone())]));
            let number = out.split(&split);
            out.advance(number, position.clone());
        }
        let _ = done.send(is_read); // whoever asked may have lost interest
        let event = SplitEvent::Seek { position: position.next };
        is_read.then(|| Polled::News(vec![(split, event)]))
    }

    /// Turns a handover into the answer of a poll, or into nothing when it is stale.
    pub(super) fn accept(
        &mut self,
        handover: Handover,
        out: &mut BatchBuilder,
    ) -> Result<Option<Polled>, SourceError> {
        match handover {
            Handover::Batch { builder, readings, .. } => {
                let is_current = readings.iter().all(|reading| self.readings.is_live(*reading));
                let has_news = match (is_current, out.is_empty()) {
                    (true, true) => {
                        *out = builder;
                        true
                    }
                    _ => self.readings.copy_live(builder, &readings, out),
                };
                Ok(has_news.then_some(Polled::Batch))
            }
            Handover::EndOfSplit { reading, split, end } if self.readings.is_live(reading) => {
                self.unended.remove(&split);
                Ok(Some(Polled::EndOfSplit(split, end)))
            }
            Handover::EndOfSplit { .. } => Ok(None),
            Handover::News(news) => Ok(self.readings.live_news(news).map(Polled::News)),
            Handover::Failed(error) => Err(error),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.exchange.command(Command::Stop);
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("unended", &self.unended)
            .field("readings", &self.readings)
            .finish_non_exhaustive()
    }
}
