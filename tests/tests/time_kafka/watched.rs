//! The Kafka source behind a glass: its polls are counted, and who answers questions about the ends of splits can be changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use levada_core::time::{Question, SplitEvent};
use levada_core::{BatchBuilder, Polled, Position, Source, SourceContext, SourceError, SplitId};
use levada_kafka::source::KafkaSource;

/// Whose word it is that nothing waits in a split at its end. The product knows the leader's alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    LeaderAsked,
    /// That the timeout has passed: every question is answered by "nothing beyond where you stand", at once.
    TimePassed,
}

#[derive(Debug)]
pub(crate) struct Watched {
    source: KafkaSource,
    proof: Proof,
    /// Its task polls anew whenever it has woken up.
    polls: Arc<AtomicU64>,
    answers: Vec<(SplitId, SplitEvent)>,
}

impl Watched {
    pub(crate) fn new(source: KafkaSource, proof: Proof, polls: Arc<AtomicU64>) -> Self {
        Self { source, proof, polls, answers: Vec::new() }
    }
}

impl Source for Watched {
    async fn open(&mut self, ctx: SourceContext) -> Result<(), SourceError> {
        self.source.open(ctx).await
    }

    fn has_momentary_starts(&self) -> bool {
        self.source.has_momentary_starts()
    }

    async fn poll(&mut self, out: &mut BatchBuilder) -> Result<Polled, SourceError> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        if !self.answers.is_empty() {
            return Ok(Polled::News(std::mem::take(&mut self.answers)));
        }
        self.source.poll(out).await
    }

    fn add(&mut self, splits: Vec<(SplitId, Position)>) -> Result<(), SourceError> {
        self.source.add(splits)
    }

    fn remove(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        self.source.remove(splits)
    }

    fn pause(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        self.source.pause(splits)
    }

    fn resume(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        self.source.resume(splits)
    }

    fn ask(&mut self, questions: Vec<(SplitId, Question)>) -> Result<(), SourceError> {
        if self.proof == Proof::LeaderAsked {
            return self.source.ask(questions);
        }
        let nothing_beyond =
            |question: Question| SplitEvent::Answer { question, high_watermark: question.position() };
        self.answers.extend(questions.into_iter().map(|(split, question)| (split, nothing_beyond(question))));
        Ok(())
    }

    async fn close(&mut self) {
        self.source.close().await;
    }
}
