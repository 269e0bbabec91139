//! A source that does what the test tells it, step by step. Its records are timestamps.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use levada_core::batch::RawRecord;
use levada_core::time::{Question, SplitEvent};
use levada_core::{
    Assignment, BatchBuilder, Polled, Position, Source, SourceContext, SourceError, SplitId, SplitStart,
    StreamId, StreamStart, Timestamp, TimestampKind,
};
use tokio::sync::{mpsc, watch};

pub(crate) fn split(index: u32) -> SplitId {
    SplitId::new("t", index)
}

/// What one poll does: appends, then says.
#[derive(Debug)]
pub(crate) struct Step {
    /// Records: split and timestamp.
    read: Vec<(u32, Option<i64>)>,
    then: Polled,
}

/// What was asked of a source so far.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    pub(crate) polls: u64,
    pub(crate) asked: Vec<(u32, Question)>,
    /// Splits that rest, and how often one was let rest or go on.
    pub(crate) resting: Vec<u32>,
    pub(crate) turns: u64,
    pub(crate) added: Vec<(u32, u64)>,
}

#[derive(Debug)]
pub(crate) struct Scripted {
    steps: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Step>>>,
    seen: Arc<watch::Sender<Seen>>,
    at: BTreeMap<u32, u64>,
}

impl Source for Scripted {
    async fn open(&mut self, _: SourceContext) -> Result<(), SourceError> {
        Ok(())
    }

    async fn poll(&mut self, out: &mut BatchBuilder) -> Result<Polled, SourceError> {
        self.seen.send_modify(|seen| seen.polls += 1);
        let Some(step) = self.steps.lock().await.recv().await else { return std::future::pending().await };
        for (index, timestamp) in step.read {
            let number = out.split(&split(index));
            let at = self.at.entry(index).or_default();
            let timestamp_kind = match timestamp {
                Some(_) => TimestampKind::Create,
                None => TimestampKind::None,
            };
            let timestamp = Timestamp(timestamp.unwrap_or_default());
            let value = timestamp.0.to_string();
            let value = Some(value.as_bytes());
            out.push(
                number,
                RawRecord { offset: *at, timestamp, timestamp_kind, value, ..RawRecord::default() },
            );
            *at += 1;
        }
        Ok(step.then)
    }

    fn add(&mut self, splits: Vec<(SplitId, Position)>) -> Result<(), SourceError> {
        for (split, position) in splits {
            self.at.insert(split.index, position.next);
            self.seen.send_modify(|seen| seen.added.push((split.index, position.next)));
        }
        Ok(())
    }

    fn remove(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        let is_removed = |index: &u32| splits.iter().any(|split| split.index == *index);
        self.seen.send_modify(|seen| seen.resting.retain(|index| !is_removed(index)));
        Ok(())
    }

    fn pause(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        self.seen.send_modify(|seen| {
            seen.turns += 1;
            seen.resting.extend(splits.iter().map(|split| split.index));
        });
        Ok(())
    }

    fn resume(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        self.seen.send_modify(|seen| {
            seen.turns += 1;
            for split in splits {
                let place = seen.resting.iter().position(|index| *index == split.index);
                seen.resting.remove(place.expect("a split that rests"));
            }
        });
        Ok(())
    }

    fn ask(&mut self, questions: Vec<(SplitId, Question)>) -> Result<(), SourceError> {
        let asked = questions.into_iter().map(|(split, question)| (split.index, question));
        self.seen.send_modify(|seen| seen.asked.extend(asked));
        Ok(())
    }

    async fn close(&mut self) {}
}

/// The test's end of a scripted source. After a restart the new source goes on with the steps.
#[derive(Debug)]
pub(crate) struct Script {
    to: mpsc::UnboundedSender<Step>,
    from: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Step>>>,
    seen: Arc<watch::Sender<Seen>>,
    sent: Mutex<u64>,
}

impl Script {
    pub(crate) fn new() -> Arc<Self> {
        let (to, from) = mpsc::unbounded_channel();
        let from = Arc::new(tokio::sync::Mutex::new(from));
        Arc::new(Self { to, from, seen: Arc::default(), sent: Mutex::default() })
    }

    pub(crate) fn source(&self) -> Scripted {
        Scripted { steps: Arc::clone(&self.from), seen: Arc::clone(&self.seen), at: BTreeMap::new() }
    }

    pub(crate) fn say(&self, then: Polled) {
        self.step(Vec::new(), then);
    }

    fn step(&self, read: Vec<(u32, Option<i64>)>, then: Polled) {
        *self.sent.lock().unwrap() += 1;
        self.to.send(Step { read, then }).unwrap();
    }

    /// One batch of records: split and timestamp.
    pub(crate) fn read(&self, records: &[(u32, i64)]) {
        self.step(records.iter().map(|(split, at)| (*split, Some(*at))).collect(), Polled::Batch);
    }

    pub(crate) fn read_without_timestamp(&self, split: u32) {
        self.step(vec![(split, None)], Polled::Batch);
    }

    pub(crate) fn assign(&self, indexes: &[u32]) {
        let start =
            |index: &u32| SplitStart { index: *index, start: Position::at(0), earliest: Position::at(0) };
        self.say(Polled::Assigned(Assignment {
            splits: indexes.iter().copied().map(split).collect(),
            streams: vec![StreamStart {
                stream: Arc::from("t"),
                id: StreamId(Arc::from("t")),
                splits: indexes.iter().map(start).collect(),
            }],
            ..Assignment::default()
        }));
    }

    pub(crate) fn news(&self, index: u32, event: SplitEvent) {
        self.say(Polled::News(vec![(split(index), event)]));
    }

    pub(crate) fn end(&self) {
        self.say(Polled::End);
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Waits until the source has been asked for something.
    pub(crate) async fn until(&self, condition: impl FnMut(&Seen) -> bool) {
        let mut seen = self.seen.subscribe();
        seen.wait_for(condition).await.unwrap();
    }

    /// Answers the last question about a split: where the split ends.
    pub(crate) fn answer(&self, index: u32, high_watermark: u64) {
        let asked = self.seen().asked;
        let (_, question) = *asked.iter().rfind(|(of, _)| *of == index).expect("a question");
        self.news(index, SplitEvent::Answer { question, high_watermark });
    }
}
