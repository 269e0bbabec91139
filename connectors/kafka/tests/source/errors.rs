//! Errors end the job with the split and the reason, or are counted.

use levada_core::{Budget, ErrorClass, Polled, Position, Source, SourceContext, SourceError};
use levada_kafka::source::{KafkaSource, KafkaSourceConfig, WhenLost};
use rdkafka::admin::AdminOptions;

use super::bounded::delete_before;
use super::support::{Reading, Topic, admin};

async fn error_of(reading: &mut Reading) -> SourceError {
    loop {
        match reading.poll().await {
            Ok(Polled::End) => panic!("the read ended without an error"),
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

/// [SRC-19] [SRC-26] retention has passed the position: the error names split, position and the gap. Nothing is reset.
#[tokio::test]
async fn a_position_lost_to_retention_is_an_error_with_the_gap() {
    let topic = Topic::new(1).await;
    topic.write_numbered(0, 20, 4);
    delete_before(&topic, &[(0, 12)]).await;
    let mut reading = Reading::open(topic.bounded()).await;
    reading.source.poll(&mut reading.builder).await.expect("assigned");
    reading.source.add(vec![(topic.split(0), Position::at(5))]).expect("add");
    let error = error_of(&mut reading).await;
    assert_eq!(error.class, ErrorClass::Fatal);
    let message = error.to_string();
    for part in [&format!("{}-0", topic.name), "position 5", "[12, 20)", "[5, 12)"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(reading.count(), 0);
}

/// [SRC-19] by choice, reading goes on behind the gap: the position moves, and the gap is counted.
#[tokio::test]
async fn a_gap_is_passed_and_counted_by_choice() {
    for (when_lost, next) in [(WhenLost::Earliest, 12), (WhenLost::Latest, 20)] {
        let topic = Topic::new(1).await;
        topic.write_numbered(0, 20, 4);
        delete_before(&topic, &[(0, 12)]).await;
        let mut reading = Reading::open(topic.config().when_lost(when_lost)).await;
        reading.source.poll(&mut reading.builder).await.expect("assigned");
        reading.source.add(vec![(topic.split(0), Position::at(5))]).expect("add");
        reading.until(|reading| reading.position(&topic.split(0)) >= Some(next)).await;
        topic.write_numbered(0, 1, 4);
        reading.until(|reading| reading.position(&topic.split(0)) == Some(21)).await;
        assert_eq!(reading.offsets(&topic.split(0)), (next..21).collect::<Vec<_>>());
        let status = reading.source.status();
        assert_eq!((status.gaps(), status.lost_offsets()), (1, next - 5));
        reading.source.close().await;
    }
}

/// [SRC-19] [SRC-15] a bounded read whose rest is gone ends at its stop.
#[tokio::test]
async fn a_bounded_read_whose_rest_is_gone_ends() {
    let topic = Topic::new(1).await;
    topic.write_numbered(0, 20, 4);
    let config = topic.bounded().when_lost(WhenLost::Earliest);
    let mut reading = Reading::open(config).await;
    topic.write_numbered(0, 5, 4);
    delete_before(&topic, &[(0, 22)]).await;
    reading.source.poll(&mut reading.builder).await.expect("assigned");
    reading.source.add(vec![(topic.split(0), Position::at(5))]).expect("add");
    let status = reading.source.status();
    let reading = reading.read_to_end().await;
    assert_eq!((reading.count(), reading.ends[&topic.split(0)]), (0, 20));
    assert_eq!((status.gaps(), status.lost_offsets()), (1, 15));
}

/// [SRC-19] [SRC-26] also where a gap would be passed: nothing is lost by retention at that end.
#[tokio::test]
async fn a_position_beyond_the_end_is_an_error() {
    let topic = Topic::new(1).await;
    topic.write_numbered(0, 20, 4);
    let mut reading = Reading::open(topic.config().when_lost(WhenLost::Latest)).await;
    reading.source.poll(&mut reading.builder).await.expect("assigned");
    reading.source.add(vec![(topic.split(0), Position::at(21))]).expect("add");
    let message = error_of(&mut reading).await.to_string();
    assert!(message.contains("position 21") && message.contains("[0, 20)"), "{message}");
}

/// [SRC-26] what was read before an error is handed over before it.
#[tokio::test]
async fn records_before_an_error_are_not_lost() {
    let topic = Topic::new(2).await;
    topic.write_numbered(0, 100, 4);
    topic.write_numbered(1, 20, 4);
    let mut reading = Reading::open(topic.config()).await;
    reading.until(|reading| reading.count() == 120).await;
    reading.source.add(vec![(topic.split(1), Position::at(99))]).expect("add");
    let message = error_of(&mut reading).await.to_string();
    assert!(message.contains(&format!("{}-1", topic.name)), "{message}");
    assert_eq!(reading.count(), 120);
    // The end is said again, it is not waited for.
    assert!(reading.poll().await.is_err());
}

/// [SRC-07] [SRC-26] in part: a topic of the list that is deleted while it is read.
#[tokio::test]
async fn a_topic_deleted_while_it_is_read_is_an_error_that_names_it() {
    let topic = Topic::new(1).await;
    topic.write(0, ["a"]);
    let mut reading =
        Reading::open(topic.config().property("topic.metadata.refresh.interval.ms", "1000")).await;
    reading.until(|reading| reading.count() == 1).await;
    let deleted =
        admin(&topic.bootstrap).delete_topics(&[&topic.name], &AdminOptions::new()).await.expect("delete");
    deleted.into_iter().for_each(|result| drop(result.expect("deleted")));
    let message = error_of(&mut reading).await.to_string();
    assert!(message.contains(&topic.name) && message.contains("deleted"), "{message}");
}

/// [SRC-10] a secret under a misspelt name, or as the value of another property, is not shown.
#[tokio::test]
async fn a_property_that_the_client_refuses_is_named_without_its_value() {
    for property in ["sasl.pasword", "fetch.wait.max.ms", "security.protocol"] {
        let config = KafkaSourceConfig::new("localhost:9092", ["flights"]).property(property, "hunter2");
        let mut source = KafkaSource::new(config).expect("passed through");
        let ctx = SourceContext { subtask: 0, parallelism: 1, budget: Budget::new(1 << 20) };
        let error = source.open(ctx).await.expect_err("refused");
        let told = format!("{} {error:?}", levada_core::ErrorChain(&error));
        assert!(told.contains(property) && !told.contains("hunter2"), "{told}");
        source.close().await;
    }
}

/// Writes until a value has landed in the topic that was made anew, and 30 more. Returns the values that the old topic took
/// meanwhile: a broker serves it for a moment after the cluster has deleted it, and whoever reads it is given them.
fn write_to_the_new_topic(topic: &Topic) -> Vec<String> {
    let mut taken_by_the_old = Vec::new();
    loop {
        let value = format!("old {}", taken_by_the_old.len());
        if topic.write_one(0, &value) == 0 {
            break;
        }
        taken_by_the_old.push(value);
    }
    topic.write(0, ["new"; 30]);
    taken_by_the_old
}

/// [SRC-07] [SRC-26] a topic made anew under its name is another one: nothing of it is handed over, also where the old
/// position exists in it.
#[tokio::test]
async fn a_topic_made_anew_while_it_is_read_is_an_error_with_both_ids() {
    let topic = Topic::new(1).await;
    let split = topic.split(0);
    topic.write_numbered(0, 10, 4);
    let mut reading = Reading::open(topic.config()).await;
    reading.until(|reading| reading.count() == 10).await;
    topic.make_anew(1).await;
    let taken_by_the_old = write_to_the_new_topic(&topic);
    let message = error_of(&mut reading).await.to_string();
    assert!(message.contains(&topic.name) && message.contains("made anew"), "{message}");
    let values = reading.values(&split).split_off(10);
    assert!(values.iter().zip(&taken_by_the_old).all(|(value, taken)| value == taken), "{values:?}");
    assert!(values.len() <= taken_by_the_old.len(), "{values:?}");
}

/// [SRC-07] the same where nothing of it was read yet, and the client knows the new topic alone: what is added would be read
/// at positions of the one that is gone.
#[tokio::test]
async fn a_topic_made_anew_before_its_splits_are_read_is_an_error_with_both_ids() {
    let topic = Topic::new(1).await;
    topic.write_numbered(0, 10, 4);
    let config = topic.config().property("metadata.max.age.ms", "1");
    let mut reading = Reading::open(config).await;
    let assigned = reading.source.poll(&mut reading.builder).await.expect("assigned");
    assert!(matches!(assigned, Polled::Assigned(_)));
    topic.make_anew(1).await;
    write_to_the_new_topic(&topic);
    reading.source.add(vec![(topic.split(0), Position::at(10))]).expect("add");
    let message = error_of(&mut reading).await.to_string();
    assert!(message.contains(&topic.name) && message.contains("made anew"), "{message}");
    assert_eq!(reading.count(), 0);
}
