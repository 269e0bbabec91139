//! Several subtasks, and an exchange between them and the sink.

use levada_core::Polled;
use levada_core::time::SplitEvent;

use crate::scene::{Look as _, Scene, pass, scripts, strategy, until};
use crate::scripted::split;

use SplitEvent::MarkIdle;

/// [TIM-13] [TIM-14] [TIM-15] channels that are idle are left out, all idle flush the highest, and one that comes back
/// counts once it has caught up.
#[tokio::test(start_paused = true)]
async fn subtasks_merge_behind_the_exchange() {
    let scene = Scene::default();
    let scripts = scripts(2);
    let job = scene.run(&scripts, strategy()).await;
    scripts[0].assign(&[0]);
    scripts[1].assign(&[1]);
    scripts[0].read(&[(0, 100)]);
    until(&job.time(), |time| time.source(0).watermark.0 == 89).await;
    pass(2).await;
    assert_eq!(job.time().snapshot().at("note"), i64::MIN, "the other one has said nothing");
    scripts[1].read(&[(1, 60)]);
    until(&job.time(), |time| time.at("note") == 49).await;
    scripts[1].news(1, MarkIdle);
    until(&job.time(), |time| time.at("note") == 89).await;
    scripts[1].read(&[(1, 80)]);
    until(&job.time(), |time| time.source(1).watermark.0 == 69).await;
    scripts[0].read(&[(0, 300)]);
    until(&job.time(), |time| time.at("note") == 289).await;
    scripts[1].read(&[(1, 400)]);
    until(&job.time(), |time| time.source(1).watermark.0 == 389).await;
    scripts[0].read(&[(0, 500)]);
    until(&job.time(), |time| time.at("note") == 389).await;
    scripts[0].news(0, MarkIdle);
    scripts[1].news(1, MarkIdle);
    let time = until(&job.time(), |time| time.at("note") == 489).await;
    assert_eq!(time.stage("note").len(), 2);
}

/// [TIM-05] [TIM-18] a subtask without a split is idle from its first word on, and before that it is waited for.
#[tokio::test(start_paused = true)]
async fn subtask_without_splits_holds_nobody_back() {
    let scene = Scene::default();
    let scripts = scripts(2);
    let job =
        scene.run(&scripts, strategy().within_drift("group", std::time::Duration::from_millis(50))).await;
    scripts[0].assign(&[0]);
    scripts[0].read(&[(0, 1_000)]);
    until(&job.time(), |time| time.source(0).watermark.0 == 989).await;
    pass(3).await;
    assert_eq!(job.time().snapshot().at("note"), i64::MIN, "it may yet be given splits");
    scripts[1].say(Polled::Idle);
    until(&job.time(), |time| time.at("note") == 989).await;
    scripts[0].read(&[(0, 9_000)]);
    until(&job.time(), |time| time.at("note") == 8_989).await;
    assert_eq!(scripts[0].seen().turns, 0, "the group waits for none that has nothing");
    scripts[1].assign(&[1]);
    scripts[1].read(&[(1, 9_005)]);
    until(&job.time(), |time| time.source(1).watermark.0 == 8_994).await;
    scripts[0].read(&[(0, 9_020)]);
    until(&job.time(), |time| time.at("note") == 8_994).await;
    scripts[1].say(Polled::Lost(vec![split(1)]));
    until(&job.time(), |time| time.at("note") == 9_009).await;
}
