//! Positions: adding, adding again, removing, resting; polls that are given up.

use futures_util::FutureExt as _;
use levada_core::{Polled, Position, Source};

use super::support::{Reading, Topic, starts};

/// [SRC-11] unbounded: the position of a partition that was read to its end is behind the markers, too.
#[tokio::test]
async fn position_moves_past_markers_and_aborted_data() {
    let topic = Topic::new(1).await;
    let split = topic.split(0);
    topic.transaction().write(0, ["a"]).commit(); // 0, marker at 1
    let mut reading = Reading::open(topic.config()).await;
    reading.until(|reading| reading.position(&split) == Some(2)).await;
    assert_eq!(reading.values(&split), ["a"]);
    topic.transaction().write(0, ["lost", "lost"]).abort(); // 2, 3, marker at 4
    reading.until(|reading| reading.position(&split) == Some(5)).await;
    topic.transaction().write(0, ["b"]).commit(); // 5, marker at 6
    reading.until(|reading| reading.position(&split) == Some(7)).await;
    assert_eq!(reading.offsets(&split), [0, 5]);
    reading.source.close().await;
}

/// [SRC-11] [SRC-23] a position is never ahead of what was appended: each batch moves it exactly to its last record.
#[tokio::test]
async fn position_is_the_last_appended_record_plus_one() {
    let topic = Topic::new(1).await;
    let split = topic.split(0);
    topic.write_numbered(0, 20_000, 50);
    let mut reading = Reading::open(topic.bounded()).await;
    let mut batches = 0;
    while !reading.is_over {
        if reading.poll().await.expect("poll") == Polled::Batch {
            batches += 1;
            let last = *reading.offsets(&split).last().expect("a record");
            assert_eq!(reading.position(&split), Some(last + 1));
        }
    }
    assert!(batches > 4, "{batches} batches of 20,000 records");
}

/// [SRC-12] [SRC-18] starts are part of the assignment: a position in the middle is where reading starts.
#[tokio::test]
async fn a_split_starts_at_the_position_it_was_added_with() {
    let topic = Topic::new(1).await;
    topic.write_numbered(0, 100, 8);
    let mut reading = Reading::open(topic.bounded()).await;
    let assigned = reading.source.poll(&mut reading.builder).await.expect("poll");
    assert!(matches!(assigned, Polled::Assigned(_)));
    reading.source.add(vec![(topic.split(0), Position::at(90))]).expect("add");
    let reading = reading.read_to_end().await;
    assert_eq!(reading.offsets(&topic.split(0)), (90..100).collect::<Vec<_>>());
}

/// [SRC-18] [SRC-30] whatever was read ahead for the old position, by the client or in batches, is dropped.
#[tokio::test]
async fn a_split_added_again_goes_on_from_its_new_position_without_stale_records() {
    let topic = Topic::new(2).await;
    let (moved, other) = (topic.split(0), topic.split(1));
    topic.write_numbered(0, 30_000, 100);
    topic.write_numbered(1, 30_000, 100);
    let mut reading = Reading::open(topic.bounded()).await;
    // Back and forth, at moments when batches of the old position are surely on the way.
    for (seen, position) in [(2_000, 1_500), (9_000, 20), (12_000, 25_000), (4_000, 3_000)] {
        reading.until(|reading| reading.offsets(&moved).len() >= seen / 2 || reading.is_over).await;
        reading.records.remove(&moved);
        reading.source.add(vec![(moved.clone(), Position::at(position))]).expect("add");
        reading.until(|reading| !reading.offsets(&moved).is_empty()).await;
        assert_eq!(reading.offsets(&moved)[0], position);
    }
    let reading = reading.read_to_end().await;
    assert_eq!(reading.offsets(&moved), (3_000..30_000).collect::<Vec<_>>());
    assert_eq!(reading.offsets(&other), (0..30_000).collect::<Vec<_>>(), "the other split is not disturbed");
    assert_eq!(reading.ends[&moved], 30_000);
}

/// [SRC-30] a split that has ended can be read again.
#[tokio::test]
async fn an_ended_split_can_be_added_again() {
    let topic = Topic::new(1).await;
    let split = topic.split(0);
    topic.write(0, ["a", "b", "c"]);
    let mut reading = Reading::open(topic.bounded()).await;
    reading.until(|reading| reading.is_over).await;
    reading.is_over = false;
    reading.source.add(vec![(split.clone(), Position::at(1))]).expect("add");
    let reading = reading.read_to_end().await;
    assert_eq!(reading.values(&split), ["a", "b", "c", "b", "c"]);
}

/// [SRC-30]
#[tokio::test]
async fn nothing_of_a_removed_split_is_appended() {
    let topic = Topic::new(2).await;
    topic.write_numbered(0, 20_000, 100);
    topic.write_numbered(1, 20_000, 100);
    let mut reading = Reading::open(topic.bounded()).await;
    reading.until(|reading| reading.count() > 0).await;
    reading.source.remove(&[topic.split(0)]).expect("remove");
    let before = reading.offsets(&topic.split(0));
    let reading = reading.read_to_end().await;
    assert_eq!(reading.offsets(&topic.split(0)), before);
    assert_eq!(reading.offsets(&topic.split(1)).len(), 20_000);
    assert!(!reading.ends.contains_key(&topic.split(0)));
}

/// [SRC-30] a resting split holds back nobody else, and goes on where it stood.
#[tokio::test]
async fn a_resting_split_goes_on_from_its_own_position() {
    let topic = Topic::new(2).await;
    let (rests, flows) = (topic.split(0), topic.split(1));
    topic.write_numbered(0, 50_000, 100);
    topic.write_numbered(1, 50_000, 100);
    let mut reading = Reading::open(topic.bounded()).await;
    reading.until(|reading| reading.count() > 0).await;
    reading.source.pause(std::slice::from_ref(&rests)).expect("pause");
    reading.until(|reading| reading.ends.contains_key(&flows)).await;
    let before = reading.offsets(&rests).len();
    assert!(before < 50_000, "the resting split came to its end");
    reading.source.resume(std::slice::from_ref(&rests)).expect("resume");
    let reading = reading.read_to_end().await;
    assert_eq!(reading.offsets(&rests), (0..50_000).collect::<Vec<_>>());
}

/// [SRC-30] the client's own note of pauses may not survive an assignment: ours does.
#[tokio::test]
async fn a_resting_split_that_is_added_again_still_rests() {
    let topic = Topic::new(2).await;
    let (rests, flows) = (topic.split(0), topic.split(1));
    topic.write_numbered(0, 1_000, 100);
    topic.write_numbered(1, 50_000, 100);
    let mut reading = Reading::open(topic.bounded()).await;
    let assigned = reading.source.poll(&mut reading.builder).await.expect("poll");
    let Polled::Assigned(assignment) = assigned else { panic!("{assigned:?}") };
    reading.source.add(starts(&assignment)).expect("add");
    reading.source.pause(std::slice::from_ref(&rests)).expect("pause");
    reading.source.add(vec![(rests.clone(), Position::at(500))]).expect("add again");
    reading.until(|reading| reading.ends.contains_key(&flows)).await;
    assert_eq!(reading.offsets(&rests), [0_u64; 0]);
    reading.source.resume(std::slice::from_ref(&rests)).expect("resume");
    let reading = reading.read_to_end().await;
    assert_eq!(reading.offsets(&rests), (500..1_000).collect::<Vec<_>>());
}

/// [SRC-18] a poll is given up whenever it is not ready at once: nothing is lost or doubled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_future_of_a_poll_loses_nothing() {
    let topic = Topic::new(3).await;
    for partition in 0..3 {
        topic.write_numbered(partition, 20_000, 40);
    }
    let mut reading = Reading::open(topic.bounded()).await;
    let mut given_up = 0_u64;
    while !reading.is_over {
        let polled = reading.source.poll(&mut reading.builder).now_or_never();
        match polled {
            None => {
                given_up += 1;
                tokio::task::yield_now().await;
            }
            Some(polled) => {
                let polled = polled.expect("poll");
                reading.note(&polled);
                if let Polled::Assigned(assignment) = &polled {
                    reading.source.add(starts(assignment)).expect("add");
                }
            }
        }
    }
    assert!(given_up > 0);
    for index in 0..3 {
        assert_eq!(reading.offsets(&topic.split(index)), (0..20_000).collect::<Vec<_>>());
    }
}
