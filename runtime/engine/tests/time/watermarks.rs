//! Where watermarks come from, and what they stand behind.

use std::time::Duration;

use levada_core::Timestamp;
use levada_core::time::WatermarkStrategy;
use levada_engine::{Job, JobError, ShapeError};

use crate::scene::{Look as _, Scene, scripts, sources, strategy, until};

const MIN: i64 = i64::MIN;

/// [TIM-02] [TIM-08] a watermark stands behind the record that causes it, and in front of the next one of its batch.
#[tokio::test(start_paused = true)]
async fn record_is_written_before_the_watermark_that_it_causes() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let each = WatermarkStrategy::punctuated(|_, timestamp| Some(timestamp));
    let mut job = scene.run(&scripts, each).await;
    scripts[0].assign(&[0]);
    scripts[0].read(&[(0, 5), (0, 7), (0, 6)]);
    scripts[0].end();
    job.wait().await.unwrap();
    assert_eq!(scene.written(), [(5, Some(5), MIN), (7, Some(7), 5), (6, Some(6), 7)]);
}

/// [TIM-01] [TIM-02] [TPL-04] a periodic watermark comes with a tick; every write sees the wall clock and the watermark.
#[tokio::test(start_paused = true)]
async fn periodic_watermark_comes_with_the_tick_and_every_write_sees_it() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let job = scene.run(&scripts, strategy()).await;
    scripts[0].assign(&[0]);
    scripts[0].read(&[(0, 1337), (0, 1330)]);
    until(&job.time(), |time| time.at("note") == 1326).await;
    scripts[0].read(&[(0, 2000)]);
    until(&job.time(), |time| time.at("note") == 1989).await;
    assert_eq!(scene.written(), [(1337, Some(1337), MIN), (1330, Some(1330), MIN), (2000, Some(2000), 1326)]);
}

/// [TIM-04] whether anybody keeps time or not, the maximum comes at the end of all input, and no earlier.
#[tokio::test(start_paused = true)]
async fn maximum_comes_when_all_subtasks_have_ended_also_without_a_strategy() {
    for has_strategy in [true, false] {
        let scene = Scene::default();
        let scripts = scripts(2);
        let flow = match has_strategy {
            true => Scene::flow(&scripts).watermarks("time", strategy()),
            false => Scene::flow(&scripts),
        };
        let job = flow.key_by("by itself", |number| *number).for_each("note", scene.note());
        let mut job = scene.start(job).await;
        let time = job.time();
        scripts[0].assign(&[0]);
        scripts[1].assign(&[1]);
        scripts[0].read(&[(0, 100)]);
        scripts[0].end();
        scripts[1].read(&[(1, 50)]);
        until(&time, |_| scene.written().len() == 2).await;
        assert_ne!(time.snapshot().at("note"), i64::MAX, "one has not ended");
        scripts[1].end();
        job.wait().await.unwrap();
        assert_eq!(time.snapshot().at("note"), i64::MAX, "with a strategy: {has_strategy}");
    }
}

/// A strategy that stands where there are no splits is refused before anything starts.
#[tokio::test]
async fn strategy_behind_an_exchange_is_refused() {
    let scene = Scene::default();
    let job = Job::new("time")
        .source("numbers", sources(&scripts(1)))
        .map("decode", crate::scene::number)
        .checkpointed()
        .key_by("by itself", |number| *number)
        .watermarks("too late", strategy())
        .for_each("note", scene.note());
    let store = levada_engine::store::Store::open("memory:").await.unwrap();
    let refusal = job.start(store).map_err(JobError::from).unwrap_err();
    assert!(matches!(refusal, JobError::Shape(ShapeError::WatermarksBehindExchange { .. })), "{refusal:?}");
}

/// [TIM-12] [TIM-16] a split that has ended is left out of the minimum with the next tick, and nothing is taken back.
#[tokio::test(start_paused = true)]
async fn split_that_has_ended_holds_nobody_back() {
    use levada_core::{Polled, Position};

    let scene = Scene::default();
    let scripts = scripts(1);
    let job = scene.run(&scripts, strategy()).await;
    scripts[0].assign(&[0, 1]);
    scripts[0].read(&[(0, 100), (1, 500)]);
    until(&job.time(), |time| time.at("note") == 89).await;
    scripts[0].say(Polled::EndOfSplit(crate::scripted::split(0), Position::at(1)));
    until(&job.time(), |time| time.at("note") == 489).await;
    scripts[0].say(Polled::Lost(vec![crate::scripted::split(1)]));
    let time = until(&job.time(), |time| time.source(0).splits.is_empty()).await;
    assert_eq!(time.at("note"), 489);
    assert_eq!(time.source(0).watermark, Timestamp(489));
}

/// The strategy's interval is that of the ticks.
#[tokio::test(start_paused = true)]
async fn interval_of_the_strategy_counts() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let hourly = strategy().every(Duration::from_secs(3600)).unwrap();
    let job = scene.run(&scripts, hourly).await;
    let begun = tokio::time::Instant::now();
    scripts[0].assign(&[0]);
    scripts[0].read(&[(0, 100)]);
    let mut looks = tokio::time::interval(Duration::from_secs(60));
    while job.time().snapshot().at("note") != 89 {
        looks.tick().await;
    }
    assert!(begun.elapsed() >= Duration::from_secs(3600), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(3700), "{:?}", begun.elapsed());
}
