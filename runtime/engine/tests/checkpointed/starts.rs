//! [SRC-13] Sources that start at "latest": found out once, and stored before anybody sees a record.

use std::sync::Arc;
use std::time::Duration;

use levada_core::batch::RawRecord;
use levada_core::{
    Assignment, BatchBuilder, Polled, Position, Source, SourceContext, SourceError, SplitId, SplitStart,
    StreamId, StreamStart,
};
use levada_engine::store::Store;
use levada_engine::{CheckpointedHandle, Input, Job};
use tokio::sync::watch;
use tokio::time::interval;

/// The partitions of a topic: how many records each has. A record is its offset.
type Ends = [u64; 2];

/// What the tests and the sources share.
#[derive(Debug, Clone)]
struct Topic {
    ends: Arc<watch::Sender<Ends>>,
    /// How many subtasks may say what they read: the others wait.
    open: Arc<watch::Sender<u32>>,
    seen: Arc<watch::Sender<Vec<(u32, u64)>>>,
    /// Where splits were found to start, or to go on.
    added: Arc<watch::Sender<Vec<(u32, u64)>>>,
}

/// Reads one partition, from its end or from its beginning.
#[derive(Debug)]
struct Reader {
    topic: Topic,
    subtask: u32,
    is_latest: bool,
    starts: Ends,
    is_assigned: bool,
    next: u64,
}

impl Source for Reader {
    async fn open(&mut self, _: SourceContext) -> Result<(), SourceError> {
        if self.is_latest {
            self.starts = *self.topic.ends.borrow();
        }
        Ok(())
    }

    fn has_momentary_starts(&self) -> bool {
        self.is_latest
    }

    async fn poll(&mut self, out: &mut BatchBuilder) -> Result<Polled, SourceError> {
        if !self.is_assigned {
            let subtask = self.subtask;
            self.topic.open.subscribe().wait_for(|open| *open > subtask).await.unwrap();
            self.is_assigned = true;
            return Ok(Polled::Assigned(self.assignment()));
        }
        let (next, mut ends) = (self.next, self.topic.ends.subscribe());
        ends.wait_for(|ends| ends[self.subtask as usize] > next).await.unwrap();
        let split = out.split(&SplitId::new("t", self.subtask));
        out.push(split, RawRecord { offset: next, ..RawRecord::default() });
        self.next += 1;
        Ok(Polled::Batch)
    }

    fn add(&mut self, splits: Vec<(SplitId, Position)>) -> Result<(), SourceError> {
        for (split, position) in splits {
            self.next = position.next;
            self.topic.added.send_modify(|added| added.push((split.index, position.next)));
        }
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

impl Reader {
    fn assignment(&self) -> Assignment {
        let start = |index: u32| SplitStart {
            index,
            start: Position::at(self.starts[index as usize]),
            earliest: Position::at(0),
        };
        let stream =
            StreamStart { stream: "t".into(), id: StreamId("id".into()), splits: [0, 1].map(start).into() };
        let splits = vec![SplitId::new("t", self.subtask)];
        Assignment { splits, streams: vec![stream], ..Assignment::default() }
    }
}

impl Topic {
    fn new(ends: Ends) -> Self {
        let (open, ends) = (watch::Sender::new(2), watch::Sender::new(ends));
        let (open, ends) = (Arc::new(open), Arc::new(ends));
        Self { ends, open, seen: Arc::default(), added: Arc::default() }
    }

    fn append(&self, partition: usize) {
        self.ends.send_modify(|ends| ends[partition] += 1);
    }

    fn reader(&self, is_latest: bool) -> impl Fn(u32) -> Reader + Send + 'static {
        let topic = self.clone();
        move |subtask| Reader {
            topic: topic.clone(),
            subtask,
            is_latest,
            starts: [0, 0],
            is_assigned: false,
            next: 0,
        }
    }

    /// A job that shows each record at once, and takes no checkpoint unasked.
    fn start(&self, store: &Store, parallelism: u32, is_latest: bool) -> CheckpointedHandle {
        let seen = Arc::clone(&self.seen);
        let place = |input: Input<'_, ()>| Ok((input.split().index, input.origin().offset));
        let job = Job::new("starts")
            .parallelism(parallelism)
            .source("topic", self.reader(is_latest))
            .map("place", place)
            .checkpointed()
            .for_each("show", move |record, _| {
                seen.send_modify(|seen| seen.push(record.item));
                Ok(())
            });
        job.start(store.clone()).unwrap()
    }

    async fn until_seen(&self, record: (u32, u64)) {
        self.seen.subscribe().wait_for(|seen| seen.contains(&record)).await.unwrap();
    }

    fn take_seen(&self) -> Vec<(u32, u64)> {
        self.seen.send_replace(Vec::new())
    }

    fn take_added(&self) -> Vec<(u32, u64)> {
        self.added.send_replace(Vec::new())
    }
}

/// Waits until a checkpoint is complete that nobody asked for.
async fn until_stored(job: &CheckpointedHandle) {
    job.state().wait_for(|state| state.last().is_some()).await.unwrap();
}

/// Ends a job without a last checkpoint, as a crash does.
async fn crash(mut job: CheckpointedHandle) {
    job.cancel();
    job.wait().await.unwrap_err();
}

async fn store() -> Store {
    Store::open("memory:").await.unwrap()
}

/// [SRC-13] A record was seen, the job crashes, records come: all of them are read.
#[tokio::test]
async fn a_record_that_was_seen_holds_the_start_across_a_crash() {
    let (topic, store) = (Topic::new([3, 0]), store().await);
    let job = topic.start(&store, 1, true);
    until_added(&topic).await;
    topic.append(0);
    topic.until_seen((0, 3)).await;
    crash(job).await;
    topic.append(0);
    topic.append(0);
    assert_eq!(topic.take_seen(), [(0, 3)]);

    let job = topic.start(&store, 1, true);
    until_added(&topic).await;
    topic.append(0);
    topic.until_seen((0, 6)).await;
    crash(job).await;
    assert_eq!(topic.take_seen(), [(0, 3), (0, 4), (0, 5), (0, 6)]);
}

/// Waits until a job has found where to start.
async fn until_added(topic: &Topic) {
    topic.added.subscribe().wait_for(|added| !added.is_empty()).await.unwrap();
    topic.take_added();
}

/// Lets a minute pass, which it does only while nothing else is left to do.
async fn pass_a_minute() {
    let mut minutes = interval(Duration::from_secs(60));
    minutes.tick().await;
    minutes.tick().await;
}

/// [SRC-13] As long as the starts are not stored, nothing is read: a crash then finds out others, and nobody has seen anything.
#[tokio::test(start_paused = true)]
async fn nothing_is_read_before_the_starts_are_stored() {
    let (topic, store) = (Topic::new([3, 7]), store().await);
    // The checkpoint waits for the starts of the second subtask.
    topic.open.send_replace(1);
    let job = topic.start(&store, 2, true);
    until_added(&topic).await;
    topic.append(0);
    pass_a_minute().await;
    assert_eq!(topic.take_seen(), []);
    crash(job).await;

    topic.open.send_replace(2);
    let job = topic.start(&store, 2, true);
    until_stored(&job).await;
    let mut added = topic.take_added();
    added.sort_unstable();
    assert_eq!(added, [(0, 4), (1, 7)]);
    crash(job).await;
}

/// [SRC-13] A checkpoint that is asked for while one subtask has not said yet what it reads waits for it: without its start, its
/// split would look like a new one of a stream that is read already, and be read from its beginning.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_holds_the_starts_of_all_subtasks() {
    let (topic, store) = (Topic::new([3, 7]), store().await);
    topic.open.send_replace(1);
    let job = topic.start(&store, 2, true);
    until_added(&topic).await;
    let asked = tokio::join!(job.trigger_checkpoint(), async {
        pass_a_minute().await;
        topic.open.send_replace(2);
    });
    asked.0.unwrap();
    crash(job).await;
    topic.append(0);
    topic.append(1);
    topic.take_added();

    let job = topic.start(&store, 2, true);
    for record in [(0, 3), (1, 7)] {
        topic.until_seen(record).await;
    }
    crash(job).await;
    assert_eq!(topic.take_seen().len(), 2);
}

/// [SRC-13] Who starts at the beginning, or goes on from a checkpoint, waits for none.
#[tokio::test]
async fn starts_that_are_always_the_same_cost_no_checkpoint() {
    let (topic, store) = (Topic::new([3, 0]), store().await);
    let job = topic.start(&store, 1, false);
    topic.until_seen((0, 2)).await;
    assert_eq!(job.trigger_checkpoint().await.unwrap().sequence, 1);
    crash(job).await;
    topic.append(0);
    let job = topic.start(&store, 1, true);
    topic.until_seen((0, 3)).await;
    assert_eq!(job.trigger_checkpoint().await.unwrap().sequence, 1);
    crash(job).await;
}
