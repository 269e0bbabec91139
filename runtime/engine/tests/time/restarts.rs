//! Restarts and checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_core::time::SplitStatus;
use levada_engine::checkpoint::RestartStrategy;

use crate::scene::{Look as _, Scene, scripts, strategy, until};

/// [CHK-08] a restart adds the splits again, where the checkpoint says; their time begins anew, and counts go on.
#[tokio::test(start_paused = true)]
async fn restarted_job_tells_time_anew() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let is_to_fail = Arc::new(AtomicBool::new(false));
    let (mut note, fails) = (scene.note(), Arc::clone(&is_to_fail));
    let job =
        Scene::flow(&scripts).watermarks("time", strategy()).for_each("note", move |record, ctx| match fails
            .swap(false, Ordering::SeqCst)
        {
            true => Err("asked to fail".into()),
            false => note(record, ctx),
        });
    let restarts = RestartStrategy::FixedDelay { attempts: 1, delay: Duration::from_millis(1) };
    let job = scene.start(job.restarts(restarts)).await;
    scripts[0].assign(&[0, 1]);
    scripts[0].read(&[(0, 100), (1, 200)]);
    until(&job.time(), |time| time.at("note") == 89).await;
    scripts[0].read(&[(0, 5)]);
    until(&job.time(), |time| time.source(0).late == 1).await;
    job.trigger_checkpoint().await.unwrap();
    is_to_fail.store(true, Ordering::SeqCst);
    scripts[0].read(&[(0, 300)]);
    until(&job.time(), |time| time.source(0).splits.is_empty()).await;
    assert_eq!(job.time().snapshot().at("note"), i64::MIN);
    scripts[0].assign(&[0, 1]);
    scripts[0].read(&[(0, 300)]);
    scripts[0].until(|seen| seen.added.len() == 4).await;
    assert_eq!(scripts[0].seen().added[2..], [(0, 2), (1, 1)]);
    let time = until(&job.time(), |time| time.split(0).watermark.0 == 289).await;
    assert_eq!(time.at("note"), i64::MIN, "the other split has said nothing since");
    assert_eq!((time.split(1).status, time.source(0).late), (SplitStatus::Active, 1));
    assert_eq!(scene.written().last(), Some(&(300, Some(300), i64::MIN)));
}
