//! Splits at their ends: some are idle, some are blocked.

use std::time::Duration;

use levada_core::StreamStatus;
use levada_core::time::{Blocked, SplitEvent, SplitStatus};

use crate::scene::{Look as _, Scene, pass, scripts, strategy, until};

use SplitEvent::{EndOfPartition, MarkIdle};

/// [TIM-05] [TIM-06] of three splits, an idle one does not hold the watermark back, and a blocked one does.
#[tokio::test(start_paused = true)]
async fn idle_split_does_not_hold_back_and_a_blocked_one_does() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let script = &scripts[0];
    let job = scene.run(&scripts, strategy()).await;
    script.assign(&[0, 1, 2]);
    script.read(&[(0, 1337), (1, 990), (2, 1200)]);
    script.news(1, EndOfPartition { position: 1 });
    script.news(2, EndOfPartition { position: 1 });
    until(&job.time(), |time| time.split(2).status == SplitStatus::CaughtUp).await;
    assert_eq!(script.seen().asked, [], "nobody is asked before the timeout");
    scene.clock.set(1_001);
    script.until(|seen| seen.asked.len() == 2).await;
    script.answer(1, 1);
    script.answer(2, 6);
    let time = until(&job.time(), |time| time.at("note") == 1189).await;
    assert_eq!(time.split(1).status, SplitStatus::Idle);
    let blocked = Blocked::BehindTransaction { position: 1, high_watermark: 6, transaction: None };
    assert_eq!(time.split(2).status, SplitStatus::Blocked(blocked));
    scene.clock.set(600_000);
    pass(5).await;
    assert_eq!(job.time().snapshot().at("note"), 1189, "blocked for minutes, and never idle");
    assert_eq!(script.seen().asked.len(), 2, "one question for a transition");
}

/// [TIM-10] in whatever order two splits become idle, the higher watermark comes, and then the status.
#[tokio::test(start_paused = true)]
async fn last_split_to_become_idle_brings_the_highest_watermark() {
    for order in [[0, 1], [1, 0]] {
        let scene = Scene::default();
        let scripts = scripts(1);
        let job = scene.run(&scripts, strategy()).await;
        scripts[0].assign(&[0, 1]);
        scripts[0].read(&[(0, 13), (1, 16)]);
        until(&job.time(), |time| time.at("note") == 2).await;
        order.iter().for_each(|index| scripts[0].news(*index, MarkIdle));
        let time = until(&job.time(), |time| time.source(0).status == StreamStatus::Idle).await;
        assert_eq!(time.source(0).watermark.0, 5);
        until(&job.time(), |time| time.at("note") == 5).await;
    }
}

/// [TIM-07] [TIM-21] ticks look at an idle split no more: what is shown of it is what it knew when it became idle.
#[tokio::test(start_paused = true)]
async fn split_that_says_it_is_idle_shows_the_watermark_of_its_last_records() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let job = scene.run(&scripts, strategy()).await;
    scripts[0].assign(&[0, 1]);
    until(&job.time(), |time| time.source(0).splits.len() == 2).await;
    scripts[0].read(&[(0, 100)]);
    scripts[0].news(0, MarkIdle);
    let time = until(&job.time(), |time| time.split(0).status == SplitStatus::Idle).await;
    assert_eq!(time.split(0).watermark.0, 89);
    drop(job);
}

/// [TIM-07] [TIM-11] a source's word makes a split idle at once; its next record makes it active, is late, and goes on.
#[tokio::test(start_paused = true)]
async fn returning_split_with_older_records_takes_nothing_back() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let job = scene.run(&scripts, strategy()).await;
    scripts[0].assign(&[0, 1]);
    scripts[0].read(&[(0, 100), (1, 500)]);
    scripts[0].news(0, MarkIdle);
    until(&job.time(), |time| time.at("note") == 489).await;
    scripts[0].read(&[(0, 200), (0, 489), (0, 490)]);
    let time = until(&job.time(), |time| time.split(0).watermark.0 == 479).await;
    assert_eq!((time.split(0).status, time.at("note")), (SplitStatus::Active, 489));
    assert_eq!(time.source(0).late, 2, "at the watermark is late, behind it is not");
    until(&job.time(), |time| time.stage("note")[0].late == 2).await;
    let behind = &scene.written()[2..];
    assert_eq!(behind, [(200, Some(200), 489), (489, Some(489), 489), (490, Some(490), 489)]);
}

/// [TIM-06] time in which the sink took nothing proves nothing of a split at its end, and is told as blocked.
#[tokio::test(start_paused = true)]
async fn back_pressure_stops_the_clock_of_idleness() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let is_held = tokio::sync::watch::channel(true).0;
    let held = is_held.subscribe();
    let flow = Scene::flow(&scripts).watermarks("time", strategy());
    let sink = move |_| crate::late::Slow(held.clone());
    let job = scene.start(flow.idempotent_sink("slow", sink)).await;
    scripts[0].assign(&[0, 1]);
    scripts[0].news(1, EndOfPartition { position: 0 });
    until(&job.time(), |time| time.split(1).status == SplitStatus::CaughtUp).await;
    // More than stands between the source and the sink, which takes the first and waits.
    (0..20).for_each(|timestamp| scripts[0].read(&[(0, timestamp)]));
    let mut polls = 0;
    while scripts[0].seen().polls > polls {
        polls = scripts[0].seen().polls;
        pass(1).await;
    }
    scene.clock.set(3_600_000);
    is_held.send_replace(false);
    let time = until(&job.time(), |time| time.split(1).spent.blocked > Duration::ZERO).await;
    assert_eq!(time.split(1).spent.blocked, Duration::from_secs(3600));
    pass(3).await;
    assert_eq!(scripts[0].seen().asked, []);
    scene.clock.set(3_601_001);
    scripts[0].until(|seen| seen.asked.len() == 1).await;
}

/// [TIM-06] a record that a step has filtered out was read all the same: its split is not idle.
#[tokio::test(start_paused = true)]
async fn split_whose_records_are_all_filtered_out_is_read() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let flow = Scene::flow(&scripts).filter("none", |_| false).watermarks("time", strategy());
    let job = scene.start(flow.for_each("note", scene.note())).await;
    scripts[0].assign(&[0]);
    scripts[0].read(&[(0, 1)]);
    scripts[0].news(0, EndOfPartition { position: 1 });
    until(&job.time(), |time| time.split(0).status == SplitStatus::CaughtUp).await;
    scene.clock.set(1_001);
    scripts[0].until(|seen| seen.asked.len() == 1).await;
    scripts[0].read(&[(0, 2)]);
    // An old answer proves nothing once something was read.
    scripts[0].answer(0, 1);
    until(&job.time(), |time| time.split(0).status == SplitStatus::Active).await;
    pass(2).await;
    assert_eq!(job.time().snapshot().split(0).status, SplitStatus::Active);
    assert_eq!(scene.written(), []);
    scripts[0].news(0, EndOfPartition { position: 2 });
    until(&job.time(), |time| time.split(0).status == SplitStatus::CaughtUp).await;
    scene.clock.set(2_003);
    scripts[0].until(|seen| seen.asked.len() == 2).await;
    assert_eq!(
        scripts[0].seen().asked[1].1.position(),
        2,
        "a step that makes nothing of a record moves the position"
    );
}
