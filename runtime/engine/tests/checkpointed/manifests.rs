//! [CHK-18] What a checkpoint tells people.

use std::sync::Arc;

use levada_core::batch::RawRecord;
use levada_core::{
    Assignment, BatchBuilder, Polled, Position, Source, SourceContext, SourceError, SplitId, SplitStart,
    StreamId, StreamStart,
};
use levada_engine::Job;
use levada_engine::driver::LossPolicy;
use tokio::sync::Notify;

use crate::scene::{Scene, options};

/// Reads seven records of each of two splits, which one subtask each is given, and then waits.
#[derive(Debug)]
struct Sevens {
    subtask: u32,
    is_assigned: bool,
    left: u64,
    has_read: Arc<Notify>,
}

fn split(index: u32) -> SplitId {
    SplitId::new("topic", index)
}

impl Source for Sevens {
    async fn open(&mut self, _: SourceContext) -> Result<(), SourceError> {
        Ok(())
    }

    async fn poll(&mut self, out: &mut BatchBuilder) -> Result<Polled, SourceError> {
        if !std::mem::replace(&mut self.is_assigned, true) {
            let start = |index| SplitStart { index, earliest: Position::at(0), start: Position::at(0) };
            let stream = StreamStart {
                stream: "topic".into(),
                id: StreamId("id".into()),
                splits: [0, 1].map(start).into(),
            };
            let splits = vec![split(self.subtask)];
            return Ok(Polled::Assigned(Assignment {
                splits,
                streams: vec![stream],
                ..Assignment::default()
            }));
        }
        if self.left == 0 {
            self.has_read.notify_one();
            return std::future::pending().await;
        }
        let place = out.split(&split(self.subtask));
        for offset in 0..self.left {
            out.push(place, RawRecord { offset, ..RawRecord::default() });
        }
        self.left = 0;
        Ok(Polled::Batch)
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

/// [CHK-18] Positions by split, transactions that wait with their records, and what each sink has taken so far.
#[tokio::test]
async fn a_checkpoint_tells_positions_and_what_waits_for_it() {
    let scene = Scene::new().await;
    let target = scene.target.clone();
    let has_read = [Arc::new(Notify::new()), Arc::new(Notify::new())];
    let readers = has_read.clone();
    let job = Job::new("sevens")
        .parallelism(2)
        .source("topic", move |subtask| Sevens {
            subtask,
            is_assigned: false,
            left: 7,
            has_read: Arc::clone(&readers[subtask as usize]),
        })
        .map("offset", |input| Ok(input.origin().offset))
        .checkpointed()
        .two_phase_sink("table", options(LossPolicy::Fail), move |_| target.sink("table"));
    let job = scene.start(job);
    for reader in &has_read {
        reader.notified().await;
    }
    let savepoint = job.savepoint().await.unwrap();
    let (summary, damages) = scene.store.show(savepoint.id).await.unwrap().unwrap();
    assert_eq!(damages, []);
    let positions = [("topic-0".to_owned(), 7), ("topic-1".to_owned(), 7)];
    assert_eq!(summary.operators["topic"].positions, positions.into());
    let sink = &summary.operators["table"];
    assert_eq!((sink.pending_transactions, sink.pending_records), (2, 14));
    assert_eq!((summary.pending_transactions, summary.pending_records), (2, 14));
    assert_eq!(summary.records, [("table".to_owned(), 14)].into());
}
