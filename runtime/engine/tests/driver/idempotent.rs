//! Flushes before barriers.

use std::collections::BTreeSet;

use levada_core::{CheckpointId, ErrorClass, State};
use levada_engine::driver::{DriverError, IdempotentDriver, SinkDriver};

use crate::scripted::{barrier, context, id, restored, write};
use crate::table::BufferingSink;

/// [TPL-05] [CHK-02]
#[tokio::test]
async fn what_a_barrier_covers_is_flushed_before_it_goes_on() {
    let sink = BufferingSink::default();
    let mut driver = IdempotentDriver::new(sink.clone());
    driver.open(context(0, 1, 1), None).await.unwrap();
    write(&mut driver, [1, 2]).await.unwrap();
    assert_eq!(driver.tally().pending(), 2);
    assert!(barrier(&mut driver, id(1)).await.unwrap().is_empty());
    assert_eq!(sink.lock().calls, ["open", "upsert", "flush"]);
    assert_eq!(driver.tally().pending(), 0);
}

/// [TPL-05] [CHK-11]
#[tokio::test]
async fn the_end_flushes_and_nothing_can_follow() {
    let sink = BufferingSink::default();
    let mut driver = IdempotentDriver::new(sink.clone());
    driver.open(context(0, 1, 1), None).await.unwrap();
    write(&mut driver, [1]).await.unwrap();
    driver.finish().await.unwrap();
    assert_eq!(sink.lock().rows, BTreeSet::from([1]));
    assert!(matches!(write(&mut driver, [2]).await, Err(DriverError::AfterFinish)));
}

/// [TPL-05] Whatever step fails: the replay from the last complete checkpoint converges.
#[tokio::test]
async fn a_replay_converges_after_a_crash_at_any_step() {
    for calls in 0..9 {
        for has_effect in [false, true] {
            let sink = BufferingSink::default();
            sink.lock().faults.light(calls, has_effect);
            let (mut position, mut attempt) = (1, 1);
            while position <= 4 {
                let mut driver = IdempotentDriver::new(sink.clone());
                let run = run(&mut driver, attempt, &mut position).await;
                assert_eq!(run.is_err(), sink.lock().faults.is_dead());
                sink.lock().faults.revive();
                attempt += 1;
            }
            assert_eq!(sink.lock().rows, BTreeSet::from([1, 2, 3, 4]));
        }
    }
}

/// Writes up to 4 with a barrier behind each number.
async fn run(
    driver: &mut IdempotentDriver<BufferingSink>,
    attempt: u64,
    position: &mut u64,
) -> Result<(), DriverError> {
    let restored = restored(id(*position), &State::new());
    driver.open(context(0, 1, attempt), restored).await?;
    while *position <= 4 {
        write(driver, [*position]).await?;
        let checkpoint = CheckpointId::new(attempt, *position);
        barrier(driver, checkpoint).await?;
        driver.complete(checkpoint).await?;
        *position += 1;
    }
    Ok(())
}

/// [CHK-02]
#[tokio::test]
async fn a_failing_flush_fails_the_barrier() {
    let sink = BufferingSink::default();
    let mut driver = IdempotentDriver::new(sink.clone());
    driver.open(context(0, 1, 1), None).await.unwrap();
    write(&mut driver, [1]).await.unwrap();
    sink.lock().faults.fail("flush", ErrorClass::Reconnect, 1);
    let error = barrier(&mut driver, id(1)).await.unwrap_err();
    assert_eq!(error.to_string(), "the sink failed to flush");
}
