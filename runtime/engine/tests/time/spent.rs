//! What others see of the time of a job.

use std::time::Duration;

use levada_core::Timestamp;
use levada_core::time::{SplitEvent, WatermarkStrategy};

use crate::scene::{Look as _, Scene, scripts, strategy, until};

fn seconds(of: [Duration; 4]) -> [u64; 4] {
    of.map(|duration| duration.as_secs())
}

/// [TIM-21] each split tells its watermark, its lag, its status, and how its time was spent.
#[tokio::test(start_paused = true)]
async fn time_of_a_split_is_told_by_what_it_was_spent_on() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let strategy: WatermarkStrategy<i64> = strategy().within_drift("group", Duration::from_millis(100));
    let job = scene.run(&scripts, strategy).await;
    scripts[0].assign(&[0, 1]);
    scripts[0].read(&[(0, 2_000), (1, 1_950)]);
    until(&job.time(), |time| time.at("note") == 1_939).await;
    scene.clock.set(10_000);
    let time = job.time().snapshot();
    assert_eq!(time.lag(time.split(0).watermark), Some(Duration::from_millis(10_000 - 1_989)));
    assert_eq!(time.lag(time.stage("note")[0].watermark), Some(Duration::from_millis(10_000 - 1_939)));
    assert_eq!((time.lag(Timestamp::MIN), time.lag(Timestamp::MAX)), (None, None));
    scripts[0].news(0, SplitEvent::MarkIdle);
    until(&job.time(), |time| time.split(0).status.is_idle()).await;
    scene.clock.set(30_000);
    scripts[0].read(&[(0, 9_000)]);
    until(&job.time(), |time| time.split(0).status.is_blocked()).await;
    scene.clock.set(70_000);
    scripts[0].read(&[(1, 9_000)]);
    scripts[0].until(|seen| seen.resting.is_empty() && seen.turns == 2).await;
    scripts[0].news(1, SplitEvent::FetchFailed);
    let time = until(&job.time(), |time| time.split(1).status.is_blocked()).await;
    assert_eq!(time.split(1).since, Timestamp(70_000));
    scene.clock.set(150_000);
    let time = job.time().snapshot();
    let spent = |index| {
        let spent = time.split(index).spent;
        seconds([spent.active, spent.idle, spent.blocked, spent.ahead])
    };
    assert_eq!(spent(0), [10 + 80, 20, 0, 40]);
    assert_eq!(spent(1), [70, 0, 80, 0]);
}
