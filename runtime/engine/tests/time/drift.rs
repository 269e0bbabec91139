//! Splits that run ahead of their group are let rest, and go on.

use std::time::Duration;

use levada_core::time::{Blocked, SplitEvent, SplitStatus, WatermarkStrategy};
use levada_engine::{DriftGroups, Job};

use crate::scene::{Look as _, Scene, pass, scripts, strategy, until};

const MIN: i64 = i64::MIN;

fn within(millis: u64) -> WatermarkStrategy<i64> {
    strategy().within_drift("group", Duration::from_millis(millis))
}

/// [TIM-17] the pause reaches the source after the split has exceeded what is allowed, and so does the end of it.
#[tokio::test(start_paused = true)]
async fn split_that_is_ahead_rests_until_the_others_have_followed() {
    let scene = Scene::default();
    let scripts = scripts(2);
    let mut job = scene.run(&scripts, within(1_000)).await;
    scripts[0].assign(&[0]);
    scripts[1].assign(&[1, 2]);
    scripts[1].read(&[(1, 100), (2, 1_200)]);
    until(&job.time(), |time| time.source(1).watermark.0 == 89).await;
    scripts[1].until(|seen| seen.resting.len() == 2).await;
    assert_eq!(job.time().snapshot().at("note"), MIN, "the group waits for a split that has said nothing");
    scripts[0].read(&[(0, 100)]);
    until(&job.time(), |time| time.at("note") == 89).await;
    scripts[1].until(|seen| seen.resting == [2]).await;
    let time = until(&job.time(), |time| time.split(2).status.is_blocked()).await;
    let SplitStatus::Blocked(Blocked::Paused(_)) = time.split(2).status else { panic!("{time:?}") };
    scene.clock.set(600_000);
    pass(3).await;
    assert_eq!(job.time().snapshot().at("note"), 89, "what rests is not idle");
    scripts[1].read(&[(1, 400)]);
    pass(3).await;
    assert_eq!(scripts[1].seen().resting, [2], "another subtask is still behind");
    scripts[0].read(&[(0, 400)]);
    scripts[1].until(|seen| seen.resting.is_empty()).await;
    job.stop().await.unwrap();
    job.wait().await.unwrap();
}

/// [TIM-17] all idle: there is no limit.
#[tokio::test(start_paused = true)]
async fn nobody_rests_for_those_that_are_idle() {
    let scene = Scene::default();
    let scripts = scripts(2);
    let job = scene.run(&scripts, within(100)).await;
    scripts[0].assign(&[0]);
    scripts[1].assign(&[1]);
    scripts[0].read(&[(0, 100)]);
    scripts[1].read(&[(1, 900)]);
    scripts[1].until(|seen| seen.resting == [1]).await;
    scripts[0].news(0, SplitEvent::MarkIdle);
    scripts[1].until(|seen| seen.resting.is_empty()).await;
    until(&job.time(), |time| time.at("note") == 889).await;
}

/// [TIM-18] checkpoints and the stop do not wait for a group.
#[tokio::test(start_paused = true)]
async fn job_stops_while_everything_it_reads_rests() {
    let scene = Scene::default();
    let (slow, fast) = (scripts(1), scripts(1));
    let groups = DriftGroups::new();
    let start = |scripts, note| {
        let flow = Scene::flow_of(Job::new("time").drift_groups(groups.clone()), scripts);
        scene.start(flow.watermarks("time", within(100)).for_each(note, scene.note()))
    };
    let slow_job = start(&slow, "slow").await;
    let mut fast_job = start(&fast, "fast").await;
    slow[0].assign(&[0]);
    slow[0].read(&[(0, 100)]);
    until(&slow_job.time(), |time| time.at("slow") == 89).await;
    fast[0].assign(&[1]);
    fast[0].read(&[(1, 1_000)]);
    fast[0].until(|seen| seen.resting == [1]).await;
    fast_job.trigger_checkpoint().await.unwrap();
    fast_job.stop().await.unwrap();
    fast_job.wait().await.unwrap();
    assert_eq!(fast[0].seen().resting, [1]);
    assert_eq!(fast_job.time().snapshot().at("fast"), 989);
    drop(slow_job);
}

/// [TIM-17] two jobs of a process wait for each other if they share their groups, and nobody waits for one that has ended.
#[tokio::test(start_paused = true)]
async fn job_that_has_ended_has_left_its_group() {
    let scene = Scene::default();
    let (slow, fast) = (scripts(1), scripts(1));
    let groups = DriftGroups::new();
    let start = |scripts, note| {
        let flow = Scene::flow_of(Job::new("time").drift_groups(groups.clone()), scripts);
        scene.start(flow.watermarks("time", within(100)).for_each(note, scene.note()))
    };
    let mut slow_job = start(&slow, "slow").await;
    let fast_job = start(&fast, "fast").await;
    slow[0].assign(&[0]);
    slow[0].read(&[(0, 100)]);
    until(&slow_job.time(), |time| time.at("slow") == 89).await;
    fast[0].assign(&[1]);
    fast[0].read(&[(1, 1_000)]);
    fast[0].until(|seen| seen.resting == [1]).await;
    slow_job.cancel();
    slow_job.wait().await.unwrap_err();
    fast[0].until(|seen| seen.resting.is_empty()).await;
    drop(fast_job);
}
