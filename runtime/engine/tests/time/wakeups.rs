//! A job with nothing to do does nothing.

use std::time::Duration;

use crate::scene::{Look as _, Scene, scripts, strategy, until};

/// Polls of a source within so many seconds in which nothing happens.
async fn polls_within(script: &crate::scripted::Script, seconds: u64) -> u64 {
    let before = script.seen().polls;
    tokio::time::advance(Duration::ZERO).await;
    let mut passing = tokio::time::interval(Duration::from_secs(seconds));
    passing.tick().await;
    passing.tick().await;
    script.seen().polls - before
}

/// A task polls its source anew whenever it has woken up: without a strategy never, with one once in an interval.
#[tokio::test(start_paused = true)]
async fn idle_source_wakes_up_once_in_an_interval_and_without_a_strategy_never() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let job = scene.start(Scene::flow(&scripts).for_each("note", scene.note())).await;
    scripts[0].assign(&[0]);
    scripts[0].read(&[(0, 100)]);
    until(&job.time(), |_| scene.written().len() == 1).await;
    assert_eq!(polls_within(&scripts[0], 3_600).await, 0);
    drop(job);

    let scene = Scene::default();
    let scripts = crate::scene::scripts(1);
    let job = scene.run(&scripts, strategy()).await;
    scripts[0].assign(&[0]);
    scripts[0].read(&[(0, 100)]);
    until(&job.time(), |time| time.at("note") == 89).await;
    let polls = polls_within(&scripts[0], 100).await;
    assert!((499..=501).contains(&polls), "{polls}");
}
