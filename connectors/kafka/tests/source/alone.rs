//! The source as a plain stream, without an engine.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use levada_core::time::{SplitStatus, WatermarkStrategy};
use levada_core::{Budget, Clock, SourceContext, StreamStatus, Timestamp};
use levada_kafka::{KafkaStream, Otherwise, SeekTo, StartAt, StreamItem};
use levada_testcontainers::unique_name;

use super::support::{PATIENCE, Reading, Topic};

/// A clock that the test sets.
#[derive(Debug, Default)]
struct SetClock(Mutex<Timestamp>);

impl SetClock {
    fn advance(&self, by: Duration) {
        let mut now = self.0.lock().expect("a clock");
        *now = now.saturating_add(by);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().expect("a clock")
    }
}

async fn next(stream: &mut KafkaStream) -> Option<StreamItem> {
    let item = tokio::time::timeout(PATIENCE, stream.next()).await.expect("in time");
    item.map(|item| item.expect("an item"))
}

/// Returns the next record, passing over what stands before it.
async fn next_record(stream: &mut KafkaStream) -> (u64, Vec<u8>) {
    loop {
        if let StreamItem::Record(record) = next(stream).await.expect("it goes on") {
            return (record.offset(), record.value().unwrap_or_default().to_vec());
        }
    }
}

/// [SRC-32] records in order, positions with each of them, and the maximum watermark at the end of a bounded read.
#[tokio::test]
async fn a_bounded_stream_yields_records_positions_and_the_last_watermark() {
    let topic = Topic::new(2).await;
    topic.write_at(0, [100, 200]);
    topic.transaction().write(1, ["a"]).commit(); // 0, marker at 1
    let mut stream = KafkaStream::open(topic.bounded(), WatermarkStrategy::monotonic()).await.expect("open");
    let (mut records, mut watermarks) = (0, Vec::new());
    while let Some(item) = next(&mut stream).await {
        match item {
            StreamItem::Record(record) => {
                let position = stream.positions().get(record.split()).map(|position| position.next);
                assert_eq!(position, Some(record.offset() + 1));
                records += 1;
            }
            StreamItem::Watermark(watermark) => watermarks.push(watermark),
            _ => {}
        }
    }
    assert_eq!((records, watermarks.last()), (3, Some(&Timestamp::MAX)));
    assert!(watermarks.is_sorted());
    let positions: Vec<u64> = stream.positions().iter().map(|(_, position)| position.next).collect();
    assert_eq!(positions, [2, 2], "past the marker");
    assert!(next(&mut stream).await.is_none(), "the end is said again");
    stream.close().await;
}

/// [SRC-32] [SRC-18] [SRC-33] the next record after a seek is the one asked for, also where the old ones had arrived.
#[tokio::test]
async fn a_stream_seeks_pauses_resumes_and_commits() {
    let topic = Topic::new(1).await;
    let split = topic.split(0);
    topic.write_numbered(0, 10_000, 20);
    let group = unique_name("group");
    let config = topic.config().group_id(&group);
    let mut stream = KafkaStream::open(config.clone(), WatermarkStrategy::none()).await.expect("open");
    assert_eq!(next_record(&mut stream).await.0, 0);
    for offset in [9_000, 3, 5_000] {
        stream.seek(split.clone(), SeekTo::Offset(offset)).await.expect("sought");
        assert_eq!(next_record(&mut stream).await.0, offset);
        assert_eq!(next_record(&mut stream).await.0, offset + 1);
    }
    stream.commit().await.expect("committed");
    let status = stream.status();
    assert_eq!((status.commits(), status.failed_commits()), (1, 0));
    stream.pause(std::slice::from_ref(&split));
    stream.resume(std::slice::from_ref(&split));
    while next_record(&mut stream).await.0 < 9_999 {}
    stream.close().await;
    let start = StartAt::Committed { otherwise: Otherwise::Fail };
    let mut reading = Reading::open(config.start_at(start)).await;
    reading.until(|reading| reading.count() > 0).await;
    assert_eq!(reading.offsets(&split)[0], 5_002);
}

/// [SRC-32] [TIM-05] [TIM-06] an idle partition is left out once its leader has nothing more, and one behind an open
/// transaction never.
#[tokio::test]
async fn a_stream_leaves_out_a_partition_that_is_proven_idle_and_none_that_is_blocked() {
    let topic = Topic::new(2).await;
    topic.write_at(0, [1_000]);
    let strategy = || {
        let strategy = WatermarkStrategy::monotonic().idle_after(Duration::from_secs(60)).expect("a timeout");
        strategy.every(Duration::from_millis(20)).expect("an interval")
    };
    for is_blocked in [false, true] {
        let open = is_blocked.then(|| topic.transaction().write(1, ["open"]));
        let clock = Arc::new(SetClock::default());
        let ctx = SourceContext { subtask: 0, parallelism: 1, budget: Budget::new(8 << 20) };
        let mut stream = KafkaStream::open_in(topic.config(), strategy(), ctx, Arc::clone(&clock) as _)
            .await
            .expect("open");
        next_record(&mut stream).await;
        let mut told = Vec::new();
        let status =
            |stream: &KafkaStream, index| stream.time_of(&topic.split(index)).map(|(status, _)| status);
        let is_known = |stream: &KafkaStream| {
            let first = status(stream, 0).is_some_and(SplitStatus::is_idle);
            first && status(stream, 1).is_some_and(|of| of.is_idle() || of.is_blocked())
        };
        while !is_known(&stream) || told.len() < 2 && !is_blocked {
            clock.advance(Duration::from_secs(61));
            // Gives up waiting for what a blocked partition never brings, to let the clock go on.
            let item = tokio::time::timeout(Duration::from_millis(200), stream.next()).await;
            match item.ok().map(|item| item.expect("it goes on").expect("an item")) {
                Some(StreamItem::Watermark(watermark)) => told.push(Some(watermark)),
                Some(StreamItem::Status(StreamStatus::Idle)) => told.push(None),
                _ => {}
            }
        }
        let behind = status(&stream, 1).is_some_and(SplitStatus::is_blocked);
        let expected = if is_blocked { vec![] } else { vec![Some(Timestamp(999)), None] };
        assert_eq!((behind, told), (is_blocked, expected));
        stream.close().await;
        if let Some(open) = open {
            open.abort();
        }
    }
}
