//! Where the timestamp of a record comes from, and what becomes of one without.

use levada_core::time::{TimestampFrom, WatermarkStrategy, WithoutTimestamp};
use levada_core::{ErrorChain, Timestamp};
use levada_engine::JobError;

use crate::scene::{Look as _, Scene, scripts, strategy, until};

/// The time is in the record: a thousand times the number, unless that is 7.
fn by_field(otherwise: WithoutTimestamp) -> WatermarkStrategy<i64> {
    let field = TimestampFrom::field(|number: &i64| (number % 10 != 7).then_some(Timestamp(number * 1_000)));
    strategy().timestamps(field, otherwise)
}

/// [TIM-03] the field's time is the record's from there on, and the watermark's.
#[tokio::test(start_paused = true)]
async fn timestamp_of_a_field_is_the_records_own_downstream() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let job = scene.run(&scripts, by_field(WithoutTimestamp::Fail)).await;
    scripts[0].assign(&[0]);
    scripts[0].read(&[(0, 3)]);
    scripts[0].read_without_timestamp(0);
    until(&job.time(), |time| time.at("note") == 2_989).await;
    assert_eq!(scene.written(), [(3, Some(3_000), i64::MIN), (0, Some(0), i64::MIN)]);
}

/// [TIM-03] a policy that takes the source's time in its place counts.
#[tokio::test(start_paused = true)]
async fn timestamp_of_the_source_stands_in_and_is_counted() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let job = scene.run(&scripts, by_field(WithoutTimestamp::TakeOrigin)).await;
    scripts[0].assign(&[0]);
    scripts[0].read(&[(0, 17), (0, 2), (0, 27)]);
    let time = until(&job.time(), |time| time.source(0).missing.taken_from_origin == 2).await;
    assert_eq!(time.source(0).watermark.0, 1_989);
    until(&job.time(), |_| scene.written().len() == 3).await;
    let of_records: Vec<_> = scene.written().into_iter().map(|(_, timestamp, _)| timestamp).collect();
    assert_eq!(of_records, [Some(17), Some(2_000), Some(27)]);
}

/// [TIM-03] a record without a time ends the job, or is refused, and is named and counted either way.
#[tokio::test(start_paused = true)]
async fn record_without_a_timestamp_fails_or_is_refused_by_name() {
    for otherwise in [WithoutTimestamp::Fail, WithoutTimestamp::Refuse] {
        let scene = Scene::default();
        let scripts = scripts(1);
        let mut job = scene.run(&scripts, by_field(otherwise)).await;
        scripts[0].assign(&[0]);
        scripts[0].read(&[(0, 1), (0, 2), (0, 7), (0, 3)]);
        let error = job.wait().await.unwrap_err();
        let message = ErrorChain(&error).to_string();
        assert!(message.contains("t-0@2") && message.contains("no timestamp"), "{message}");
        assert!(error.is_bad_record());
        let missing = job.time().snapshot().source(0).missing;
        match otherwise {
            WithoutTimestamp::Refuse => {
                assert!(matches!(error, JobError::Refused { .. }), "{error:?}");
                assert_eq!((missing.refused, missing.failed), (1, 0));
                let items: Vec<_> = scene.written().into_iter().map(|(item, ..)| item).collect();
                assert_eq!(items, [1, 2], "what came before it was written");
            }
            _ => {
                assert!(matches!(error, JobError::NoTimestamp { .. }), "{error:?}");
                assert_eq!((missing.refused, missing.failed), (0, 1));
            }
        }
    }
}
