//! Bounded reads end, and end exactly.

use levada_core::{Polled, Position, Source, SplitId};
use rdkafka::admin::AdminOptions;
use rdkafka::{Offset, TopicPartitionList};

use super::support::{Reading, Topic, admin};

/// [SRC-15] [SRC-25] [SRC-11] every partition ends at the position behind its last record.
#[tokio::test]
async fn bounded_read_ends_behind_the_last_record() {
    let topic = Topic::new(3).await;
    topic.write_numbered(0, 1000, 8);
    topic.write(1, ["a", "b"]);
    let reading = Reading::open(topic.bounded()).await.read_to_end().await;
    assert_eq!(reading.count(), 1002);
    let numbers: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    assert_eq!(reading.values(&topic.split(0)), numbers);
    assert_eq!(reading.ends[&topic.split(0)], 1000);
    assert_eq!(reading.ends[&topic.split(1)], 2);
    assert_eq!(reading.ends[&topic.split(2)], 0, "an empty partition ends where it starts");
    assert_eq!(reading.position(&topic.split(1)), Some(2));
    assert_eq!(reading.position(&topic.split(2)), None, "it did not move");
    let told = &reading.assignment.as_ref().expect("assigned").ends;
    let told: Vec<u64> = told.iter().map(|(_, end)| end.next).collect();
    assert_eq!(told, [1000, 2, 0], "the ends are told with the assignment, for whoever shows progress");
}

/// [SRC-15]
#[tokio::test]
async fn bounded_read_of_an_empty_topic_ends() {
    let topic = Topic::new(2).await;
    let reading = Reading::open(topic.bounded()).await.read_to_end().await;
    assert_eq!(reading.count(), 0);
    assert_eq!(reading.ends.len(), 2);
}

/// [SRC-15] [SRC-11] the last offsets before the stop are control records and aborted data, which no one is given.
#[tokio::test]
async fn markers_and_an_aborted_tail_are_passed() {
    let topic = Topic::new(1).await;
    topic.transaction().write(0, ["a", "b"]).commit(); // 0, 1, marker at 2
    topic.transaction().write(0, ["lost", "lost"]).abort(); // 3, 4, marker at 5
    topic.transaction().write(0, ["c"]).commit(); // 6, marker at 7
    topic.transaction().write(0, ["lost"]).abort(); // 8, marker at 9
    let reading = Reading::open(topic.bounded()).await.read_to_end().await;
    let split = topic.split(0);
    assert_eq!(reading.values(&split), ["a", "b", "c"]);
    assert_eq!(reading.offsets(&split), [0, 1, 6]);
    assert_eq!(reading.ends[&split], 10);
    assert_eq!(reading.position(&split), Some(10), "the lag of a partition that was read to its end is 0");
}

/// [SRC-16] an open transaction, and what was committed behind it, lies beyond the last stable offset.
#[tokio::test]
async fn an_open_transaction_at_the_end_is_not_waited_for() {
    let topic = Topic::new(1).await;
    topic.write(0, ["a", "b"]);
    let open = topic.transaction().write(0, ["open"]);
    topic.write(0, ["behind"]);
    let reading = Reading::open(topic.bounded()).await.read_to_end().await;
    let split = topic.split(0);
    assert_eq!(reading.values(&split), ["a", "b"]);
    assert_eq!(reading.ends[&split], 2);
    open.commit();
    let reading = Reading::open(topic.bounded()).await.read_to_end().await;
    assert_eq!(reading.values(&split), ["a", "b", "open", "behind"]);
    assert_eq!(reading.ends[&split], 5, "past the marker");
}

/// [SRC-15] records written after the start are beyond the stop.
#[tokio::test]
async fn what_is_written_after_the_start_is_not_read() {
    let topic = Topic::new(1).await;
    topic.write(0, ["a"]);
    let reading = Reading::open(topic.bounded()).await;
    topic.write(0, ["late", "later"]);
    let reading = reading.read_to_end().await;
    assert_eq!(reading.values(&topic.split(0)), ["a"]);
    assert_eq!(reading.ends[&topic.split(0)], 1);
}

/// [SRC-15] the record at the stop tells the end where the one before it is a control record.
#[tokio::test]
async fn a_record_at_the_stop_ends_the_read() {
    let topic = Topic::new(1).await;
    topic.transaction().write(0, ["a"]).commit(); // 0, marker at 1
    let reading = Reading::open(topic.bounded()).await;
    topic.write(0, ["late"]); // 2: the client never reports an end at 2
    let reading = reading.read_to_end().await;
    assert_eq!(reading.values(&topic.split(0)), ["a"]);
    assert_eq!(reading.ends[&topic.split(0)], 2);
    assert_eq!(reading.position(&topic.split(0)), Some(2));
}

/// [SRC-12] [SRC-15] a deleted prefix: earliest is the first record that is still there.
#[tokio::test]
async fn a_deleted_prefix_is_passed() {
    let topic = Topic::new(2).await;
    topic.write_numbered(0, 10, 4);
    topic.write_numbered(1, 5, 4);
    delete_before(&topic, &[(0, 7), (1, 5)]).await;
    let reading = Reading::open(topic.bounded()).await.read_to_end().await;
    assert_eq!(reading.offsets(&topic.split(0)), [7, 8, 9]);
    assert_eq!(reading.ends[&topic.split(0)], 10);
    assert_eq!(reading.ends[&topic.split(1)], 5, "nothing is left of it");
}

/// [SRC-15] [SRC-11] a position at or behind the stop ends at once, and does not move back.
#[tokio::test]
async fn a_split_that_starts_at_its_stop_ends_at_once() {
    let topic = Topic::new(1).await;
    topic.write(0, ["a", "b", "c"]);
    let mut reading = Reading::open(topic.bounded()).await;
    let assigned = reading.source.poll(&mut reading.builder).await.expect("poll");
    assert!(matches!(assigned, Polled::Assigned(_)));
    reading.source.add(vec![(topic.split(0), Position::at(3))]).expect("add");
    let reading = reading.read_to_end().await;
    assert_eq!(reading.count(), 0);
    assert_eq!(reading.ends[&topic.split(0)], 3);
}

/// [SRC-15] compaction leaves holes: in front of records, between them and before the end.
#[tokio::test]
async fn compaction_holes_are_passed() {
    let compacted = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("max.compaction.lag.ms", "100"),
        ("delete.retention.ms", "0"),
    ];
    let broker = levada_testcontainers::Kafka::builder()
        .property("log.cleaner.backoff.ms", "100")
        .start()
        .expect("broker");
    let topic = Topic::at(broker.bootstrap(), 1, &compacted).await;
    let split = topic.split(0);
    topic.write(0, ["old", "older", "oldest"]); // one key
    // Each look writes a record of the same key, so that the segments before it can be cleaned.
    let mut reading = Reading::open(topic.bounded()).await.read_to_end().await;
    while reading.offsets(&split).len() as u64 == reading.ends[&split] {
        topic.write(0, ["new"]);
        reading = Reading::open(topic.bounded()).await.read_to_end().await;
    }
    assert_eq!(reading.position(&split), Some(reading.ends[&split]));
    assert_eq!(reading.values(&split).last(), Some(&"new"));
}

pub(crate) async fn delete_before(topic: &Topic, offsets: &[(i32, i64)]) {
    let mut list = TopicPartitionList::new();
    for &(partition, offset) in offsets {
        list.add_partition_offset(&topic.name, partition, Offset::Offset(offset)).expect("an offset");
    }
    let deleted = admin(&topic.bootstrap).delete_records(&list, &AdminOptions::new()).await.expect("delete");
    assert!(deleted.elements().iter().all(|element| element.error().is_ok()));
}

/// [SRC-25] within a partition nothing changes places, however many partitions are read at once.
#[tokio::test]
async fn order_within_a_partition_is_kept() {
    let topic = Topic::new(8).await;
    for partition in 0..8 {
        topic.write_numbered(partition, 5000, 20);
    }
    let reading = Reading::open(topic.bounded()).await.read_to_end().await;
    let expected: Vec<u64> = (0..5000).collect();
    for index in 0..8 {
        let split: SplitId = topic.split(index);
        assert_eq!(reading.offsets(&split), expected, "{split}");
    }
}
