//! What all variants write: keyed rows, filled into batches from memory.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_benches::load;
use levada_core::batch::RawRecord;
use levada_core::{
    Assignment, BatchBuilder, Budget, Polled, Position, Source, SourceContext, SourceError, SplitId,
    SplitStart, StreamId, StreamStart,
};

/// Records of a batch, as the Kafka source makes them.
const BATCH: usize = 4096;
/// Different rows.
const ROWS: u64 = 100_000;
/// The bytes that may be in flight between source and sink.
pub(crate) const BUDGET: usize = 64 << 20;

/// Fills batches until its time is over.
#[derive(Debug)]
pub(crate) struct Filler {
    split: SplitId,
    rows: Vec<(String, String)>,
    next: u64,
    budget: Budget,
    begun: Option<Instant>,
    lasts: Duration,
}

impl Filler {
    pub(crate) fn new(lasts: Duration) -> Self {
        let rows = (0..ROWS).map(|number| (number.to_string(), load::row(number))).collect();
        let (split, budget) = (SplitId::new("memory", 0), Budget::new(BUDGET));
        Self { split, rows, next: 0, budget, begun: None, lasts }
    }

    /// Appends a batch, or tells that the time is over. The time begins with the first one.
    pub(crate) fn fill(&mut self, out: &mut BatchBuilder) -> bool {
        if self.begun.get_or_insert_with(Instant::now).elapsed() >= self.lasts {
            return false;
        }
        let split = out.split(&self.split);
        for offset in self.next..self.next + BATCH as u64 {
            let (key, value) = &self.rows[(offset % ROWS) as usize];
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            out.push(split, RawRecord { offset, key, value, ..RawRecord::default() });
        }
        self.next += BATCH as u64;
        true
    }

    /// Returns how many records were filled in.
    pub(crate) fn filled(&self) -> u64 {
        self.next
    }
}

/// The filler as a source with one split.
#[derive(Debug)]
pub(crate) struct FillerSource {
    filler: Filler,
    is_assigned: bool,
}

impl FillerSource {
    pub(crate) fn new(lasts: Duration) -> Self {
        Self { filler: Filler::new(lasts), is_assigned: false }
    }
}

impl Source for FillerSource {
    async fn open(&mut self, ctx: SourceContext) -> Result<(), SourceError> {
        self.filler.budget = ctx.budget;
        Ok(())
    }

    async fn poll(&mut self, out: &mut BatchBuilder) -> Result<Polled, SourceError> {
        if !self.is_assigned {
            self.is_assigned = true;
            return Ok(Polled::Assigned(assignment(&self.filler.split)));
        }
        Ok(if self.filler.fill(out) { Polled::Batch } else { Polled::End })
    }

    fn add(&mut self, _: Vec<(SplitId, Position)>) -> Result<(), SourceError> {
        Ok(())
    }

    fn remove(&mut self, _: &[SplitId]) -> Result<(), SourceError> {
        Ok(())
    }

    fn pause(&mut self, _: &[SplitId]) -> Result<(), SourceError> {
        Ok(())
    }

    fn resume(&mut self, _: &[SplitId]) -> Result<(), SourceError> {
        Ok(())
    }

    async fn close(&mut self) {}
}

fn assignment(split: &SplitId) -> Assignment {
    let start = SplitStart { index: split.index, start: Position::at(0), earliest: Position::at(0) };
    let stream =
        StreamStart { stream: Arc::clone(&split.stream), id: StreamId("memory".into()), splits: vec![start] };
    Assignment { splits: vec![split.clone()], streams: vec![stream], ..Assignment::default() }
}

/// What is the same for every producer.
pub(crate) const LINGER: Duration = Duration::from_millis(5);
pub(crate) const IN_FLIGHT: u32 = 32 << 20;

pub(crate) type Failure = Box<dyn Error>;
