//! What can be seen of each split.

use std::time::Duration;

use levada_core::{Source as _, Timestamp};
use levada_kafka::SplitStanding;

use super::support::{Reading, Topic};

/// [SRC-33] in part: position, ends, lag, records and bytes of each split, how long batches waited, and the
/// client's own statistics, read beside the source.
#[tokio::test]
async fn the_standing_of_each_split_can_be_seen() {
    let topic = Topic::new(2).await;
    topic.write_at(0, [1_000, 2_000]); // four bytes each
    topic.transaction().write(1, ["ab"]).commit(); // 0, marker at 1
    let config = topic.config().property("statistics.interval.ms", "100");
    let mut reading = Reading::open(config).await;
    let status = reading.source.status();
    let standing = |index| status.splits().into_iter().find(|standing| standing.split == topic.split(index));
    let has_end =
        |standing: Option<SplitStanding>| standing.is_some_and(|of| of.last_stable_offset.is_some());
    reading.until_either(|_| has_end(standing(0)) && has_end(standing(1))).await;
    let (first, second) = (standing(0).expect("read"), standing(1).expect("read"));
    assert_eq!((first.position, first.high_watermark, first.last_stable_offset), (2, Some(2), Some(2)));
    assert_eq!((first.records, first.bytes), (2, 8));
    assert_eq!(
        (first.lag(), first.stable_lag(), first.last_timestamp),
        (Some(0), Some(0), Some(Timestamp(2_000)))
    );
    assert_eq!(first.time_lag(Timestamp(5_000)), Some(Duration::ZERO), "all is read");
    assert_eq!(
        (second.position, second.records, second.bytes),
        (2, 1, 3),
        "a key of one byte, a value of two"
    );
    assert_eq!(second.behind_transaction, None);
    let waits = status.batch_waits();
    assert!(waits.batches > 0 && waits.longest <= waits.total && waits.longest > Duration::ZERO, "{waits:?}");
    reading.until_either(|_| status.statistics().is_some()).await;
    let statistics = status.statistics().expect("told");
    assert!(statistics.starts_with('{') && statistics.contains(&topic.name), "{statistics}");
    reading.source.close().await;
}

/// [SRC-29] the high watermark is ahead of a last stable offset that stands; whose the transaction is, and since when, is what
/// Kafka's own tool tells of it.
#[tokio::test]
async fn a_hanging_transaction_can_be_seen_until_it_ends() {
    let topic = Topic::new(1).await;
    topic.write_at(0, [1_000]);
    let open = topic.transaction().write(0, ["open"]);
    let mut reading = Reading::open(topic.config().hanging_after(Duration::from_secs(1))).await;
    let status = reading.source.status();
    reading.until_either(|_| status.splits().iter().any(|split| split.is_hanging)).await;
    let before = status.splits()[0].clone();
    assert_eq!((before.position, before.last_stable_offset, before.high_watermark), (1, Some(1), Some(2)));
    assert_eq!((before.lag(), before.stable_lag()), (Some(1), Some(0)));
    assert_eq!(before.time_lag(Timestamp(4_000)), Some(Duration::from_secs(3)));
    topic.write(0, ["behind"]);
    reading.until_either(|_| status.splits()[0].high_watermark == Some(3)).await;
    assert!(status.splits()[0].is_hanging);
    reading.until_either(|_| status.splits()[0].transaction.is_some()).await;
    assert_eq!(status.splits()[0].transaction, Some(open.told()));
    open.commit();
    reading.until(|reading| reading.count() == 3).await;
    reading.until_either(|_| !status.splits()[0].is_hanging).await;
    reading.source.close().await;
}
