//! Seeking, pausing and resuming from beside a source that runs.

use std::pin::pin;
use std::time::Instant;

use levada_core::time::{Pause, SplitEvent};
use levada_core::{Position, Positions, Source as _, SourceError, SplitId, Timestamp};
use levada_kafka::{KafkaSource, SeekTo, SourceControl};
use levada_testcontainers::unique_name;

use super::support::{PATIENCE, Reading, Topic};

/// Seeks while the source is polled. What was read before the seek was taken is in `reading`.
async fn seek(
    reading: &mut Reading,
    control: &SourceControl,
    split: &SplitId,
    to: SeekTo,
) -> Result<Position, SourceError> {
    let mut seeking = pin!(control.seek(split.clone(), to));
    loop {
        tokio::select! {
            biased;
            sought = &mut seeking => return sought,
            polled = reading.poll() => drop(polled.expect("poll")),
        }
    }
}

/// [SRC-18] [SRC-30] after each of 1,000 seeks while other partitions are read, the next record of the split is the one
/// asked for; none is stale, none takes for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_every_seek_of_a_storm_the_next_record_is_the_one_asked_for() {
    const RECORDS: u64 = 5_000;
    let topic = Topic::new(4).await;
    for partition in 0..4 {
        topic.write_numbered(partition, RECORDS as usize, 100);
    }
    // A broker answers a fetch of partitions without news only then: until it does, a new position is not asked for.
    let config = topic.config().property("fetch.wait.max.ms", "5");
    let mut reading = Reading::open(config).await;
    let control = reading.source.control();
    reading.until(|reading| reading.count() > 0).await;
    let started = Instant::now();
    let mut random = 88_172_645_463_325_252_u64;
    for _ in 0..1_000 {
        // Xorshift: the same storm each time.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let split = topic.split((random % 4) as u32);
        let offset = (random >> 8) % RECORDS;
        let sought = seek(&mut reading, &control, &split, SeekTo::Offset(offset)).await.expect("sought");
        assert_eq!(sought.next, offset);
        assert_eq!(reading.told(&split).last(), Some(&SplitEvent::Seek { position: offset }));
        reading.records.clear();
        reading.news.clear();
        reading.until(|reading| reading.records.contains_key(&split)).await;
        assert_eq!(reading.offsets(&split)[0], offset);
    }
    println!("1,000 seeks took {:?}", started.elapsed());
    assert!(started.elapsed() < PATIENCE * 5, "{:?}", started.elapsed());
    reading.source.close().await;
}

/// [SRC-18] to the places that a start can be; and the position moves in line, before any record.
#[tokio::test]
async fn a_seek_finds_the_places_that_a_start_can_be() {
    let topic = Topic::new(1).await;
    let split = topic.split(0);
    topic.write_at(0, [100, 200, 300, 400]);
    topic.commit("seeker", &[(0, 1)]);
    let mut reading = Reading::open(topic.config().group_id("seeker")).await;
    let control = reading.source.control();
    reading.until(|reading| reading.count() == 4).await;
    let places = [
        (SeekTo::Earliest, 0),
        (SeekTo::Latest, 4),
        (SeekTo::Timestamp(Timestamp(250)), 2),
        (SeekTo::Timestamp(Timestamp(500)), 4),
        (SeekTo::Committed, 1),
        (SeekTo::Offset(3), 3),
    ];
    for (to, offset) in places {
        let sought = seek(&mut reading, &control, &split, to).await.expect("sought");
        assert_eq!(sought.next, offset, "{to:?}");
        assert_eq!(
            reading.position(&split),
            Some(offset),
            "{to:?}: it has moved in the poll that took the seek"
        );
        reading.records.clear();
        reading.until(|reading| reading.position(&split) == Some(4)).await;
        assert_eq!(reading.offsets(&split), (offset..4).collect::<Vec<_>>(), "{to:?}");
    }
    reading.source.close().await;
}

/// [SRC-18] a seek that cannot be is told, not lost.
#[tokio::test]
async fn a_seek_of_a_split_that_is_not_read_fails() {
    let topic = Topic::new(1).await;
    topic.write(0, ["a"]);
    let mut reading = Reading::open(topic.bounded()).await;
    let control = reading.source.control();
    reading.until(|reading| reading.count() == 1).await;
    let message = seek(&mut reading, &control, &topic.split(7), SeekTo::Offset(0)).await.expect_err("fails");
    assert!(message.to_string().contains(&topic.split(7).to_string()), "{message}");
    reading.source.close().await;
    let ended = control.seek(topic.split(0), SeekTo::Offset(0)).await.expect_err("nobody polls");
    assert!(ended.to_string().contains("ended"), "{ended}");
    let source = KafkaSource::new(topic.config()).expect("a source");
    let control = source.control();
    drop(source);
    assert!(control.seek(topic.split(0), SeekTo::Offset(0)).await.is_err());
}

/// [SRC-30] [TIM-06] a split that the user lets rest is not woken by the engine, nor by an assignment, nor by being sought in;
/// all of it is told.
#[tokio::test]
async fn a_split_paused_by_the_user_rests_until_the_user_lets_it_go_on() {
    let topic = Topic::new(2).await;
    let (rests, flows) = (topic.split(0), topic.split(1));
    let only = std::slice::from_ref(&rests);
    topic.write_numbered(0, 1_000, 100);
    topic.write_numbered(1, 50_000, 100);
    let mut reading = Reading::open(topic.config()).await;
    let control = reading.source.control();
    control.pause(only); // before it is assigned
    reading.until(|reading| reading.told(&rests).contains(&SplitEvent::Paused(Pause::User))).await;
    reading.source.pause(only).expect("pause");
    reading.source.resume(only).expect("resume");
    reading.source.remove(only).expect("remove");
    reading.source.add(vec![(rests.clone(), Position::at(100))]).expect("add");
    seek(&mut reading, &control, &rests, SeekTo::Offset(500)).await.expect("sought");
    reading.until(|reading| reading.offsets(&flows).len() == 50_000).await;
    assert_eq!(reading.offsets(&rests), [0_u64; 0]);
    assert_eq!(reading.position(&rests), Some(500), "the position moved with the seek");
    control.resume(only);
    reading.until(|reading| reading.offsets(&rests).len() == 500).await;
    assert_eq!(reading.offsets(&rests)[0], 500);
    let told = reading.told(&rests);
    let pauses: Vec<_> =
        told.iter().filter(|event| !matches!(event, SplitEvent::EndOfPartition { .. })).collect();
    assert_eq!(pauses.last(), Some(&&SplitEvent::Resumed(Pause::User)), "{told:?}");
    reading.source.close().await;
}

/// [SRC-20] [SRC-33] somebody else is in the group, so the broker refuses the commit of one who is not: the error is told to whoever
/// asked, counted, and nothing else; once the group is empty, the next commit works.
#[tokio::test]
async fn a_commit_that_the_broker_refuses_is_told_and_counted() {
    let topic = Topic::new(1).await;
    topic.write(0, ["a"]);
    let group = unique_name("group");
    let member = topic.member(&group);
    let mut reading = Reading::open(topic.config().group_id(&group)).await;
    let (control, status) = (reading.source.control(), reading.source.status());
    let positions: Positions = [(topic.split(0), Position::at(1))].into_iter().collect();
    let error = control.commit(positions.clone()).await.expect_err("refused");
    assert!(format!("{error:?}").contains("UnknownMemberId"), "{error:?}");
    assert_eq!((status.commits(), status.failed_commits()), (0, 1));
    reading.until(|reading| reading.count() == 1).await;
    drop(member);
    while control.commit(positions.clone()).await.is_err() {}
    assert_eq!(status.commits(), 1);
    reading.source.close().await;
}
